"""Every command once. A new one is one `prepare` function in its use case and one line here."""

from __future__ import annotations

from tokpit.errors import UsageError
from tokpit.ops import fleet
from tokpit.ops.check import run as check
from tokpit.ops.gate import Command, Risk
from tokpit.ops.lifecycle import adopt, launch, leftovers, relaunch, stop
from tokpit.ops.sweep import run as sweep
from tokpit.ops.tuning import ab
from tokpit.ops.tuning import start as tuning

COMMANDS: tuple[Command, ...] = (
    Command(
        id="server.launch",
        title="Launch a server",
        help="Start a server detached in its own session and wait until it has generated a token.",
        risk=Risk.CHANGE,
        prepare=launch.prepare,
        keys=("l",),
        contexts=("host",),
    ),
    Command(
        id="server.stop",
        title="Stop a server",
        help="End exactly this server's process group: TERM, then KILL, and wait until it is gone.",
        risk=Risk.DESTRUCTIVE,
        prepare=stop.prepare,
        keys=("x",),
        contexts=("server",),
    ),
    Command(
        id="server.relaunch",
        title="Relaunch with other settings",
        help="Stop a server and start it again with changed settings; port and model stay unless changed.",
        risk=Risk.DESTRUCTIVE,
        prepare=relaunch.prepare,
        keys=("r",),
        contexts=("server",),
    ),
    Command(
        id="server.clear",
        title="Clear away a failed start",
        help="End what outlived a failed start and remove the files that it left in /dev/shm.",
        risk=Risk.CHANGE,
        prepare=leftovers.prepare,
    ),
    Command(
        id="server.adopt",
        title="Adopt a server",
        help="Record a server that somebody else started: pid, start time, port and log, on the host.",
        risk=Risk.CHANGE,
        prepare=adopt.prepare,
        contexts=("server",),
    ),
    Command(
        id="server.check",
        title="Check a server",
        help="First token, sensible answers, flags in effect, speed against the baseline, errors in the log.",
        risk=Risk.LOAD,
        prepare=check.prepare,
        keys=("c",),
        contexts=("server",),
    ),
    Command(
        id="sweep.start",
        title="Sweep",
        help="Measure throughput and latency at several concurrency levels.",
        risk=Risk.LOAD,
        prepare=sweep.prepare,
        keys=("s",),
        contexts=("server",),
    ),
    Command(
        id="fleet.check",
        title="Check several servers",
        help="Check the selected servers one after another.",
        risk=Risk.LOAD,
        prepare=fleet.prepare_check,
        contexts=("fleet",),
        asks=True,
    ),
    Command(
        id="fleet.sweep",
        title="Sweep several servers",
        help="Sweep the selected servers one after another.",
        risk=Risk.LOAD,
        prepare=fleet.prepare_sweep,
        contexts=("fleet",),
        asks=True,
    ),
    Command(
        id="fleet.stop",
        title="Stop several servers",
        help="End the selected servers one after another.",
        risk=Risk.DESTRUCTIVE,
        prepare=fleet.prepare_stop,
        contexts=("fleet",),
    ),
    Command(
        id="sweep.stop",
        title="Stop the sweep",
        help="Stop at once; what was measured is kept.",
        risk=Risk.READ,
        prepare=sweep.prepare_stop,
        keys=("escape",),
        contexts=("sweep",),
    ),
    Command(
        id="tune.start",
        title="Tune a server",
        help="Restart a server with other settings, measure each, find the best, and put the first one back.",
        risk=Risk.DESTRUCTIVE,
        prepare=tuning.prepare,
        keys=("t",),
        contexts=("server",),
    ),
    Command(
        id="tune.resume",
        title="Resume an experiment",
        help="Go on with an experiment that a crash or a lost link cut off.",
        risk=Risk.DESTRUCTIVE,
        prepare=tuning.prepare_resume,
    ),
    Command(
        id="tune.restore",
        title="Put the first server back",
        help="End an experiment that was cut off: the server that ran before it is started again.",
        risk=Risk.DESTRUCTIVE,
        prepare=tuning.prepare_restore,
    ),
    Command(
        id="tune.stop",
        title="Stop the experiment",
        help="End the experiment; the first server is put back and what was measured is kept.",
        risk=Risk.READ,
        prepare=tuning.prepare_stop,
        contexts=("tune",),
    ),
    Command(
        id="ab.start",
        title="Compare with other settings",
        help="A server as it runs against the same with other settings, in alternating blocks; the first one stays.",
        risk=Risk.DESTRUCTIVE,
        prepare=ab.prepare,
        contexts=("server",),
    ),
)

_BY_ID = {command.id: command for command in COMMANDS}


def command(command_id: str) -> Command:
    """The command of that id. Raises UsageError with the known ids."""
    if command_id not in _BY_ID:
        raise UsageError(f"unknown command {command_id!r}", hint=f"known: {', '.join(_BY_ID)}")
    return _BY_ID[command_id]

"""The process that is the simulated host; its arguments: ROOT FACTOR (running | empty) PORT FLAGS...

It makes the sandbox, serves SSH, prints one line of JSON when ready, and lives until its standard input ends: that is,
until whoever started it closes the pipe or dies. Then every process of the sandbox is killed and the folder removed.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tokpit.sim import machine, owner, sandbox, story
from tokpit.sim.sshd import SshServer

PR_SET_CHILD_SUBREAPER = 36


class Machine:
    """The host's life from the sandbox's first folder to its last."""

    def __init__(self, root: Path, factor: float) -> None:
        self.root = root
        self.factor = factor
        self.children: set[int] = set()

    async def run(self, running: Sequence[str] | None) -> None:
        """Serve until standard input ends; `running`: port and flags of the server that already runs, if one does."""
        sandbox.build(self.root)
        bond = await asyncio.start_unix_server(self._bonded, str(self.root / owner.SOCKET))
        ssh = SshServer(self.root, self.children)
        await ssh.start()
        # As late as can be: clients take the host's clock to be right when they connect.
        sandbox.start_clock(self.root, self.factor)
        keeper = asyncio.create_task(self._keep())
        if running is not None:
            await self._found_running(*running)
        sys.stdout.write(json.dumps({"port": ssh.port, "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
        await _end_of_input()
        keeper.cancel()
        bond.close()

    async def _bonded(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # an engine holds this open for as long as it lives
        writer.close()

    async def _found_running(self, port: str, *flags: str) -> None:
        """Start the server that somebody else launched two hours ago, and wait until it answers."""
        python = self.root / "venv" / "bin" / "python"
        log = self.root / "logs" / "sglang-27b.log"
        command = (
            str(python), "-m", "sglang.launch_server", "--model-path", story.MODEL_PATH,
            "--host", "127.0.0.1", "--port", port, *flags,
        )  # fmt: skip
        extra = {"TOKPIT_SIM_READY": "1", "TOKPIT_SIM_TRAFFIC": "1"}
        with log.open("ab") as out:
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**sandbox.environment(self.root), **extra},
                cwd=self.root / "home",
                start_new_session=True,
            )
        self.children.add(child.pid)
        self._watch = asyncio.create_task(self._reap(child))
        for _ in range(400):
            if child.returncode is not None or b"ready to roll" in log.read_bytes():
                break
            await asyncio.sleep(0.025)

    async def _reap(self, child: asyncio.subprocess.Process) -> None:
        await child.wait()
        self.children.discard(child.pid)

    async def _keep(self) -> None:
        """Reap what sessions left behind, forget dead servers, and keep the memory figures true."""
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        before: set[int] = set()
        while True:
            # Only what was there a round ago: a child just started may not be in `children` yet.
            orphans = _child_pids() - self.children
            _reap(orphans & before)
            before = orphans
            for link in (self.root / "proc").iterdir():
                if link.name.isdigit() and not machine.alive(int(link.name)):
                    link.unlink(missing_ok=True)
                    (self.root / "gpu" / f"{link.name}.json").unlink(missing_ok=True)
                    machine.write_meminfo(self.root)
            await asyncio.sleep(0.2)


def _reap(pids: set[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _child_pids() -> set[int]:
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found.update(map(int, path.read_text(encoding="ascii").split()))
    return found


async def _end_of_input() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    ended = asyncio.create_task(reader.read())
    told = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    stopped = asyncio.create_task(told.wait())
    await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


def main() -> int:
    """See the module docstring."""
    argv = sys.argv[1:]
    root, factor = Path(argv[0]), float(argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(Machine(root, factor).run(argv[3:] if argv[2] == "running" else None))
    finally:
        owner.clean(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())

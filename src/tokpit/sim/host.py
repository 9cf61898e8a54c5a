"""The simulated GPU host: `async with SimHost(clock_factor=30.0) as sim:` gives `sim.spec`, reached over real SSH.

Scheme. A child process (`tokpit.sim.server`) serves SSH on loopback and runs the scripts it gets under the real
/bin/sh, inside a private folder whose `bin/` comes first in PATH (nvidia-smi) and whose `venv/` is a genuine virtual
environment with a package `sglang`: the simulated engine. A launch is therefore a real process with a real command
line, log, port and process group, and the rest of tokpit needs no special case. Three things are not the machine's own:
`nvidia-smi`; the host's memory and its limits (see `tokpit.sim.sandbox.view`); and the process listing, which reads
ROOT/proc (environment variable TOKPIT_PROC) and so shows the sandbox's servers and no others: nothing outside the
sandbox can be stopped by mistake from a demonstration. Everything else, such as processor load, is the real machine's.

Ends. The child lives as long as the pipe to its standard input: when the owner closes it or dies in whatever way, all
processes of the sandbox are killed (found by their environment) and the folder is removed. Engines also hold a socket
to the child and end at once when it goes. Linux only, since the process listing needs /proc.

Time. All durations of the engine are divided by the clock factor; its log runs on the simulated clock. Above factor 1 a
streamed chunk may carry several decode steps (see `tokpit.sim.serving`).
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tokpit.errors import ConnectFailed
from tokpit.sim import owner, story
from tokpit.transport.base import HostSpec

START_S = 30.0
STOP_S = 15.0
NAME = "demo"


class SimHost:
    """One simulated host; a context manager of both kinds. Raises ConnectFailed if it does not come up.

    `clock_factor`: simulated seconds per real second. `running`: begin with one server that somebody else launched two
    hours ago, with users of its own. `port`: that server's port; 0 takes a free one. `flags`: its flags after model,
    host and port.
    """

    def __init__(
        self,
        clock_factor: float = 30.0,
        *,
        running: bool = False,
        name: str = NAME,
        port: int = 0,
        flags: Sequence[str] = story.FLAGS,
    ) -> None:
        self.clock_factor = clock_factor
        self.running = running
        self.name = name
        self.root = Path()
        self.engine_port = port
        self.flags = tuple(flags)
        self.pid = 0
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def spec(self) -> HostSpec:
        """How tokpit reaches it; the label is shown beside the name wherever the host appears."""
        return HostSpec(
            name=self.name,
            address="127.0.0.1",
            user="sim",
            port=self._port,
            identity_files=(str(self.root / "ssh" / "id_ed25519"),),
            known_hosts=str(self.root / "ssh" / "known_hosts"),
            label=f"SIMULATED ×{self.clock_factor:g}",
            clock_factor=self.clock_factor,
            programs={"sglang": self.venv},
            group="demo",
        )

    @property
    def venv(self) -> str:
        """Folder of the environment with the simulated SGLang."""
        return str(self.root / "venv")

    @property
    def model_path(self) -> str:
        """Path of the model on the host."""
        return story.MODEL_PATH

    @property
    def folder(self) -> Path:
        """The host's private folder, which is removed when it ends."""
        return self.root

    @property
    def program(self) -> tuple[str, ...]:
        """The words that start the engine."""
        return (f"{self.venv}/bin/python", "-m", "sglang.launch_server")

    @property
    def log_path(self) -> str:
        """Log of the server that was found running."""
        return str(self.root / "logs" / "sglang-27b.log")

    def inventory_toml(self) -> str:
        """The host as an inventory file."""
        spec = self.spec
        rows = {
            "address": spec.address,
            "user": spec.user,
            "port": spec.port,
            "identity_files": list(spec.identity_files),
            "known_hosts": spec.known_hosts,
            "label": spec.label,
            "clock_factor": spec.clock_factor,
            "group": spec.group,
        }
        # A JSON string, number or list of strings is also TOML.
        body = "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in rows.items())
        programs = "".join(f"{key} = {json.dumps(value)}\n" for key, value in spec.programs.items())
        return f"[hosts.{json.dumps(self.name)}]\n{body}\n[hosts.{json.dumps(self.name)}.programs]\n{programs}"

    def start(self) -> SimHost:
        """Bring the host up."""
        self.root = Path(tempfile.mkdtemp(prefix="tokpit-sim-")).resolve()
        self.engine_port = self.engine_port or free_port()
        words = [
            str(self.root),
            str(self.clock_factor),
            "running" if self.running else "empty",
            str(self.engine_port),
            *self.flags,
        ]
        source = str(Path(__file__).resolve().parents[2])
        code = f"import sys; sys.path.insert(0, {source!r}); from tokpit.sim.server import main; sys.exit(main())"
        with tempfile.TemporaryFile() as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd="/",
                start_new_session=True,
            )
            assert self._process.stdout is not None
            patience = threading.Timer(START_S, self._process.kill)
            patience.start()
            line = self._process.stdout.readline()
            patience.cancel()
            if not line:
                errors.seek(0)
                said = errors.read().decode("utf-8", "replace").strip().splitlines()
                self.stop()
                raise ConnectFailed(
                    f"The simulated host did not start: {said[-1] if said else 'it said nothing'}.",
                    hint="It needs Linux with /proc, /bin/sh and a writable temporary folder.",
                )
        ready = json.loads(line)
        self._port, self.pid = ready["port"], ready["pid"]
        return self

    def stop(self) -> None:
        """End the host and everything in it."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        if self.root.exists():
            owner.clean(self.root)

    def __enter__(self) -> SimHost:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> SimHost:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

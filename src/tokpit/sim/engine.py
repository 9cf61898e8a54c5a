"""The simulated SGLang server process: what `python -m sglang.launch_server` runs inside the sandbox.

Standard library only, so that it starts at once. It is a real process: its command line, log descriptors, listening
port and worker processes are what any tool sees. Exit codes: 2 for a bad flag, 1 for bad arguments or a busy port; a
failed scheduler ends the process by SIGKILL, as SGLang's own clean-up does.

Environment: TOKPIT_SIM_READY=1 begins as a server that was started two hours ago; TOKPIT_SIM_TRAFFIC=1 adds own users.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from tokpit.sim import args as flags
from tokpit.sim import httpd, machine, story
from tokpit.sim.api import Api
from tokpit.sim.clock import SimClock
from tokpit.sim.journal import Journal
from tokpit.sim.owner import watch_owner
from tokpit.sim.plan import GIB, StartError, check_args, check_graph_memory, check_host_memory, make_plan
from tokpit.sim.serving import Serving
from tokpit.sim.startup import Moment, moments
from tokpit.sim.traffic import background
from tokpit.sim.workers import Workers

AGE_S = 7200.0
"""How long ago a server that is found running was started."""


class Engine:
    """One server from its start to its end."""

    def __init__(self, root: Path, args: Namespace, clock: SimClock) -> None:
        self.root = root
        self.args = args
        self.clock = clock
        self.journal = Journal(clock)
        self.workers = Workers(root)
        self.free_gib = machine.free_gpu_mib(root) / 1024
        self.mem_gib = 0.0
        self.host_bytes = 0
        self.serving: Serving | None = None
        self.api: Api | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._published: dict[str, object] = {}
        self._busy_seen = 0.0
        self._busy_at = clock.now()

    async def run(self) -> int:
        """Start, serve until told to stop; the exit status."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        self.workers.register(os.getpid())
        tasks = [asyncio.create_task(watch_owner(self.root)), asyncio.create_task(self._publish_for_ever())]
        starting = asyncio.create_task(self._start(os.environ.get("TOKPIT_SIM_READY") == "1"))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                status = starting.result()
                if status is not None:
                    return status
                await stop.wait()
            else:
                starting.cancel()
            await self._drain()
            return 0
        finally:
            for task in (*tasks, *self._tasks, stopping, starting):
                task.cancel()
            self.workers.end()
            with suppress(OSError):
                (self.root / "gpu" / f"{os.getpid()}.json").unlink()
                machine.write_meminfo(self.root)

    async def _start(self, already: bool) -> int | None:
        """Go through the start; None once the server serves, else the exit status."""
        begin = self.clock.now() - (AGE_S if already else machine.own_age_s() * self.clock.factor)
        try:
            plan = make_plan(self.args, self.free_gib)
        except StartError as error:
            return await self._fail(error, begin)
        self.journal.plan = plan
        for moment in moments(self.args, plan, self.free_gib):
            due = begin + moment.at_s
            if not already:
                await asyncio.sleep(self.clock.real_delay(due))
            try:
                status = await self._moment(moment, due)
            except StartError as error:
                return await self._fail(error, begin)
            if status is not None:
                return status
        return None

    async def _moment(self, moment: Moment, due: float) -> int | None:
        if moment.hold_gib is not None:
            self.mem_gib = moment.hold_gib
        text = moment.text.replace("@PID@", str(os.getpid()))
        text = text.replace("@ADDRESS@", f"{self.args.host}:{self.args.port}")
        if moment.action == "bind":
            self.journal.line(text, due)
            return await self._bind()
        if moment.bare:
            done = "100%" in text
            self.journal.bare(text, "\n" if done else "\r")
        elif text:
            self.journal.line(text, due)
        plan = self.journal.plan
        assert plan is not None
        match moment.action:
            case "load":
                self.workers.start("sglang::scheduler", "sglang::detokenizer")
            case "capture":
                check_graph_memory(plan, self.free_gib)
            case "hicache":
                check_host_memory(moment.gb, machine.available_bytes(self.root))
                self.host_bytes += int(moment.gb * 1e9)
                self.publish()
            case "warmup":
                self._warm(due)
            case "ready":
                assert self.api is not None
                self.api.ready = True
                self.publish()
                if os.environ.get("TOKPIT_SIM_TRAFFIC") == "1":
                    assert self.serving is not None
                    self._tasks.add(asyncio.create_task(background(self.serving)))
        return None

    def _warm(self, due: float) -> None:
        plan = self.journal.plan
        assert plan is not None
        self.journal.line(
            "Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, full token usage: 0.00, mamba usage: 0.00, "
            "#running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 0.00",
            due + 0.1,
        )

    async def _bind(self) -> int | None:
        plan = self.journal.plan
        assert plan is not None
        self.serving = Serving(plan, self.clock, self.journal)
        self.api = api = Api(self.args, self.serving, self.journal)

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await httpd.serve(reader, writer, api.handle, api.log)

        try:
            self._server = await asyncio.start_server(
                connected, self.args.host, self.args.port, limit=1 << 20, backlog=2048
            )
        except OSError as error:
            self.journal.line(
                f"ERROR:    [Errno {error.errno}] error while attempting to bind on address "
                f"('{self.args.host}', {self.args.port}): {os.strerror(error.errno or 0).lower()}"
            )
            self.journal.line("INFO:     Waiting for application shutdown.")
            self.journal.line("INFO:     Application shutdown complete.")
            return 1
        self._tasks.add(asyncio.create_task(self.serving.run()))
        return None

    async def _fail(self, error: StartError, begin: float) -> int:
        after_s = {"args": 6.0, "dist": 13.8, "load": 21.0, "pool": 49.0}.get(error.stage)
        if error.stage != "args":
            await self._early(error.stage, begin)
        if after_s is not None:
            await asyncio.sleep(self.clock.real_delay(begin + after_s))
        elif error.stage == "capture":
            await asyncio.sleep(3.0 / self.clock.factor)
        self.journal.failure(error)
        if error.stage == "args":
            return 1
        self.workers.end()
        os.kill(os.getpid(), signal.SIGKILL)
        return 1

    async def _early(self, stage: str, begin: float) -> None:
        """The first lines of a start that fails before there is a plan."""
        if self.journal.plan is not None:
            return
        from tokpit.sim.startup import server_args_text

        rows = [(7.5, server_args_text(self.args)), (13.0, "Init torch distributed begin.")]
        if stage != "dist":
            free = self.free_gib - 0.7
            rows += [
                (13.6, "Init torch distributed ends. elapsed=0.62 s, mem usage=0.09 GB"),
                (14.4, f"Load weight begin. avail mem={free:.2f} GB"),
            ]
        if stage == "pool":
            left = self.free_gib - 0.7 - story.WEIGHTS_GIB
            rows.append(
                (
                    48.6,
                    f"Load weight end. elapsed=34.21 s, type={story.MODEL_CLASS}, avail mem={left:.2f} GB, "
                    f"mem usage={story.WEIGHTS_GIB:.2f} GB.",
                )
            )
        for at_s, text in rows:
            await asyncio.sleep(self.clock.real_delay(begin + at_s))
            self.journal.line(text, begin + at_s)

    async def _drain(self) -> None:
        self.journal.line("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        serving = self.serving
        if serving is not None:
            serving.draining = True
            while True:
                self.journal.line(
                    f"Gracefully exiting... Remaining number of requests {serving.unfinished}. "
                    "Remaining requests remaining_rids=[]."
                )
                if not serving.unfinished:
                    break
                await asyncio.sleep(5.0 / self.clock.factor)
        if self._server is not None:
            self._server.close()
        # Unpinning a large host pool is slow.
        await asyncio.sleep(self.host_bytes / 1e11 / self.clock.factor)

    def publish(self) -> None:
        """Tell the machine what this server holds and does, if that has changed."""
        now = self.clock.now()
        util, running = 0.0, 0
        if self.serving is not None:
            self.serving.batch.advance(now)
            busy = self.serving.batch.busy_s
            util = 100 * min(1.0, (busy - self._busy_seen) / max(1e-3, now - self._busy_at))
            self._busy_seen, running = busy, len(self.serving.batch.running)
        self._busy_at = now
        state: dict[str, object] = {
            "worker_pid": self.workers.main_pid or os.getpid(),
            "mem_mib": round(self.mem_gib * GIB / 2**20, 1),
            "host_bytes": self.host_bytes,
            "util": round(util),
            "running": running,
        }
        if state != self._published:
            self._published = state
            machine.hold(self.root, os.getpid(), state)

    async def _publish_for_ever(self) -> None:
        while True:
            self.publish()
            await asyncio.sleep(max(0.1, 0.5 / self.clock.factor))


def main(argv: list[str], prog: str = "launch_server.py") -> int:
    """Run the server of one command line in the sandbox whose interpreter this is."""
    root = Path(os.environ.get("TOKPIT_SIM_ROOT") or Path(sys.prefix).parent)
    if "TOKPIT_SIM_ROOT" not in os.environ:
        # The owner finds its processes by this variable: a process without it would outlive the demonstration.
        words = Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        os.execve(sys.executable, words, {**os.environ, "TOKPIT_SIM_ROOT": str(root)})  # noqa: S606
    clock = machine.read_clock(root)
    args = flags.parse(argv, prog)
    path = Path(args.model_path)
    if path.is_relative_to("/models"):
        path = root / "models" / path.relative_to("/models")
    if path.is_absolute() and not (path / "config.json").exists():
        sys.stderr.write(
            f"OSError: {args.model_path} does not appear to have a file named config.json.\n",
        )
        return 1
    try:
        check_args(args)
    except StartError as error:
        Journal(clock).failure(error)
        return 1
    return asyncio.run(Engine(root, args, clock).run())

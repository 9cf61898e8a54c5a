"""A level whose load several processes make: begun at one moment, watched together, put together request by request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from . import pipes
from .clock import Clock, now_ns
from .events import RequestFinished
from .plan import Plan
from .records import HEAD, Part, merge, unpack
from .share import Share, shares
from .stream import Exchange
from .telling import Sampler

PROGRESS_S = 0.25
HEADSTART_S = 0.05
"""From the order to begin until the begin: every process has read the order by then."""
CLOSE_S = 3.0
"""How long a process has for its end before it is killed."""


class Worker:
    """One process of a crew, as its parent sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._failed = ""
        self.alive = True

    @classmethod
    async def start(cls) -> Worker:
        """Starts one; raises OSError."""
        # A session of its own: Ctrl-C in the terminal goes to the parent alone, which ends the level in order.
        process = await asyncio.create_subprocess_exec(
            *pipes.command("worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self._failed:
            return f"failed ({self._failed})"
        status = self._process.returncode
        return f"was ended by signal {-status}" if status is not None and status < 0 else "ended by itself"

    async def send(self, **command: Any) -> None:
        """Gives it a command; does nothing when it is gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps(command, separators=(",", ":")).encode() + b"\n")
            await self._process.stdin.drain()

    async def next(self) -> tuple[dict[str, Any], bytes] | None:
        """Its next message; None when it is gone."""
        out = self._process.stdout
        assert out is not None
        try:
            text, raw = HEAD.unpack(await out.readexactly(HEAD.size))
            data: dict[str, Any] = json.loads(await out.readexactly(text))
            numbers = await out.readexactly(raw)
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            self.alive = False
            await self.close()
            return None
        if "failed" in data:
            self._failed = str(data["failed"])
        return data, numbers

    async def close(self, *, wait_s: float = CLOSE_S) -> None:
        """Ends it; kills it when it has not ended in `wait_s`."""
        self.alive = False
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.stdout.read(), wait_s)
            await asyncio.wait_for(self._process.wait(), wait_s)
        except asyncio.TimeoutError:
            self.kill()
            await self._process.wait()
        except asyncio.CancelledError:
            self.kill()
            raise

    def kill(self) -> None:
        """Ends it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


class Crew:
    """The processes of a sweep: started when a level needs them, kept for the next, ended with `close`."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.chunks_per_stream_s = 0.0
        """Chunks/s of one stream, as the level before had them; 0: nothing ran yet."""
        self.chunks_per_request = 0.0

    @property
    def cores(self) -> int:
        """Cores that this process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def expected(self, concurrency: int | None, rate: float | None) -> float:
        """Chunks/s that a level will bring, at most; 0: not known."""
        if rate is not None:
            return rate * self.chunks_per_request
        return (concurrency or 1) * self.chunks_per_stream_s

    def learn(self, exchanges: list[Exchange]) -> None:
        """Keeps what the good requests of a level say about the next one."""
        good = [x for x in exchanges if x.outcome == "ok" and len(x.stamps) > 1]
        busy_s = sum(x.stamps[-1] - x.stamps[0] for x in good) / 1e9
        chunks = sum(len(x.stamps) for x in good)
        if busy_s > 0:
            self.chunks_per_stream_s = (chunks - len(good)) / busy_s
            self.chunks_per_request = chunks / len(good)

    async def gather(self, count: int) -> list[Worker]:
        """`count` processes that run; raises OSError where one cannot be started."""
        self.workers = [worker for worker in self.workers if worker.alive]
        while len(self.workers) < count:
            self.workers.append(await Worker.start())
        return self.workers[:count]

    async def close(self) -> None:
        """Ends every process; at once where the caller is cancelled meanwhile."""
        workers, self.workers = self.workers, []
        await asyncio.gather(*(worker.close() for worker in workers))


class CrewRun:
    """Runs one level with a crew; afterwards its attributes are the raw material of the summary."""

    def __init__(
        self,
        crew: Crew,
        processes: int,
        plan: Plan,
        clock: Clock,
        *,
        model: str,
        nonce: str,
        level: int,
        stop: asyncio.Event,
        concurrency: int | None = None,
        rate: float | None = None,
        on_progress: Callable[[CrewRun], None] | None = None,
        on_request: Callable[[RequestFinished], None] | None = None,
    ) -> None:
        self.plan, self.clock, self.level = plan, clock, level
        self.concurrency, self.rate = concurrency, rate
        self.total = plan.requests_at(concurrency) if concurrency is not None else plan.requests
        self.shares = shares(plan, processes, concurrency, self.total)
        self.exchanges: list[Exchange] = []
        self.t_begin = self.t_end = 0
        self.cpu_s = self.busiest_s = 0.0
        self.lag_s = array("d")
        self.cut = self.dead = ""
        self.held_back = 0
        self.unique_prompt_share: float | None = None
        self._crew, self._model, self._nonce, self._stop = crew, model, nonce, stop
        self._on_progress, self._on_request = on_progress, on_request
        self._figures: dict[int, dict[str, float]] = {}
        self._lost: list[str] = []
        self._workers: list[Worker] = []
        self._sampler = Sampler()
        self._trail: deque[tuple[float, float]] = deque(maxlen=20)

    @property
    def processes(self) -> int:
        """Processes that the load was divided among."""
        return len(self.shares)

    async def run(self) -> None:
        """Runs the level to its end, or to the stop; raises OSError where a process cannot be started.

        A process that is gone takes its share of the requests with it: `cut` says so, the others go on.
        """
        self._workers = await self._crew.gather(len(self.shares))
        pairs = list(zip(self._workers, self.shares))
        ready = await asyncio.gather(*(self._prepare(worker, share) for worker, share in pairs))
        self.t_begin = now_ns() + int(HEADSTART_S * 1e9)
        pairs = [pair for pair, fine in zip(pairs, ready) if fine]
        await asyncio.gather(*(worker.send(go=self.t_begin) for worker, _ in pairs))
        helpers = [asyncio.ensure_future(job()) for job in (self._obey, self._tick)]
        try:
            parts = await asyncio.gather(*(self._collect(worker, share) for worker, share in pairs))
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, self._merge, [part for part in parts if part])
        if self._on_progress:
            self._on_progress(self)

    # -- what a progress line needs

    @property
    def done(self) -> int:
        """Requests that ended, however."""
        return int(self._sum("done"))

    @property
    def ok(self) -> int:
        """Those that ended well."""
        return int(self._sum("ok"))

    @property
    def failed(self) -> int:
        """Those that failed."""
        return int(self._sum("failed"))

    @property
    def running(self) -> int:
        """Requests in flight."""
        return int(self._sum("running"))

    def tokens_so_far(self) -> float:
        """Output tokens until now."""
        return self._sum("tokens")

    def recent_tps(self) -> float:
        """Output tokens/s over the last five real seconds of progress."""
        now, tokens = self.elapsed_s(), self.tokens_so_far()
        self._trail.append((now, tokens))
        then, before = self._trail[0] if len(self._trail) > 1 else (0.0, 0.0)
        return max(0.0, (tokens - before) / (now - then)) if now > then else 0.0

    def elapsed_s(self) -> float:
        """Since the level began, on the host's clock."""
        return max(0.0, self.clock.host_s((self.t_end or now_ns()) - self.t_begin)) if self.t_begin else 0.0

    def _sum(self, name: str) -> float:
        return sum(figures.get(name, 0) for figures in self._figures.values())

    # -- the processes

    async def _prepare(self, worker: Worker, share: Share) -> bool:
        asked = {"level": self.level, "rate": self.rate, "model": self._model, "nonce": self._nonce}
        await worker.send(level={**asked, "plan": self.plan.to_dict(), "share": asdict(share)})
        while (message := await worker.next()) is not None:
            if "ready" in message[0]:
                return True
        self._lose(worker, share)
        return False

    async def _collect(self, worker: Worker, share: Share) -> Part | None:
        while (message := await worker.next()) is not None:
            data, raw = message
            if "progress" in data:
                self._figures[share.number] = data["progress"]
            elif "request" in data:
                values = {name: value for name, value in data["request"].items() if name != "event"}
                if self._on_request and self._sampler.wanted(values["outcome"]):
                    self._on_request(RequestFinished(**values))
            elif "records" in data:
                part = unpack(data["records"], raw)
                if part.cut:
                    await self._halt()
                return part
        self._figures.pop(share.number, None)
        self._lose(worker, share)
        return None

    def _lose(self, worker: Worker, share: Share) -> None:
        what = f"{share.concurrency} of the {self.concurrency} slots"
        if share.concurrency is None:
            what = f"1 of {share.of} of the arrivals"
        self._lost.append(f"worker {share.number + 1} of {share.of} {worker.end}: {what} are missing from the figures")

    async def _obey(self) -> None:
        await self._stop.wait()
        await self._halt()

    async def _halt(self) -> None:
        await asyncio.gather(*(worker.send(stop=True) for worker in self._workers if worker.alive))

    async def _tick(self) -> None:
        while self._on_progress:
            await asyncio.sleep(PROGRESS_S)
            self._on_progress(self)

    def _merge(self, parts: list[Part]) -> None:
        whole = merge(parts)
        self.exchanges, self.lag_s = whole.exchanges, whole.lag_s
        self.t_end = whole.t_end or now_ns()
        self.cpu_s, self.busiest_s = whole.cpu_s, whole.busiest_s
        self.held_back = whole.held_back
        self.clock.steps += whole.clock_steps
        self.unique_prompt_share = len(whole.prompts) / whole.built if whole.built else None
        self.dead = whole.dead
        own = [part.cut for part in parts if part.cut]
        self.cut = next((cut for cut in own if cut != "stopped"), "") or "; ".join(self._lost) or (own or [""])[0]

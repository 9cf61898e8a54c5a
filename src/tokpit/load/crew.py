"""A level whose load several processes make: begun at one moment, watched together, put together request by request."""

from __future__ import annotations

import asyncio
import os
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Optional

from .clock import Clock, now_ns
from .events import RequestFinished
from .member import LOST, Member, Worker, shift
from .plan import Plan
from .records import Part, merge, unpack
from .results import Check
from .share import Share, processes_for, shares
from .stream import Exchange
from .telling import Sampler

PROGRESS_S = 0.25
HEADSTART_S = 0.05
"""From the order to begin until the begin: every process has read the order by then."""


class Crew:
    """The processes of a sweep: started when a level needs them, kept for the next, ended with `close`."""

    elsewhere = False
    """Whether its members run on other machines. Then every level is theirs, and one that is lost ends no sweep."""
    headstart_s = HEADSTART_S

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

    def processes(self, plan: Plan, concurrency: Optional[int], rate: Optional[float]) -> int:
        """Among how many a level is divided."""
        return processes_for(plan, concurrency, self.expected(concurrency, rate), self.cores)

    async def before_level(self, members: Sequence[Member]) -> None:
        """Called when all are ready: members of other machines have their clocks compared."""

    async def after_level(self, members: Sequence[Member]) -> None:
        """Called when all have ended, before their records are put together."""

    def checks(self) -> tuple[Check, ...]:
        """What is to be told of the members' clocks and losses, of the level that ended last."""
        return ()

    async def gather(self, count: int) -> Sequence[Member]:
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
        self._slots, self._rate = concurrency, rate
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
        self._lost_midway: list[str] = []
        self._workers: Sequence[Member] = []
        self._sampler = Sampler()
        self._ended = False
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
        pairs = [pair for pair, fine in zip(pairs, ready) if fine]
        await self._crew.before_level([worker for worker, _ in pairs])
        self.t_begin = now_ns() + int(self._crew.headstart_s * 1e9)
        await asyncio.gather(*(worker.send(go=self.t_begin + worker.offset_ns) for worker, _ in pairs))
        helpers = [asyncio.ensure_future(job()) for job in (self._obey, self._tick)]
        try:
            parts = await asyncio.gather(*(self._collect(worker, share) for worker, share in pairs))
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        await self._crew.after_level([worker for worker, _ in pairs])
        kept = [(part, worker.offset_ns) for part, (worker, _) in zip(parts, pairs) if part]
        await asyncio.get_running_loop().run_in_executor(None, self._merge, kept)
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

    def chunks_so_far(self) -> int:
        """Pieces of text until now."""
        return int(self._sum("chunks"))

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

    async def _prepare(self, worker: Member, share: Share) -> bool:
        asked = {"level": self.level, "rate": self._rate, "model": self._model, "nonce": self._nonce}
        plan = {**self.plan.to_dict(), **({"url": worker.url} if worker.url else {})}
        await worker.send(level={**asked, "plan": plan, "share": asdict(share)})
        while (message := await worker.next()) is not None:
            if "ready" in message[0]:
                return True
        self._lose(worker, share)
        return False

    async def _collect(self, worker: Member, share: Share) -> Part | None:
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

    def _lose(self, worker: Member, share: Share) -> None:
        what = f"{share.concurrency} of the {self._slots} slots"
        if share.concurrency is None:
            what = f"1 of {share.of} of the arrivals"
        where = f" on {worker.place}" if worker.place else ""
        name = f"worker {share.number + 1} of {share.of}{where}"
        self._lost.append(f"{name} {worker.end}: {what} are missing from the figures")
        if self.t_begin:
            self._lost_midway.append(self._lost[-1])
        if self._crew.elsewhere:  # the level is that of the others
            if self.concurrency is not None:
                self.concurrency -= share.concurrency or 0
            elif self.rate is not None and self._rate is not None:
                self.rate -= self._rate / share.of

    async def _obey(self) -> None:
        await self._stop.wait()
        await self._halt()

    async def _halt(self) -> None:
        await asyncio.gather(*(worker.send(stop=True) for worker in self._workers if worker.alive))

    async def _tick(self) -> None:
        while self._on_progress:
            await asyncio.sleep(PROGRESS_S)
            self._on_progress(self)

    @property
    def goes_on(self) -> bool:
        """Whether nothing is wrong but that members are gone, whose work the others can do in the next level."""
        return self._crew.elsewhere and bool(self._lost) and not self._ended

    def checks(self) -> tuple[Check, ...]:
        """What is to be told of the members, of a level that has ended."""
        if not (self._crew.elsewhere and self._lost_midway):
            return self._crew.checks()
        sentence = f"{'; '.join(self._lost_midway)}; until then the server had that load as well"
        distrust = ("output_tps", "steady_tps", "ttft_s", "tpot_s", "e2e_s")
        return (*self._crew.checks(), Check(LOST, False, sentence, distrust))

    def _merge(self, kept: list[tuple[Part, int]]) -> None:
        parts = [shift(part, offset_ns) for part, offset_ns in kept]
        whole = merge(parts)
        self.exchanges, self.lag_s = whole.exchanges, whole.lag_s
        self.t_end = whole.t_end or now_ns()
        self.cpu_s, self.busiest_s = whole.cpu_s, whole.busiest_s
        self.held_back = whole.held_back
        self.clock.steps += whole.clock_steps
        self.unique_prompt_share = len(whole.prompts) / whole.built if whole.built else None
        self.dead = whole.dead
        own = [part.cut for part in parts if part.cut]
        self._ended = bool(own)
        self.cut = next((cut for cut in own if cut != "stopped"), "") or "; ".join(self._lost) or (own or [""])[0]

"""One level: requests kept in flight (closed loop) or started on a schedule (open loop), watched until they end."""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

from .clock import Clock, now_ns
from .plan import Plan
from .prompts import Bodies, PromptSource
from .request import Client
from .share import Share
from .stream import Exchange
from .watch import overdue, watch_period_s

DEAD_AFTER = 5
"""Failed connections in a row that end a sweep."""
PROGRESS_S = 0.25
LAG_PERIOD_S = 0.02
BACK_OFF_S = 0.25
"""A level by time waits this long (host clock) after a refusal, or as long as Retry-After says."""


class LevelRun:
    """Runs one level; afterwards its attributes are the raw material of the summary.

    Give `concurrency` for a closed loop or `rate` (requests/s on the host's clock) for an open one.
    """

    def __init__(
        self,
        plan: Plan,
        source: PromptSource,
        client: Client,
        clock: Clock,
        *,
        level: int,
        stop: asyncio.Event,
        concurrency: int | None = None,
        rate: float | None = None,
        share: Share | None = None,
        on_progress: Callable[[LevelRun], None] | None = None,
        on_request: Callable[[Exchange], None] | None = None,
    ) -> None:
        self.plan, self.clock, self.level = plan, clock, level
        self.concurrency, self.rate = concurrency, rate
        self.share = share or Share(concurrency=concurrency)
        self.total = plan.requests_at(concurrency) if concurrency is not None else plan.requests
        self.exchanges: list[Exchange] = []
        self.in_flight: set[Exchange] = set()
        self.t_begin = self.t_end = 0
        self.cpu_s = 0.0
        """CPU seconds of this process during the level."""
        self.lag_s = array("d")
        """How late the event loop was, real seconds, every 20 ms."""
        self.dead = ""
        """Why the server counts as gone; empty: it does not."""
        self.cut = ""
        """Why the level ended early; empty: it did not."""
        self.held_back = 0
        """Open loop: arrivals that waited because of `max_in_flight`."""
        self.ok = self.failed = 0
        self._source, self._client, self._stop = source, client, stop
        self._on_progress, self._on_request = on_progress, on_request
        self._halt = asyncio.Event()
        self._launched = self._connect_failures = self._done_tokens = self._done_chunks = self._late_chunks = 0
        self._deadline_ns = 0
        self.bodies = Bodies(source, level)
        self._ready = False
        self._trail: deque[tuple[float, float]] = deque(maxlen=20)

    def prepare(self) -> None:
        """Does what must not take time once the level has begun."""
        count = self.total if self.total is not None else max(4 * (self.concurrency or 16), 64)
        self.bodies.prebuild(self._conversation_at(position) for position in range(count))
        self._ready = True

    async def run(self, at_ns: int = 0) -> None:
        """Runs the level to its end, or to the stop; never raises for what the server does.

        It begins at `at_ns` (raw monotonic nanoseconds), the same moment for every part of a divided level; 0: now.
        """
        if not self._ready:
            self.prepare()
        self.clock.refresh()
        if at_ns:
            await asyncio.sleep(max(0, at_ns - now_ns()) / 1e9)
        cpu = time.process_time()
        self.t_begin = at_ns or now_ns()
        if self.plan.duration_s is not None:
            self._deadline_ns = self.t_begin + int(self.clock.real_s(self.plan.duration_s) * 1e9)
        helpers = [asyncio.ensure_future(job()) for job in (self._obey, self._watch, self._lag, self._tick)]
        for helper in helpers:
            helper.add_done_callback(self._helper_ended)
        try:
            if self.rate is not None:
                await self._open_loop(self.rate)
            else:
                slots = self.concurrency or 1
                await asyncio.gather(*(self._slot(place) for place in range(min(slots, self.total or slots))))
        finally:
            self.t_end = now_ns()
            self.cpu_s = time.process_time() - cpu
            await self._cancel_all()
            for helper in helpers:
                helper.cancel()
            ends = await asyncio.gather(*helpers, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end
        if self._on_progress:
            self._on_progress(self)

    @property
    def unique_prompt_share(self) -> float | None:
        """Different bodies / all of them; None before the first."""
        return self.bodies.unique_share

    @property
    def done(self) -> int:
        """Requests that ended, however."""
        return len(self.exchanges) - len(self.in_flight)

    @property
    def running(self) -> int:
        """Requests in flight."""
        return len(self.in_flight)

    @property
    def busiest_s(self) -> float:
        """CPU seconds of the busiest process: of this one."""
        return self.cpu_s

    @property
    def processes(self) -> int:
        """Processes that made this level's load."""
        return 1

    def elapsed_s(self) -> float:
        """Since the level began, on the host's clock."""
        return self.clock.host_s((self.t_end or now_ns()) - self.t_begin)

    def tokens_so_far(self) -> float:
        """Output tokens until now; those of running requests are estimated from their chunks."""
        per_chunk = self._done_tokens / self._done_chunks if self._done_chunks else 1.0
        return self._done_tokens + per_chunk * (self.chunks_so_far() - self._done_chunks)

    def chunks_so_far(self) -> int:
        """Pieces of text until now, of all requests."""
        return self._done_chunks + self._late_chunks + sum(len(x.stamps) for x in self.in_flight)

    def recent_tps(self) -> float:
        """Output tokens/s over the last five real seconds of progress."""
        now, tokens = self.elapsed_s(), self.tokens_so_far()
        self._trail.append((now, tokens))
        then, before = self._trail[0] if len(self._trail) > 1 else (0.0, 0.0)
        return max(0.0, (tokens - before) / (now - then)) if now > then else 0.0

    # -- closed and open loop

    async def _slot(self, place: int) -> None:
        if self.plan.stagger_s:
            # The slots of several processes take turns, so that all together keep the distance.
            due_s = self.plan.stagger_s * (place * self.share.of + self.share.number)
            if not await self._sleep_until(self.t_begin + int(self.clock.real_s(due_s) * 1e9)):
                return
        while self._may_start():
            await self._conversation(self._take())

    async def _open_loop(self, rate: float) -> None:
        draw = random.Random(f"{self.plan.seed}-{self.level}-arrivals")  # noqa: S311 # not for secrets
        due_s, arrival = 0.0, 0
        running: set[asyncio.Future[None]] = set()
        while self._may_start():
            due_ns = self.t_begin + int(self.clock.real_s(due_s) * 1e9)
            if self._deadline_ns and due_ns >= self._deadline_ns:
                break
            mine = arrival % self.share.step == self.share.first % self.share.step
            arrival += 1
            due_s += draw.expovariate(rate) if self.plan.arrival == "poisson" else 1 / rate
            if not mine:
                continue
            if not await self._sleep_until(due_ns):
                break
            if len(running) >= self.plan.max_in_flight:
                self.held_back += 1
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.ensure_future(self._conversation(self._take(), due_ns))
            running.add(task)
            task.add_done_callback(running.discard)
        if running:
            await asyncio.gather(*running)

    def _may_start(self) -> bool:
        if self._halt.is_set() or self._stop.is_set():
            return False
        if self._deadline_ns and now_ns() >= self._deadline_ns:
            return False
        return self.total is None or self._launched < self.total

    def _take(self) -> int:
        self._launched += 1
        return self._conversation_at(self._launched - 1)

    def _conversation_at(self, position: int) -> int:
        return self.share.first + position * self.share.step

    async def _conversation(self, index: int, due_ns: int = 0) -> None:
        messages: list[dict[str, Any]] | None = None
        for turn in range(self.plan.turns):
            if turn:
                if not self._may_start() or messages is None:
                    return
                follow_up = self._source.follow_up(index, turn)
                if follow_up is None:
                    return
                messages.append({"role": "user", "content": follow_up})
                self._launched += 1
                body = self._source.body(self.level, index, messages)
            else:
                if self.plan.turns > 1:
                    messages = self._source.opening(self.level, index)
                body = self.bodies.take(index)
            x = Exchange(len(self.exchanges), turn)
            x.t_due = due_ns if not turn else 0
            if self.plan.turns > 1:
                x.answer = []
            await self._one(x, body)
            if x.outcome != "ok" or messages is None:
                if x.outcome in ("429", "5xx", "4xx", "connect") and self._deadline_ns:
                    await self._back_off(x)
                return
            messages.append({"role": "assistant", "content": "".join(x.answer or ())})

    async def _one(self, x: Exchange, body: bytes) -> None:
        self.exchanges.append(x)
        self.in_flight.add(x)
        x.t_start = now_ns()
        x.task = asyncio.ensure_future(self._client.send(x, body))
        try:
            # Not `await x.task`: a cancellation of this slot would go into the request, which takes it for its end.
            await asyncio.wait([x.task])
        except asyncio.CancelledError:
            x.task.cancel()
            raise
        finally:
            self.in_flight.discard(x)
        if x.task.cancelled():
            x.outcome, x.detail, x.t_end = "cancelled", "stopped before it was sent", now_ns()
        elif x.task.exception() is not None:
            raise x.task.exception()
        x.task = None
        self._account(x)

    def _account(self, x: Exchange) -> None:
        if x.outcome == "ok":
            self.ok += 1
            self._done_tokens += x.tokens
            self._done_chunks += len(x.stamps)
        elif x.outcome != "cancelled":
            self.failed += 1
            self._late_chunks += len(x.stamps)
            if self.plan.stop_on_error and not self.cut:
                self.cut = f"stopped at the first error: {x.detail}"
                self._halt.set()
        else:
            self._late_chunks += len(x.stamps)
        if x.outcome in ("connect", "timeout.connect"):
            self._connect_failures += 1
            if self._connect_failures >= min(DEAD_AFTER, self.total or DEAD_AFTER) and not self.dead:
                self.dead = f"{self._connect_failures} connections in a row failed ({x.detail})"
                self.cut = self.cut or "the server does not take connections any more"
                self._halt.set()
        elif x.status:
            self._connect_failures = 0
        if self._on_request:
            self._on_request(x)

    def _helper_ended(self, helper: asyncio.Future[None]) -> None:
        if not helper.cancelled() and helper.exception() is not None:
            self._halt.set()  # without its watchdog a level could last for ever

    # -- helpers that run beside the requests

    async def _obey(self) -> None:
        stop, halt = asyncio.ensure_future(self._stop.wait()), asyncio.ensure_future(self._halt.wait())
        try:
            await asyncio.wait([stop, halt], return_when=asyncio.FIRST_COMPLETED)
            self.cut = self.cut or "stopped"
            self._halt.set()
            for x in list(self.in_flight):
                if x.task is not None:
                    x.task.cancel()
        finally:
            stop.cancel()
            halt.cancel()

    async def _watch(self) -> None:
        period_s = watch_period_s(self.plan.timeouts, self.clock)
        while True:
            await asyncio.sleep(period_s)
            now = now_ns()
            for x in list(self.in_flight):
                name, detail = overdue(x, now, self.plan.timeouts, self.clock)
                if name and x.task is not None and not x.timeout:
                    x.timeout, x.detail = name, detail
                    x.task.cancel()

    async def _lag(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(LAG_PERIOD_S)
            self.lag_s.append(max(0.0, time.monotonic() - before - LAG_PERIOD_S))
            self.clock.refresh()

    async def _tick(self) -> None:
        while self._on_progress:
            await asyncio.sleep(PROGRESS_S)
            self._on_progress(self)

    async def _sleep_until(self, due_ns: int) -> bool:
        """Waits for `due_ns`; False if the level is to end."""
        wait_s = (due_ns - now_ns()) / 1e9
        if wait_s <= 0:
            return not self._halt.is_set()
        try:
            await asyncio.wait_for(self._halt.wait(), wait_s)
        except asyncio.TimeoutError:
            return True
        return False

    async def _back_off(self, x: Exchange) -> None:
        wait_s = x.retry_after_s if x.retry_after_s is not None else BACK_OFF_S
        until = now_ns() + int(self.clock.real_s(min(wait_s, 30.0)) * 1e9)
        await self._sleep_until(min(until, self._deadline_ns))

    async def _cancel_all(self) -> None:
        tasks = [x.task for x in self.in_flight if x.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)

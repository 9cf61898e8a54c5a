"""A whole sweep: warm-up, level after level, and an end that keeps what was measured."""

from __future__ import annotations

import asyncio
import inspect
import platform
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Union

from .clock import Clock, now_ns
from .crew import Crew, CrewRun
from .events import Event, LevelFinished, LevelStarted, Progress, SweepFinished, Warmup
from .plan import Plan
from .results import LevelResult, SweepResult

if TYPE_CHECKING:
    import aiohttp

    from .level import LevelRun
    from .request import Client
    from .stream import Exchange

SessionFactory = Callable[[], Union["aiohttp.ClientSession", Awaitable["aiohttp.ClientSession"]]]
SURE_FAILURES = ("4xx", "3xx", "connect", "timeout.connect", "timeout.first")
"""Outcomes of the warm-up after which no level could go better."""


async def run_sweep(
    plan: Plan,
    *,
    session_factory: SessionFactory | None = None,
    on_event: Callable[[Event], None] | None = None,
    on_level: Callable[[LevelResult], Awaitable[None]] | None = None,
    stop: asyncio.Event | None = None,
    crew: Crew | None = None,
) -> SweepResult:
    """Runs `plan` and returns what it measured; what the server does is never raised, but told in the result.

    `session_factory` gives the aiohttp session to use (closed at the end), such as one over SSH; without it an own
    session is opened that takes the kernel's receive times. `on_event` is called in the event loop and must return at
    once; `on_level` is awaited before the next level begins, so that a finished level can be stored. Setting `stop`
    cancels what is in flight and ends the sweep with a partial level.

    A level goes to as many processes as `plan.processes` says, but stays in this one with a given session, which is
    nobody else's. Those of `crew` are used and stay; without it they end with the sweep.
    """
    own = crew if crew is not None else Crew()
    sweep = _Sweep(plan, on_event or (lambda event: None), stop or asyncio.Event(), own)
    sweep.on_level = on_level
    try:
        session = await _open(plan, sweep.clock, session_factory)
        try:
            result = await sweep.run(session, given=session_factory is not None)
        finally:
            await session.close()
    finally:
        if own is not crew:
            await own.close()
    sweep.emit(SweepFinished(result))
    return result


async def _open(plan: Plan, clock: Clock, factory: SessionFactory | None) -> aiohttp.ClientSession:
    from .wire import allow_connections, open_session

    allow_connections(max(plan.levels) if not plan.rates else plan.max_in_flight)
    if factory is None:
        return open_session(clock, connect_timeout_s=clock.real_s(plan.timeouts.connect_s))
    made = factory()
    if inspect.isawaitable(made):
        return await made
    return made


class _Sweep:
    def __init__(self, plan: Plan, emit: Callable[[Event], None], stop: asyncio.Event, crew: Crew) -> None:
        self.plan, self.emit, self.stop, self.crew = plan, emit, stop, crew
        self.given = False
        self.clock = Clock(plan.clock_factor)
        self.levels: list[LevelResult] = []
        self.on_level: Callable[[LevelResult], Awaitable[None]] | None = None
        self.warmup: dict[str, Any] = {}

    async def run(self, session: aiohttp.ClientSession, *, given: bool) -> SweepResult:
        from .prompts import PromptSource
        from .request import Client

        plan, begun_at, begun = self.plan, time.time(), time.monotonic()
        model, status, reason = plan.model, "done", ""
        self.given = given
        if not model:
            model, reason = await _first_model(session, plan)
        source = PromptSource(plan, model)
        client = Client(session, plan.endpoint, plan.headers)
        if reason:
            status = "failed"
        else:
            status, reason = await self._levels(source, client)
        return SweepResult(
            status=status,
            reason=reason,
            model=model,
            levels=tuple(self.levels),
            started_at=begun_at,
            elapsed_s=(time.monotonic() - begun) * plan.clock_factor,
            nonce=source.nonce,
            plan=plan.to_dict(secrets=False),
            warmup=self.warmup,
            client=_client_facts(self.levels, given=given),
        )

    async def _levels(self, source: Any, client: Client) -> tuple[str, str]:
        plan = self.plan
        steps: list[tuple[int | None, float | None]] = (
            [(None, rate) for rate in plan.rates] if plan.rates else [(level, None) for level in plan.levels]
        )
        for number, (concurrency, rate) in enumerate(steps):
            if plan.warmup and (not number or plan.warmup_each_level):
                reason = await self._warm(source, client, number)
                if reason:
                    return "failed", reason
            if self.stop.is_set():
                return "stopped", "stopped by request"
            run = self._level(source, client, number, concurrency, rate)
            label = f"C={concurrency}" if rate is None else f"{rate:g} req/s"
            started = LevelStarted(number, len(steps), label, concurrency, rate, run.total, plan.duration_s)
            self.emit(started)
            try:
                await run.run()
            except OSError as error:
                return "failed", f"A process for the load cannot be started: {error.strerror or error}."
            self.crew.learn(run.exchanges)
            result = await self._summary(run)
            self.levels.append(result)
            self.emit(LevelFinished(result))
            if self.on_level is not None:
                await self.on_level(result)
            if run.dead:
                return "failed", f"The server does not answer: {run.dead}."
            if self.stop.is_set():
                return "stopped", "stopped by request"
            if run.cut and not (isinstance(run, CrewRun) and run.goes_on):
                return "stopped", run.cut
        return "done", ""

    def _level(
        self, source: Any, client: Client, number: int, concurrency: int | None, rate: float | None
    ) -> LevelRun | CrewRun:
        alone = self.given and not self.crew.elsewhere
        many = 1 if alone else self.crew.processes(self.plan, concurrency, rate)
        run = self._crew_run(many, self.plan, source, number, concurrency=concurrency, rate=rate)
        if run.processes > 1 or self.crew.elsewhere:
            return run
        return self._level_run(self.plan, source, client, number, concurrency=concurrency, rate=rate)

    def _crew_run(
        self,
        many: int,
        plan: Plan,
        source: Any,
        number: int,
        *,
        concurrency: int | None = None,
        rate: float | None = None,
        quiet: bool = False,
    ) -> CrewRun:
        return CrewRun(
            self.crew,
            many,
            plan,
            self.clock,
            model=source.model,
            nonce=source.nonce,
            level=number,
            stop=self.stop,
            concurrency=concurrency,
            rate=rate,
            on_progress=None if quiet else self._progress,
            on_request=None if quiet else self.emit,
        )

    async def _summary(self, run: LevelRun | CrewRun) -> LevelResult:
        from .summary import summarize

        # A large level takes tenths of a second to sort; the loop may be somebody's screen.
        result = await asyncio.get_running_loop().run_in_executor(None, summarize, run)
        return replace(result, checks=(*result.checks, *run.checks())) if isinstance(run, CrewRun) else result

    async def _warm(self, source: Any, client: Client, number: int) -> str:
        plan = replace(
            self.plan, levels=(1,), rates=(), requests=self.plan.warmup, duration_s=None, turns=1, stop_on_error=False
        )
        run: LevelRun | CrewRun
        if self.crew.elsewhere:
            run = self._crew_run(1, plan, source, -1 - number, concurrency=1, quiet=True)
        else:
            run = self._level_run(plan, source, client, -1 - number, concurrency=1, quiet=True)
        await run.run()
        self.crew.learn(run.exchanges)
        bad = [x for x in run.exchanges if x.outcome not in ("ok", "cancelled")]
        busy_s = sum(self.clock.host_s((x.t_last or x.t_end) - x.t_sent) for x in run.exchanges if x.outcome == "ok")
        tokens = sum(x.tokens for x in run.exchanges if x.outcome == "ok")
        event = Warmup(
            ok=run.ok,
            err=len(bad),
            detail=bad[0].detail if bad else "",
            elapsed_s=run.elapsed_s(),
            output_tps=tokens / busy_s if busy_s > 0 and tokens else None,
        )
        if not self.warmup:
            self.warmup = {"ok": event.ok, "err": event.err, "detail": event.detail, "output_tps": event.output_tps}
        self.emit(event)
        if run.ok or not bad or bad[0].outcome not in SURE_FAILURES:
            return ""
        return f"The warm-up request failed, so no level was started: {bad[0].detail}."

    def _level_run(
        self,
        plan: Plan,
        source: Any,
        client: Client,
        number: int,
        *,
        concurrency: int | None = None,
        rate: float | None = None,
        quiet: bool = False,
    ) -> LevelRun:
        from .level import LevelRun

        return LevelRun(
            plan,
            source,
            client,
            self.clock,
            level=number,
            stop=self.stop,
            concurrency=concurrency,
            rate=rate,
            on_progress=None if quiet else self._progress,
            on_request=None if quiet else self._request(number),
        )

    def _request(self, number: int) -> Callable[[Exchange], None]:
        from .telling import Sampler, told

        sampler, begun_ns = Sampler(), now_ns()

        def tell(x: Exchange) -> None:
            if sampler.wanted(x.outcome):
                self.emit(told(x, number, begun_ns, self.clock))

        return tell

    def _progress(self, run: LevelRun | CrewRun) -> None:
        done, elapsed = run.done, run.elapsed_s()
        eta: float | None = None
        if run.plan.duration_s is not None:
            eta = max(0.0, run.plan.duration_s - elapsed)
        elif run.total and done:
            eta = elapsed / done * max(0, run.total - done)
        self.emit(
            Progress(
                level=run.level,
                done=done,
                total=run.total,
                ok=run.ok,
                err=run.failed,
                running=run.running,
                tps=run.recent_tps(),
                tokens=run.tokens_so_far(),
                chunks=run.chunks_so_far(),
                elapsed_s=elapsed,
                eta_s=eta,
            )
        )


async def _first_model(session: aiohttp.ClientSession, plan: Plan) -> tuple[str, str]:
    """The model that the server names first, or an empty name and why there is none."""
    import aiohttp

    from .stream import shown
    from .wire import untap

    timeout = aiohttp.ClientTimeout(total=30, sock_connect=plan.timeouts.connect_s)
    try:
        async with session.get(plan.models_url, headers=plan.headers, timeout=timeout) as response:
            untap(response)
            if response.status != 200:
                return "", f"The server does not name its models (status {response.status} for {plan.models_url})."
            data = await response.json(content_type=None)
        name = data["data"][0]["id"]
    except (KeyError, IndexError, TypeError):
        return "", f"The server names no model at {plan.models_url}."
    except (aiohttp.ClientError, OSError, asyncio.TimeoutError, ValueError) as error:
        return (
            "",
            f"The server does not answer at {plan.models_url}: {type(error).__name__} {shown(str(error))}".strip(),
        )
    return str(name), ""


def _client_facts(levels: list[LevelResult], *, given: bool) -> dict[str, Any]:
    import aiohttp

    shares = [level.kernel_share for level in levels]
    return {
        "python": platform.python_version(),
        "aiohttp": aiohttp.__version__,
        "loop": type(asyncio.get_running_loop()).__module__.split(".")[0],
        "session": "given" if given else "own",
        "kernel_stamps": bool(shares) and min(shares) > 0.99,
        "processes": max((level.processes for level in levels), default=1),
        "machine": f"{platform.system()} {platform.machine()}",
    }

"""Sweep: run the load generator level by level; each finished level is judged and stored before the next begins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.records import Mark
from tokpit.domain.run import Level, Run
from tokpit.errors import HostError, LoadError, UsageError
from tokpit.ops.gate import Prepared
from tokpit.ops.progress import Progress
from tokpit.ops.records import baseline
from tokpit.ops.sweep.checks import judged, level_of
from tokpit.ops.sweep.early import Early
from tokpit.ops.sweep.find import Search, meets_slo
from tokpit.ops.sweep.onhost import OnHost
from tokpit.ops.sweep.place import Here, Source, choose, from_hosts
from tokpit.ops.sweep.plan import Asked, read_args
from tokpit.ops.sweep.record import conclude, frozen_context
from tokpit.ops.sweep.server import ServerSide
from tokpit.ops.targets import Target, resolve, server_target
from tokpit.probes import machine
from tokpit.transport.base import Host

if TYPE_CHECKING:
    from tokpit.load.plan import Plan
    from tokpit.load.results import LevelResult, SweepResult
    from tokpit.ops.session import Session
    from tokpit.store.history import History


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`sweep.start`: `target` (text or server id), `levels` (text) and what `sweep_plan.read_args` reads.

    `enough`: asked with the kept levels after each one; a text that is not empty ends the sweep with it as the reason.
    `hopeless`: asked with the rate of the level under way, at most twenty times a level; such a text cuts it short.
    Raises UsageError for a bad option, TargetError, HostError.
    """
    asked = read_args(args)
    text = str(args["target"])
    known = session.store.servers.get(text)
    target = server_target(known.info) if known is not None else await resolve(session, text)
    host = await session.connected(target.host) if target.host is not None else None
    if asked.from_hosts:
        source, why = await from_hosts(session, asked.from_hosts, target)
    else:
        source, why = await choose(asked.source, host, target.server)
    if session.read_only and isinstance(source, OnHost) and not source.sent:
        if asked.source == "host":
            raise UsageError("the load generator is not on the host yet, and read-only mode writes nothing there")
        source, why = Here(host), "read-only mode writes nothing on the host"
    sweep = Sweep(session, target, host, asked, args, source, why)
    title = f"sweep {target.label} at {asked.title}"
    return Prepared(title=title, host=target.host or "", run=sweep.run, lines=tuple(source.command.splitlines()))


async def prepare_stop(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`sweep.stop`: `op_id`. Raises UsageError where no such sweep runs."""
    stop = session.stops.get(str(args["op_id"]))
    if stop is None:
        raise UsageError("no sweep is running")

    async def run() -> None:
        stop.set()

    return Prepared(title="stop the sweep", host="", run=run)


class Sweep:
    """One sweep under way: figures go into the live store, finished levels into the history."""

    def __init__(
        self,
        session: Session,
        target: Target,
        host: Host | None,
        asked: Asked,
        args: Mapping[str, Any],
        source: Source,
        why: str,
    ) -> None:
        self._session, self._target, self._host, self._asked, self._args = session, target, host, asked, args
        self._source, self._why = source, why
        self._stop: asyncio.Event = args.get("stop") or asyncio.Event()
        self._side = ServerSide(session, host, target.server, target.url, asked.headers)
        self._search = Search(asked.levels) if asked.find else None
        self._enough: Callable[[tuple[Level, ...]], str] | None = args.get("enough")
        self._early = Early(self._stop, args.get("hopeless"))
        self._kept: list[Level] = []
        self._reason = ""
        self._in_flight, self._received = 0, 0.0
        self._place: dict[str, int] = {}
        self._progress: Progress

    def _now(self) -> float:
        return self._host.now() if self._host is not None else time.time()

    async def run(self) -> Run:
        """Run every level. Raises LoadError where nothing could be measured; a stop keeps what was measured."""
        history = await self._session.history()
        server = self._target.server
        self._progress = Progress(
            self._session.store,
            kind="sweep",
            target=server.id if server is not None else self._target.url,
            title=f"sweep {self._target.label}",
            now=self._now,
            commands=tuple(self._source.command.splitlines()),
            operation_id=self._args.get("operation_id"),
        )
        self._session.stops[self._progress.operation.id] = self._stop
        try:
            await self._ready()
            await self._side.open()
            plan = await self._plan()
            run = Run(
                id=await history.new_run_id(),
                kind="sweep",
                target=self._target.label,
                host=self._target.host or "",
                model=plan.model,
                engine=self._side.engine.name if self._side.engine is not None else "",
                started_at=time.time(),
                note=str(self._args.get("note") or ""),
                context=frozen_context(
                    self._session, self._target, plan, self._asked, self._source.where, self._why, self._side.note
                ),
            )
            return await self._recorded(run, plan, history)
        except Exception as error:
            self._progress.failed(error)
            raise
        finally:
            self._session.stops.pop(self._progress.operation.id, None)
            await self._source.close()
            await self._side.close()

    async def _ready(self) -> None:
        try:
            await self._source.ready()
        except HostError as error:
            if self._asked.source in ("host", "hosts"):
                raise
            self._source, self._why = Here(self._host), error.message
            await self._source.ready()
        self._progress.step("from", f"load from {self._source.where}", self._why)

    async def _recorded(self, run: Run, plan: Plan, history: History) -> Run:
        """Measure with the run in the history from its first moment to its end."""
        run.context.update(await self._machine())
        await history.save_run(run)
        self._progress.update(result={"run": run.id})
        status = "failed"
        try:
            status = await self._measure(plan, run, history)
        except HostError as error:
            error.hint = "; ".join(filter(None, (error.hint, self._kept_words(run))))
            raise
        finally:
            ended = msgspec.structs.replace(run, status=status, ended_at=time.time(), levels=tuple(self._kept))
            conclude(self._session, self._target, ended, self._search)
            self._session.store.apply(ended)
            await asyncio.shield(baseline.save(history, ended))
        if status == "stopped":
            self._progress.stopped(f"{self._reason}; {len(self._kept)} levels kept as run {run.id}")
        else:
            self._progress.done()
        return ended

    async def _machine(self) -> dict[str, str]:
        """Driver and kernel of the server's host, where they can be read: the first to ask after when speed changes."""
        if self._host is None:
            return {}
        try:
            return machine.parse((await self._host.run(machine.SCRIPT, timeout_s=10.0)).out)
        except HostError:
            return {}

    async def _plan(self) -> Plan:
        from tokpit.load.plan import Plan

        await self._side.page()  # behind a URL, the page tells which engine it is
        extra = dict(self._side.engine.http.extra_body) if self._side.engine is not None else {}
        return Plan(
            url=self._target.url,
            model=str(self._args.get("model") or "") or await self._side.model(),
            levels=self._asked.levels,
            rates=self._asked.rates,
            clock_factor=self._host.spec.clock_factor if self._host is not None else 1.0,
            extra_body=extra,
            headers=self._side.headers,
            **self._asked.fields,
        )

    # --- measuring

    async def _measure(self, plan: Plan, run: Run, history: History) -> str:
        plan = await self._warm(plan)
        count = len(plan.rates or plan.levels) * self._asked.repeat
        async for number, one, repeat in self._levels(plan):
            if self._stop.is_set():
                self._reason = "stopped by request"
                return "stopped"
            if (left := await self._side.drain(self._stop)) > 0 and not self._stop.is_set():
                self._progress.step(f"busy-{number}", f"{left:.0f} requests still ran on the server at the begin")
            if self._asked.flush:
                self._progress.step(f"flush-{number}", await self._side.flush())
            ended = await self._one(one, run, history, number, count, repeat)
            if ended.status == "failed":
                raise LoadError(f"{self._target.label}: {ended.reason}", hint=self._kept_words(run))
            if ended.status == "stopped" or self._early.over:
                self._reason = self._early.reason or ended.reason.rstrip(".") or "stopped by request"
                return "stopped"
            if self._enough is not None and (why := self._enough(tuple(self._kept))):
                self._reason = why
                return "stopped"
        if not self._kept:
            raise LoadError(f"{self._target.label}: nothing was measured")
        return "done"

    def _kept_words(self, run: Run) -> str:
        count = len(self._kept)
        return f"{count} level{'s' if count > 1 else ''} kept as run {run.id}" if count else ""

    async def _levels(self, plan: Plan) -> AsyncIterator[tuple[int, Plan, int]]:
        """Number, plan and repetition of one level after the other; the search chooses by what came before."""
        number = 0
        if self._search is not None:
            while (level := self._search.next()) is not None:
                yield number, replace(plan, levels=(level,)), 0
                if not self._kept or self._kept[-1].result["void"]:
                    self._search.cut = f"the search ended at C={level}, which is void"
                    return
                number += 1
            return
        for repeat in range(self._asked.repeat):
            ones = [replace(plan, rates=(rate,)) for rate in plan.rates] or [
                replace(plan, levels=(level,)) for level in plan.levels
            ]
            for one in ones:
                yield number, one, repeat
                number += 1

    async def _warm(self, plan: Plan) -> Plan:
        """Warm up outside every figure; the plan without a warm-up. Raises LoadError where it shows a dead server."""
        from tokpit.load.run import SURE_FAILURES

        rest = replace(plan, warmup=plan.warmup if plan.warmup_each_level else 0)
        if not plan.warmup:
            return rest
        one = replace(
            rest, levels=(1,), rates=(), requests=plan.warmup, duration_s=None, turns=1, warmup=0, stop_on_error=False
        )
        result = await self._source.run(one, lambda event: None, self._stop)
        if result.status == "failed":
            raise LoadError(f"{self._target.label}: {result.reason}")
        level = result.levels[0] if result.levels else None
        if level is not None:
            self._progress.step("warm-up", f"warm-up: {level.ok} ok, {level.err} failed")
            sure = [item for name, item in level.outcomes.items() if name in SURE_FAILURES]
            if not level.ok and sure:
                raise LoadError(
                    f"{self._target.label}: the warm-up request failed, so no level was started: {sure[0].example}"
                )
        return replace(rest, model=rest.model or result.model)

    async def _one(self, plan: Plan, run: Run, history: History, number: int, count: int, repeat: int) -> SweepResult:
        """Measure, judge and store one level."""
        self._in_flight, self._received = 0, 0.0
        self._place = {"level": number + 1, **({} if self._search is not None else {"levels": count})}
        label = f"{plan.rates[0]:g} req/s" if plan.rates else f"C={plan.levels[0]}"
        concurrency = 0 if plan.rates else plan.levels[0]
        if self._target.server is not None:
            self._session.store.apply(Mark(self._target.server.id, self._now(), "sweep", f"sweep {label}"))
        await self._side.begin(lambda: (self._in_flight, self._received))
        try:
            async with self._early.level(plan, concurrency) as cut:
                ended = await self._source.run(plan, lambda event: self._event(event, concurrency), cut)
        finally:
            seen = await self._side.end()
        for result in ended.levels:
            level = self._level(replace(result, level=number), plan, seen, ended.client, repeat)
            await history.add_level(run.id, level)
            self._kept.append(level)
            self._progress.level(level)
            if self._search is not None and not result.partial and not level.result["void"]:
                self._search.tell(plan.levels[0], met=meets_slo(result))
        return ended

    def _level(self, result: LevelResult, plan: Plan, seen: Any, client: dict[str, Any], repeat: int) -> Level:
        extra: dict[str, Any] = {"client": client, "from": self._source.where}
        if self._asked.repeat > 1:
            extra["repeat"] = repeat
        if plan.slo.asked:
            extra["slo_met"] = meets_slo(result)
        whole = judged(result, plan, seen, on_host=self._source.where == "host")
        return level_of(whole, seen, **extra)

    def _event(self, event: object, concurrency: int) -> None:
        from tokpit.load import events

        if isinstance(event, events.Progress):
            self._in_flight, self._received = event.running, event.tokens
            self._early.look(event)
            figures = {name: getattr(event, name) for name in ("done", "total", "ok", "err", "running", "elapsed_s")}
            figures |= {"concurrency": concurrency, "output_tps": event.tps, "eta_s": event.eta_s, **self._place}
            self._progress.update(live={name: float(value) for name, value in figures.items() if value is not None})
        elif isinstance(event, events.RequestFinished) and event.outcome not in ("ok", "cancelled"):
            told = self._progress.operation.errors
            if event.outcome not in told:
                live = self._progress.operation.live or {"concurrency": float(concurrency), **self._place}
                self._progress.update(live=live, errors={**told, event.outcome: event.detail})

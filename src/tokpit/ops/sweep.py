"""Sweep: run the load generator's levels against a target; each finished level is stored before the next begins."""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit import __version__
from tokpit.domain.records import Mark
from tokpit.domain.run import Level, Run
from tokpit.domain.text import mask_secrets
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import LoadError, UsageError
from tokpit.ops import http
from tokpit.ops.gate import Prepared
from tokpit.ops.progress import Progress
from tokpit.ops.targets import Target, resolve, server_target
from tokpit.transport.base import Host, quote

if TYPE_CHECKING:
    from tokpit.load.plan import Plan
    from tokpit.load.results import LevelResult
    from tokpit.ops.session import Session
    from tokpit.store.history import History


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`sweep.start`: `target` (text or server id), `levels` (text), `requests`, `max_tokens`, ... as in load.plan.

    Raises UsageError for a bad level list, TargetError, HostError.
    """
    from tokpit.load.levels import parse_levels

    text = str(args["target"])
    try:
        levels = tuple(parse_levels(str(args.get("levels") or "1,4,8,16,32,48")))
    except ValueError as error:
        raise UsageError(str(error), hint="write levels as 1,4,8,16 or 1-4") from error
    known = session.store.servers.get(text)
    target = server_target(known.info) if known is not None else await resolve(session, text)
    sweep = Sweep(session, target, levels, args)
    return Prepared(
        title=f"sweep {target.label} at C = {', '.join(map(str, levels))}", host=target.host or "", run=sweep.run
    )


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

    def __init__(self, session: Session, target: Target, levels: tuple[int, ...], args: Mapping[str, Any]) -> None:
        self._session, self._target, self._levels, self._args = session, target, levels, args
        self._host: Host | None = session.host(target.host) if target.host is not None else None
        self._stop: asyncio.Event = args.get("stop") or asyncio.Event()
        self._kept: list[Level] = []
        self._level_now = 0.0

    def _now(self) -> float:
        return self._host.now() if self._host is not None else time.time()

    async def run(self) -> Run:
        """Run every level. Raises LoadError where nothing could be measured; a stop keeps what was measured."""
        history = await self._session.history()
        plan = await self._plan()
        progress = Progress(
            self._session.store,
            kind="sweep",
            target=self._target.server.id if self._target.server is not None else self._target.url,
            title=f"sweep {self._target.label}",
            now=self._now,
            operation_id=self._args.get("operation_id"),
        )
        run = Run(
            id=await history.new_run_id(),
            kind="sweep",
            target=self._target.label,
            host=self._target.host or "",
            model=plan.model,
            engine=self._target.server.engine if self._target.server is not None else "",
            started_at=self._now(),
            note=str(self._args.get("note") or ""),
            context=await self._context(plan),
        )
        await history.save_run(run)
        self._session.stops[progress.operation.id] = self._stop
        progress.update(result={"run": run.id})
        status = "failed"
        try:
            status = await self._measure(plan, run, progress, history)
        except Exception as error:
            progress.failed(error)
            raise
        finally:
            self._session.stops.pop(progress.operation.id, None)
            await asyncio.shield(history.finish_run(run.id, status=status, ended_at=self._now()))
        if status == "stopped":
            progress.stopped(f"stopped; {len(self._kept)} levels kept as run {run.id}")
        else:
            progress.done()
        return msgspec.structs.replace(run, status=status, ended_at=self._now(), levels=tuple(self._kept))

    async def _plan(self) -> Plan:
        from tokpit.load.plan import Plan

        target = self._target
        extra: dict[str, Any] = {}
        model = str(self._args.get("model") or "")
        if target.server is not None:
            facts = engine_of(target.server.engine).http
            extra.update(facts.extra_body)
            if not model and self._host is not None:
                async with self._host.session() as web:
                    model = await http.model_name(web, target.url, facts) or ""
        wanted = {name: self._args[name] for name in _PLAN_FIELDS if self._args.get(name) is not None}
        try:
            return Plan(
                url=target.url,
                model=model,
                levels=self._levels,
                clock_factor=self._host.spec.clock_factor if self._host is not None else 1.0,
                extra_body=extra,
                **wanted,
            )
        except ValueError as error:
            raise UsageError(f"the sweep cannot run as asked: {error}") from error

    async def _context(self, plan: Plan) -> dict[str, Any]:
        """What was measured, frozen: server, engine, GPUs, workload, client."""
        context: dict[str, Any] = {
            "plan": plan.to_dict(secrets=False),
            "client": f"tokpit {__version__}, from here",
            "by": getpass.getuser(),
        }
        server = self._target.server
        if server is not None:
            context["engine"] = server.engine
            context["version"] = server.version or ""
            context["command"] = mask_secrets(quote(server.argv))
            context["settings"] = server.settings.given()
            context["pid"] = server.pid
        if self._host is not None:
            link = self._session.link(self._host.name)
            if not self._host.spec.local:
                rtt = link.rtt_s if link is not None else None
                context["link"] = "via ssh" + (f", round trip {rtt * 1000:.1f} ms" if rtt is not None else "")
            gpus = self._session.store.host(self._host.name).gpus
            context["gpus"] = [gpu.name for gpu in gpus.gpus] if gpus is not None else []
            if self._host.spec.label:
                context["label"] = self._host.spec.label
        return context

    async def _measure(self, plan: Plan, run: Run, progress: Progress, history: History) -> str:
        from tokpit.load.run import run_sweep

        async def on_level(result: LevelResult) -> None:
            level = level_of(result)
            await history.add_level(run.id, level)
            self._kept.append(level)
            progress.level(level)

        result = await run_sweep(
            plan,
            session_factory=self._host.session if self._host is not None and not self._host.spec.local else None,
            on_event=lambda event: self._event(event, progress),
            on_level=on_level,
            stop=self._stop,
        )
        if result.status == "failed":
            raise LoadError(
                f"{self._target.label}: {result.reason}",
                hint=f"{len(self._kept)} finished levels are kept as run {run.id}" if self._kept else "",
            )
        return result.status

    def _event(self, event: object, progress: Progress) -> None:
        from tokpit.load import events

        if isinstance(event, events.LevelStarted):
            self._level_now = float(event.concurrency or 0)
            if self._target.server is not None:
                mark = Mark(self._target.server.id, self._now(), "sweep", f"sweep {event.label}")
                self._session.store.apply(mark)
        elif isinstance(event, events.Progress):
            figures = {name: getattr(event, name) for name in ("done", "total", "ok", "err", "running", "elapsed_s")}
            figures |= {"concurrency": self._level_now, "output_tps": event.tps, "eta_s": event.eta_s}
            progress.update(live={name: float(value) for name, value in figures.items() if value is not None})


_PLAN_FIELDS = (
    *("api", "requests", "max_tokens", "temperature", "top_p", "warmup", "duration_s", "rates", "arrival", "prompts"),
    *("input_tokens", "prompt_rows", "turns", "prefix_share", "unique_prefix", "seed", "slo", "timeouts", "headers"),
    *("stop_on_error", "continuous_usage"),
)


def level_of(result: LevelResult) -> Level:
    """The stored form of a level: its main figures, and the load generator's full summary beside them."""
    return Level(
        concurrency=result.concurrency or result.peak_in_flight,
        requests=result.requests,
        ok=result.ok,
        err=result.err,
        elapsed_s=result.elapsed_s,
        output_tps=result.output_tps or 0.0,
        steady_tps=result.steady_tps,
        avg_output=result.avg_output or 0.0,
        ttft_p50_s=result.ttft_s.p50 if result.ttft_s is not None else None,
        e2e_p50_s=result.e2e_s.p50 if result.e2e_s is not None else None,
        result=result.to_dict(),
    )

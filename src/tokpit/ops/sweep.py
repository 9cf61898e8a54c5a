"""Sweep: run the load generator's levels against a target; each finished level is stored before the next begins."""

from __future__ import annotations

import asyncio
import getpass
import secrets
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
    import aiohttp

    from tokpit.load.plan import Plan
    from tokpit.load.summary import LevelResult
    from tokpit.ops.session import Session
    from tokpit.store.history import History


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`sweep.start`: `target` (text or server id), `levels` (text), `requests`, `max_tokens`, ... as in load.plan.

    Raises UsageError for a bad level list, TargetError, HostError.
    """
    from tokpit.load.levels import parse_levels

    text = str(args["target"])
    try:
        levels = parse_levels(str(args.get("levels") or "1,4,8,16,32,48"))
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

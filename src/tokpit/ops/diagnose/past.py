"""What a live server is measured by: stored runs of its model on its host, and earlier deployments."""

from __future__ import annotations

import posixpath
import time
from typing import TYPE_CHECKING, Any

from tokpit.domain.run import Run
from tokpit.domain.server import ServerInfo
from tokpit.errors import HostError, StoreError
from tokpit.insight.evidence import Earlier, Setup
from tokpit.insight.gather import single_stream
from tokpit.ops.check.judge import stream_tps
from tokpit.ops.host.deployments import Compared, look_back

if TYPE_CHECKING:
    from tokpit.ops.diagnose.run import Gathered
    from tokpit.ops.session import Session

SLOWER = 0.87
"""Below this share of what a stored run made, the past is looked into."""
_LOOKED_AT = 100


async def read_past(session: Session, server: ServerInfo, got: Gathered) -> None:
    """Add the server's setup, the good runs before it and, where it got slower, earlier deployments to `got`.

    The search on the host takes seconds, so it is made only where somebody remembers a faster server or a stored run
    was faster. What cannot be looked at is left out with a note.
    """
    now, length = _stream(got)
    if now is None:
        return
    runs = await _good_runs(session, server, got)
    got.setups += [_setup_of(run) for run in runs]
    got.setups.append(
        Setup(
            name=f"{server.label} as it runs",
            settings=_plain({**server.settings.given(), "engine": server.engine, "version": server.version}),
            single_tps=now,
            accept_len=length,
            whole=True,
        )
    )
    best = max((rate for run in runs if (rate := stream_tps(run))), default=0.0)
    wanted = max(best, got.facts.remembered_tps or 0.0)
    if now > SLOWER * wanted:
        return
    try:
        past = await look_back(session, server.host, compare=True)
    except HostError as error:
        got.notes.append(f"earlier deployments could not be looked for: {error.message}")
        return
    pairs = [pair for pair in past.compared if pair.server.id == server.id and pair.akin]
    got.earlier += [_earlier(pair) for pair in sorted(pairs, key=lambda pair: -pair.deployment.order)]
    if not pairs:
        got.notes += [f"earlier deployments: {remark}" for remark in past.remarks]


async def newest_sweep(session: Session, server: ServerInfo, got: Gathered) -> Run | None:
    """The newest stored sweep of this very process, whose curve says more than its log alone."""
    try:
        runs = await (await session.history()).runs(limit=_LOOKED_AT, host=server.host)
    except StoreError as error:
        got.notes.append(f"earlier runs could not be looked at: {error.message}")
        return None
    return next(
        (run for run in runs if run.kind == "sweep" and run.levels and run.context.get("pid") == server.pid), None
    )


def _stream(got: Gathered) -> tuple[float | None, float | None]:
    """Rate and acceptance length of one stream now, by the log or as somebody says."""
    for log in reversed(got.logs):
        found = single_stream(log)
        if found is not None:
            return found[0], found[1]
    return got.facts.single_tps, got.facts.accept_len


async def _good_runs(session: Session, server: ServerInfo, got: Gathered) -> tuple[Run, ...]:
    """Finished runs of this model on this host that know the rate of one stream, oldest first."""
    names = {name for name in (server.served_name, server.model) if name}
    names |= {posixpath.basename(name.rstrip("/")) for name in names}
    try:
        history = await session.history()
        runs = await history.runs(limit=_LOOKED_AT, host=server.host)
    except StoreError as error:
        got.notes.append(f"earlier runs could not be looked at: {error.message}")
        return ()
    mine = [run for run in runs if posixpath.basename(run.model.rstrip("/")) in names and run.status == "done"]
    return tuple(reversed([run for run in mine if stream_tps(run) is not None]))


def _setup_of(run: Run) -> Setup:
    context = run.context
    known = {**(context.get("settings") or {}), "engine": run.engine, "version": context.get("version")}
    known |= {name: context.get(name) for name in ("driver", "kernel")}
    lengths = [level.result.get("accept_len") for level in run.levels if level.concurrency == 1]
    length = next((float(one) for one in lengths if isinstance(one, (int, float))), None)
    return Setup(
        name=f"run {run.id} of {_date(run.started_at)}",
        settings=_plain(known),
        single_tps=stream_tps(run),
        accept_len=length,
        whole=True,
    )


def _plain(settings: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items() if value not in (None, "")}


def _earlier(pair: Compared) -> Earlier:
    one = pair.deployment
    when = _date(one.t) if one.t is not None else f"before {_date(one.before)}" if one.before else "time unknown"
    return Earlier(
        where=f"{one.source} {one.where}",
        when=when,
        state=one.state,
        changes=tuple(change.text for change in pair.changes),
    )


def _date(t: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(t))

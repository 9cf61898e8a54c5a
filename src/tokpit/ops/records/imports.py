"""Import: results of other benchmark tools become stored runs, beside tokpit's own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tokpit.domain.run import Run
from tokpit.errors import UsageError
from tokpit.ops.records import baseline
from tokpit.ops.records.run_files import read_runs

if TYPE_CHECKING:
    from tokpit.ops.session import Session


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the person knows and the file does not."""

    host: str = ""
    model: str = ""
    engine: str = ""
    version: str = ""
    note: str = ""
    settings: dict[str, str] = {}
    apart: bool = False
    """A run for each file, instead of one for all levels of one tool and model."""


async def import_files(session: Session, paths: Sequence[str], given: Given) -> tuple[Run, ...]:
    """Read the files and store what is in them; nothing if one cannot be read. Raises UsageError, StoreError."""
    found = [known(run, given) for path in paths for run in read_runs(path)]
    runs = found if given.apart else joined(found)
    if not runs:
        raise UsageError("no result of a benchmark in these files")
    history = await session.history()
    kept = []
    for run in runs:
        stored = msgspec.structs.replace(run, id=await history.new_run_id())
        kept.append(await baseline.save(history, stored))
    return tuple(kept)


def known(run: Run, given: Given) -> Run:
    """The run with what the person said, which goes before what the file says."""
    context = {**run.context}
    if given.version:
        context["version"] = given.version
    if given.settings:
        context["settings"] = {**(context.get("settings") or {}), **given.settings}
    return msgspec.structs.replace(
        run,
        host=given.host or run.host,
        model=given.model or run.model,
        engine=given.engine or run.engine,
        note=given.note or run.note,
        started_at=run.started_at or time.time(),
        context=context,
    )


def joined(runs: Sequence[Run]) -> list[Run]:
    """Runs of one tool, model, host and engine as one, their levels by concurrency; repeats of a level stay repeats."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.target, run.model, run.host, run.engine), []).append(run)
    found = []
    for group in groups.values():
        levels = sorted((level for run in group for level in run.levels), key=lambda level: level.concurrency)
        plans = [run.context.get("plan") or {} for run in group]
        whole = {name: plans[0][name] for name in plans[0] if all(plan.get(name) == plans[0][name] for plan in plans)}
        found.append(
            msgspec.structs.replace(
                group[0],
                started_at=min(run.started_at for run in group),
                ended_at=max((run.ended_at for run in group if run.ended_at is not None), default=None),
                status="done" if all(run.status == "done" for run in group) else "stopped",
                levels=tuple(levels),
                context={**group[0].context, "plan": whole},
            )
        )
    return found

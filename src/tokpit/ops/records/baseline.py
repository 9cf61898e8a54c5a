"""Baselines in the history: which runs later ones are compared with, and how a new run joins them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tokpit.domain.run import Run
from tokpit.errors import UsageError
from tokpit.insight.baseline import Baseline, baseline_of, family_of, server_part
from tokpit.insight.comparison import Comparison, compare
from tokpit.insight.measures import grouped

if TYPE_CHECKING:
    from tokpit.store.history import History

JOINED, APART = "joined", "kept apart"


async def baseline_for(history: History, run: Run) -> Baseline | None:
    """The baseline of a run's family, the run itself left out; None where there is none yet. Raises StoreError."""
    family = family_of(run)
    runs = await history.baseline_runs(run.model, run.host, family.key)
    return baseline_of([one for one in runs if one.id != run.id], family)


async def join(history: History, run: Run) -> tuple[str, Comparison | None]:
    """Compare a finished run with its baseline and let it join unless it is a regression: slow drift is not a baseline.

    Gives what was done in words, and the comparison with the newest run; None where there was nothing to compare with.
    """
    if run.status != "done" or not grouped(run):
        return f"{APART}: it measured nothing whole", None
    known = await baseline_for(history, run)
    found = compare(known.newest, run, known) if known is not None else None
    if found is not None and found.regressed:
        return f"{APART}: {found.sentence}", found
    await history.join_baseline(run, family_of(run).key)
    return JOINED, found


async def save(history: History, run: Run) -> Run:
    """Store a run that has ended, with what it is to its baseline in its record."""
    await history.save_run(run)
    run.context["baseline"] = await _note(history, run)
    await history.save_run(run)
    return run


async def _note(history: History, run: Run) -> str:
    what, found = await join(history, run)
    if found is None:
        return "this run begins a baseline" if what == JOINED else f"{what[0].upper()}{what[1:]}"
    return f"Against run {found.before}: {found.sentence}"


async def add(history: History, run_id: str) -> Run:
    """Let a run join its baseline whatever it says: it is how things are from now on. Raises UsageError."""
    run = await history.run(run_id)
    if not grouped(run):
        raise UsageError(f"run {run.id} has no level that measured anything, so nothing can be compared with it")
    await history.join_baseline(run, family_of(run).key, by="hand")
    return run


async def drop(history: History, run_id: str) -> Run:
    """Take a run out of its baseline. Raises UsageError where it is in none."""
    run = await history.run(run_id)
    if not await history.leave_baseline(run.id):
        raise UsageError(f"run {run.id} is in no baseline", hint="list them with: tokpit baseline")
    return run


async def of_server(
    history: History, model: str, host: str, engine: str, settings: Mapping[str, Any]
) -> tuple[Baseline, ...]:
    """The baselines of a server as it is set up, whatever the work was, the one with the newest run first."""
    wanted = server_part(engine, settings)
    found = []
    for name, where, key in await history.baselines():
        if (name, where) != (model, host):
            continue
        runs = await history.baseline_runs(name, where, key)
        if runs and server_part(runs[0].engine, runs[0].context.get("settings") or {}) == wanted:
            one = baseline_of(runs, family_of(runs[0]))
            found += [one] if one is not None else []
    return tuple(found)


async def listed(history: History) -> tuple[Baseline, ...]:
    """Every baseline with its bands."""
    found = []
    for model, host, key in await history.baselines():
        runs = await history.baseline_runs(model, host, key)
        if runs and (one := baseline_of(runs, family_of(runs[0]))) is not None:
            found.append(one)
    return tuple(found)

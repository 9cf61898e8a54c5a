"""Compare two or more runs: stored ones by id, sweep tables and results of other tools by file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokpit.domain.run import Run
from tokpit.errors import UsageError
from tokpit.insight.versus import Versus, versus
from tokpit.ops.records.baseline import baseline_for
from tokpit.ops.records.run_files import is_file, read_runs

if TYPE_CHECKING:
    from tokpit.ops.session import Session


def all_files(names: Sequence[str]) -> bool:
    """Whether no history is needed to compare these."""
    return len(names) > 1 and all(is_file(name) for name in names)


def compare_files(names: Sequence[str]) -> tuple[Versus, ...]:
    """The first of several files against each other one. Raises UsageError."""
    runs = [read_one(name) for name in names]
    return tuple(versus(runs[0], run) for run in runs[1:])


async def compare_runs(session: Session, names: Sequence[str]) -> tuple[Versus, ...]:
    """The first of several runs against each other one; a single one against its baseline.

    Raises UsageError for a name that is neither a run nor a file, or a run without a baseline; StoreError.
    """
    history = await session.history()
    runs = [read_one(name) if is_file(name) else await history.run(name) for name in names]
    if len(runs) == 1:
        known = await baseline_for(history, runs[0])
        if known is None:
            raise UsageError(
                f"run {runs[0].id} has no baseline: no earlier run of this model, host and family of settings",
                hint="give a second run, or make one a baseline with: tokpit baseline --add RUN",
            )
        return (versus(known.newest, runs[0], known),)
    found = []
    for run in runs[1:]:
        known = None if is_file(names[0]) else await baseline_for(history, runs[0])
        found.append(versus(runs[0], run, known))
    return tuple(found)


def read_one(name: str) -> Run:
    """The one run in a file. Raises UsageError where there is none."""
    runs = read_runs(name)
    if not runs:
        raise UsageError(f"{name}: no result of a benchmark in it")
    return msgspec.structs.replace(runs[0], id=Path(name).stem or name)

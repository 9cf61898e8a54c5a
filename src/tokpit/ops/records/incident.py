"""Incidents: a diagnosis kept in the history, with the figures it rested on, so that a report can be made of it."""

from __future__ import annotations

import getpass
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokpit import __version__
from tokpit.domain.run import Run
from tokpit.ops.diagnose.run import Diagnosis, Sources

if TYPE_CHECKING:
    from tokpit.ops.session import Session


def incident_of(sources: Sources, found: Diagnosis, run_id: str) -> Run:
    """A diagnosis as a run of kind `incident`; it is over when it is made."""
    now = time.time()
    facts = msgspec.to_builtins(found.facts)
    looked = [
        *([f"server {sources.target}"] if sources.target else []),
        *(f"log {Path(path).name}" for path in sources.logs),
        *(f"sweep {Path(path).name}" for path in sources.sweeps),
        *(f"run {name}" for name in sources.runs),
        *(f"{name} = {value}, given" for name, value in sources.facts),
    ]
    context = {
        "findings": [msgspec.to_builtins(finding) for finding in found.findings],
        "facts": {name: value for name, value in facts.items() if not isinstance(value, (list, tuple))},
        "series": found.series,
        "sources": looked,
        "notes": list(found.notes),
        "client": f"tokpit {__version__}",
        "by": getpass.getuser(),
    }
    return Run(
        id=run_id,
        kind="incident",
        target=sources.target or (Path(sources.logs[0]).name if sources.logs else "facts alone"),
        host=(sources.target or "").partition(":")[0].partition("/")[0],
        model=found.facts.model or "",
        engine=found.facts.engine or "",
        started_at=now,
        ended_at=now,
        status="done",
        context=context,
    )


async def save_incident(session: Session, sources: Sources, found: Diagnosis) -> Run:
    """Keep a diagnosis. Raises StoreError."""
    history = await session.history()
    run = incident_of(sources, found, await history.new_run_id())
    await history.save_run(run)
    return run

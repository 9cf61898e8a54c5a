"""Plan a job: stored runs and tables of sweeps become measured configurations for `insight.jobplan`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.run import Run
from tokpit.errors import UsageError
from tokpit.insight.facts import Facts, merged, parse_facts
from tokpit.insight.jobplan import Job, Measured, Plan, make_plan
from tokpit.ops.diagnose.files import read_sweep
from tokpit.ops.sweep.advice import curve_points, facts_of

if TYPE_CHECKING:
    from tokpit.ops.session import Session

_COUNT = re.compile(r"([\d_,]*\.?\d+)\s*([kmg]?)", re.I)
_HOURS = {"": 1.0, "h": 1.0, "d": 24.0, "w": 168.0, "min": 1 / 60}


def read_count(text: str) -> int:
    """A number of requests: `902000`, `902,000`, `902K`, `1.5M`. Raises UsageError."""
    match = _COUNT.fullmatch(text.strip())
    value = float(match[1].replace(",", "").replace("_", "")) if match else 0.0
    value *= {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}[match[2].lower()] if match else 1.0
    if not 1 <= value < 1e15:
        raise UsageError(f"{text!r} is no number of requests", hint="such as 902000 or 902K")
    return round(value)


def read_hours(text: str) -> float:
    """Hours of `72h`, `3d`, `2w`, `90min` or a bare number. Raises UsageError."""
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _HOURS or not float(match[1]) > 0:
        raise UsageError(f"{text!r} is no time", hint="such as 72h, 3d or 90min")
    return float(match[1]) * _HOURS[match[2]]


def measured_run(run: Run, facts: Facts = Facts()) -> Measured:
    """A stored run as a configuration; `facts` are what a person adds."""
    settings: dict[str, Any] = run.context.get("settings") or {}
    known = {name: settings.get(name) for name in ("tp", "pp", "dp")}
    ranks = [int(value) for value in known.values() if isinstance(value, int) and value > 0]
    label = " ".join(filter(None, (f"run {run.id}", run.target, run.model)))
    return Measured(
        label=label,
        points=curve_points(run),
        facts=merged(facts_of(run), facts),
        settings={name: str(value) for name, value in settings.items()},
        gpus=math.prod(ranks) if settings else None,
    )


async def plan_job(
    session: Session, job: Job, *, runs: Sequence[str] = (), sweeps: Sequence[str] = (), facts: dict[str, str]
) -> Plan:
    """The plan from stored runs (begins of ids) and sweep tables; the newest stored sweep where none is named.

    The first is planned with, the others are compared. Raises UsageError where nothing was measured, StoreError.
    """
    measured = [_table(path, facts) for path in sweeps]
    if runs or not sweeps:
        history = await session.history()
        found = [await history.run(run_id) for run_id in runs]
        if not runs:
            found = [run for run in await history.runs(limit=50) if run.kind == "sweep" and curve_points(run)][:1]
            if not found:
                raise UsageError(
                    "no sweep is stored to plan from",
                    hint="measure one with tokpit sweep TARGET, or give a table with --sweep",
                )
        measured = [*(measured_run(run, parsed(facts)) for run in found), *measured]
    plan = make_plan(job, measured)
    if plan is None:
        raise UsageError(f"{measured[0].label}: no level with a rate to plan from")
    return plan


def _table(path: str, facts: dict[str, str]) -> Measured:
    known = parsed(facts)
    ranks = [n for n in (known.tp, known.dp) if n]
    return Measured(
        label=path, points=read_sweep(path), facts=known, gpus=known.gpus or (math.prod(ranks) if ranks else None)
    )


def parsed(facts: dict[str, str]) -> Facts:
    """Facts of `name=value` pairs. Raises UsageError for a value that is none; unknown names are refused too."""
    try:
        known, unknown = parse_facts(facts)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if unknown:
        raise UsageError(f"no plan uses the fact {unknown[0]!r}", hint="such as max_running_requests=9")
    return known


def as_data(plan: Plan) -> dict[str, Any]:
    """A plan as plain data for JSON."""
    data: dict[str, Any] = msgspec.to_builtins(plan)
    return data

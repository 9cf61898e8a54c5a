"""What a sweep says once it is over: the cause of its plateau and the level to run at, by the rules of insight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tokpit.domain.finding import Finding
from tokpit.domain.records import Value
from tokpit.domain.run import Run
from tokpit.insight.facts import Facts, canonical, parse_facts
from tokpit.insight.points import Point, point_of


def findings_of(run: Run) -> tuple[Finding, ...]:
    """What the figures of `run` say, the gravest first."""
    from tokpit.ops.diagnose.run import Gathered, judge

    got = Gathered()
    got.facts = facts_of(run)
    if points := curve_points(run):
        got.sweeps = [(f"run {run.id}", points)]
    return judge(got).findings


def curve_points(run: Run) -> tuple[Point, ...]:
    """The levels that make the curve of `run`: those of a concurrency that are not void."""
    return tuple(
        point_of(level) for level in run.levels if not level.result.get("void") and level.result.get("rate") is None
    )


def facts_of(run: Run) -> Facts:
    """The facts that a run's context froze: what the server said of itself, its settings, and the workload."""
    context = run.context
    settings: Mapping[str, Any] = context.get("settings") or {}
    plan: Mapping[str, Any] = context.get("plan") or {}
    gpus = context.get("gpus") or ()
    known: dict[str, Any] = {
        "state_slots": settings.get("state_slots"),
        **(context.get("facts") or {}),
        "engine": run.engine,
        "model": settings.get("model") or run.model,
        "engine_version": context.get("version"),
        **{name: settings.get(name) for name in ("tp", "dp", "prefix_cache", "hicache_gb")},
        "configured_max_running": settings.get("max_running"),
        "draft_tokens": settings.get("spec_steps"),
        "requested_output": plan.get("max_tokens"),
        "gpu": gpus[0] if gpus else None,
        "gpus": len(gpus) or None,
    }
    return parse_facts({name: str(value) for name, value in known.items() if value not in (None, "")})[0]


def frozen_facts(facts: Mapping[str, Value]) -> dict[str, Value]:
    """The facts of a server's state that rules know, by their names there."""
    named = {canonical(name): value for name, value in facts.items()}
    return {name: value for name, value in named.items() if name is not None and isinstance(value, (str, int, float))}


def stored(findings: tuple[Finding, ...]) -> list[dict[str, Any]]:
    """Findings as plain data for a run's context."""
    return [msgspec.to_builtins(finding) for finding in findings]

"""What a sweep says once it is over: the cause of its plateau and the level to run at, by the rules of insight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tokpit.domain.finding import Finding
from tokpit.domain.records import Value
from tokpit.domain.run import Run
from tokpit.engines.sglang.capacity import overlap_on, slots_per_request
from tokpit.insight.curve import read_curve
from tokpit.insight.diagnose import diagnose
from tokpit.insight.evidence import Evidence
from tokpit.insight.facts import Facts, canonical, parse_facts
from tokpit.insight.points import point_of


def findings_of(run: Run) -> tuple[Finding, ...]:
    """What the figures of `run` say, the gravest first. Void levels are no part of its curve."""
    points = tuple(point_of(level) for level in run.levels)
    sound = [point_of(level) for level in run.levels if not level.result.get("void") and not level.result.get("rate")]
    return diagnose(Evidence(facts=facts_of(run), points=points, curve=read_curve(sound)))


def facts_of(run: Run) -> Facts:
    """The facts that a run's context froze: what the server said of itself, its settings, and the workload."""
    context = run.context
    known: dict[str, Any] = dict(context.get("facts") or {})
    settings, plan = context.get("settings") or {}, context.get("plan") or {}
    known.update({"engine": run.engine, "engine_version": context.get("version"), "model": run.model})
    known.update({name: settings.get(name) for name in ("tp", "dp", "prefix_cache")})
    known["configured_max_running"] = settings.get("max_running")
    known["state_slots"] = known.get("state_slots") or settings.get("state_slots")
    known["requested_output"] = plan.get("max_tokens")
    if known.get("state_slots") and run.engine == "sglang":
        known["slots_per_request"] = _slots_each(settings, context.get("version"))
    gpus = context.get("gpus") or ()
    known["gpu"], known["gpus"] = (gpus[0] if gpus else None), len(gpus) or None
    return parse_facts({name: str(value) for name, value in known.items() if value not in (None, "")})[0]


def _slots_each(settings: Mapping[str, Any], version: str | None) -> int | None:
    speculates = bool(settings.get("spec_method"))
    overlap = overlap_on(version, speculates=speculates, topk=settings.get("spec_topk"))
    prefix_cache = settings.get("prefix_cache") is not False
    return slots_per_request(settings.get("mamba_strategy"), version, prefix_cache=prefix_cache, overlap=overlap)


def frozen_facts(facts: Mapping[str, Value]) -> dict[str, Value]:
    """The facts of a server's state that rules know, by their names there."""
    named = {canonical(name): value for name, value in facts.items()}
    return {name: value for name, value in named.items() if name is not None and isinstance(value, (str, int, float))}


def stored(findings: tuple[Finding, ...]) -> list[dict[str, Any]]:
    """Findings as plain data for a run's context."""
    return [msgspec.to_builtins(finding) for finding in findings]

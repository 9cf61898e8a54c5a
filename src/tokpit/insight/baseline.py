"""Baselines: what a model does on a host with one family of settings, and how much it scatters from run to run."""

from __future__ import annotations

import hashlib
import json
import math
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tokpit.domain.run import Run
from tokpit.insight.intervals import spread_of_logs
from tokpit.insight.measures import METRICS, Key, estimate, grouped, steady_everywhere

FEWEST = 3
"""Runs from which a noise band is taken: with two, Student's t alone makes it nine times their spread."""
MOST = 12
_SETTINGS = (
    *("tp", "dp", "pp", "context_len", "max_running", "dtype", "kv_dtype", "quantization", "prefix_cache"),
    *("spec_method", "spec_steps", "spec_topk", "draft_model", "hicache", "state_slots", "mamba_strategy"),
)
_WORK = ("dataset", "max_tokens", "prefix_share", "turns", "api", "temperature")


class Family(msgspec.Struct, frozen=True):
    """What must be equal for two runs to be repeats of one another; engine version and driver are not part of it."""

    key: str
    text: str
    """In words, for a person."""


class Band(msgspec.Struct, frozen=True):
    """Scatter of one metric at one level over the runs of a baseline."""

    mean: float
    """Geometric mean, in the metric's unit."""
    half: float
    """The next run of an unchanged server lies within mean x e^(+-half), 19 times of 20."""
    runs: int


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that belong together, newest first, and their bands; no band where fewer than three runs have the figure."""

    model: str
    host: str
    family: Family
    runs: tuple[Run, ...]
    bands: dict[tuple[Key, str], Band] = {}

    @property
    def newest(self) -> Run:
        """The run to compare with."""
        return self.runs[0]

    def band(self, key: Key, metric: str) -> Band | None:
        """Scatter of a metric at a level; None: not known."""
        return self.bands.get((key, metric))


def family_of(run: Run) -> Family:
    """The family of a run's settings and workload; what an engine decides by itself is not in it."""
    settings: Mapping[str, Any] = run.context.get("settings") or {}
    plan: Mapping[str, Any] = run.context.get("plan") or {}
    parts = server_part(run.engine, settings)
    parts |= {name: _word(plan[name]) for name in _WORK if plan.get(name) not in (None, "", 0, 0.0)}
    if run.context.get("source"):
        parts["measured by"] = str(run.context["source"])
    text = json.dumps(parts, sort_keys=True)
    words = ", ".join(f"{name}={value}" for name, value in parts.items() if value)
    return Family(hashlib.sha256(text.encode()).hexdigest()[:12], words)


def server_part(engine: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """What of a family is about the server alone: its engine and the settings that decide its speed."""
    return {"engine": engine, **{name: _word(settings[name]) for name in _SETTINGS if settings.get(name) is not None}}


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else posixpath.basename(str(value).rstrip("/"))


def baseline_of(runs: Sequence[Run], family: Family) -> Baseline | None:
    """A baseline from stored runs, newest first; None for no run."""
    runs = tuple(runs)[:MOST]
    if not runs:
        return None
    values: dict[tuple[Key, str], list[float]] = {}
    for run in runs:
        for key, levels in grouped(run).items():
            steady = steady_everywhere(levels)
            for metric in METRICS:
                found = estimate(levels, metric, steady=steady)
                if found is not None:
                    values.setdefault((key, metric.name), []).append(found.value)
    bands = {}
    for place, seen in values.items():
        if len(seen) >= FEWEST:
            mean, half = spread_of_logs(seen)
            bands[place] = Band(math.exp(mean), half, len(seen))
    return Baseline(model=runs[0].model, host=runs[0].host, family=family, runs=runs, bands=bands)

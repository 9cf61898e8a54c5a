"""What of a stored run can be compared: figures by level and metric, each with how well it is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec

from tokpit.domain.run import Level, Run
from tokpit.insight.intervals import mean_half, quantile_half

Key = tuple[str, float]
"""A level: (`C`, concurrency) or (`rate`, offered requests/s)."""


class Metric(msgspec.Struct, frozen=True):
    """One measure. `noise`: how far two runs of an unchanged server may differ where no baseline tells (fraction)."""

    name: str
    label: str
    unit: str
    higher_is_better: bool
    noise: float
    judged: bool = True
    """Whether it can make a regression; else it is shown only."""


METRICS: tuple[Metric, ...] = (
    Metric("output_tps", "throughput", "tok/s", True, 0.05),
    Metric("tpot_p50_s", "TPOT p50", "s", False, 0.05),
    Metric("ttft_p50_s", "TTFT p50", "s", False, 0.20),
    Metric("e2e_p50_s", "E2E p50", "s", False, 0.08),
    Metric("ttft_p99_s", "TTFT p99", "s", False, 0.40, judged=False),
)
"""Widths for want of a baseline: convention, wide enough that a repeated run of a quiet server stays inside."""


class Estimate(msgspec.Struct, frozen=True):
    """A figure and the half width of its 95 % interval; None: not known how well it is known."""

    value: float
    half: float | None = None
    samples: int = 1
    """Runs of the level, or requests behind a percentile."""

    @property
    def log_half(self) -> float | None:
        """The half width as a share."""
        return None if self.half is None else self.half / self.value


def key_of(level: Level) -> Key:
    """Which level it is."""
    rate = level.result.get("rate")
    return ("rate", float(rate)) if isinstance(rate, (int, float)) else ("C", float(level.concurrency))


def key_name(key: Key) -> str:
    """`C=8`, `2 req/s`."""
    return f"C={key[1]:g}" if key[0] == "C" else f"{key[1]:g} req/s"


def grouped(run: Run) -> dict[Key, list[Level]]:
    """The levels that say something about the server, repeats together; void ones are left out."""
    found: dict[Key, list[Level]] = {}
    for level in run.levels:
        if level.ok and not level.result.get("void"):
            found.setdefault(key_of(level), []).append(level)
    return dict(sorted(found.items()))


def steady_everywhere(levels: Sequence[Level]) -> bool:
    """Whether each of these has a steady window."""
    return all(level.steady_tps is not None for level in levels)


def estimate(levels: Sequence[Level], metric: Metric, *, steady: bool) -> Estimate | None:
    """A metric of one level from its repeats; `steady`: throughput of the window instead of the whole run."""
    single = [found for level in levels if (found := _of(level, metric.name, steady)) is not None]
    if not single:
        return None
    if len(single) == 1:
        return single[0]
    values = [one.value for one in single]
    return Estimate(fmean(values), mean_half(values), len(values))


def _of(level: Level, name: str, steady: bool) -> Estimate | None:
    result: Mapping[str, Any] = level.result
    if name == "output_tps":
        value = level.steady_tps if steady else level.output_tps
        if not value or value <= 0:
            return None
        return Estimate(value, number(result.get("steady_ci")) if steady else None)
    what, _, part = name.removesuffix("_s").partition("_")
    at = float(part[1:]) / 100
    samples = sorted(_samples(result, what))
    dist = result.get(f"{what}_s")
    value = number(dist.get(part)) if isinstance(dist, Mapping) else None
    if value is None and part == "p50":
        value = {"ttft": level.ttft_p50_s, "e2e": level.e2e_p50_s}.get(what)
    if value is None or value <= 0:
        return None
    if part in (dist.get("thin") or () if isinstance(dist, Mapping) else ()):
        return None  # a percentile on fewer samples than its tail needs is the maximum by another name
    half = quantile_half(samples, at) if samples else None
    if half is None and part == "p50" and isinstance(dist, Mapping) and (n := number(dist.get("n"))) and n >= 5:
        half = 1.96 * 1.2533 * (number(dist.get("sd")) or 0.0) / math.sqrt(n)  # of the median of a normal shape
    return Estimate(value, half, len(samples) or 1)


def _samples(result: Mapping[str, Any], what: str) -> list[float]:
    """Values of single requests, from the rows (sent at, TTFT, E2E, output tokens, outcome) that a level keeps."""
    found = []
    for row in result.get("rows") or ():
        if len(row) < 5 or row[4] != "ok":
            continue
        ttft, e2e, tokens = number(row[1]), number(row[2]), number(row[3])
        if what == "ttft" and ttft is not None:
            found.append(ttft)
        elif what == "e2e" and e2e is not None:
            found.append(e2e)
        elif what == "tpot" and ttft is not None and e2e is not None and tokens and tokens > 1:
            found.append((e2e - ttft) / (tokens - 1))
    return found


def number(value: object) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)

"""Statistics over plain numbers: exact percentiles, confidence by batch means, Little's law."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter, mul
from typing import Any

_PERCENTILES = (("p50", 0.50), ("p90", 0.90), ("p95", 0.95), ("p99", 0.99))
# Student's t, two-sided 95 %, by degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Dist:
    """A distribution in the unit of its samples. Percentiles are exact (linear between the two nearest samples)."""

    n: int
    mean: float
    sd: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    thin: tuple[str, ...] = ()
    """Percentiles that rest on fewer samples than one in their tail: read them as about the maximum."""

    @classmethod
    def from_dict(cls, data: dict[str, Any] | None) -> Dist | None:
        """The other way of `dataclasses.asdict`."""
        return None if data is None else cls(**{**data, "thin": tuple(data.get("thin", ()))})


def percentile(ordered: Sequence[float], share: float) -> float:
    """The `share` quantile (0 to 1) of sorted samples, linear between neighbours; raises ValueError for none."""
    if not ordered:
        raise ValueError("no samples")
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def dist(samples: Iterable[float]) -> Dist | None:
    """The distribution of `samples`; None if there are none."""
    ordered = sorted(samples)
    n = len(ordered)
    if not n:
        return None
    mean = math.fsum(ordered) / n
    around = [value - mean for value in ordered]
    sd = math.sqrt(math.fsum(map(mul, around, around)) / (n - 1)) if n > 1 else 0.0
    values = {name: percentile(ordered, share) for name, share in _PERCENTILES}
    return Dist(n=n, mean=mean, sd=sd, min=ordered[0], max=ordered[-1], thin=_thin(n), **values)


def shifted(samples: Iterable[float], share: float) -> dict[str, tuple[float, float]]:
    """Between which two values each percentile lies when `share` of the samples is too low and as much too high.

    A sample that was raised or lowered moves its neighbours by one rank at most, whatever its size: the true
    p-quantile is not below the (p - share)-quantile of what was seen, and not above the (p + share)-quantile.
    """
    ordered = sorted(samples)
    if not ordered:
        return {}
    return {
        name: (percentile(ordered, max(0.0, at - share)), percentile(ordered, min(1.0, at + share)))
        for name, at in _PERCENTILES
    }


def weighted_dist(pairs: Iterable[tuple[float, float]]) -> Dist | None:
    """The distribution of (value, weight) pairs, as if each value stood there `weight` times; None without weight.

    Percentiles are the smallest value at which the share of the weight is reached. `n` is the weight, rounded.
    """
    ordered = sorted((pair for pair in pairs if pair[1] > 0), key=itemgetter(0))
    if not ordered:
        return None
    values, weights = zip(*ordered)
    total = math.fsum(weights)
    mean = math.fsum(map(mul, values, weights)) / total
    around = [value - mean for value in values]
    sd = math.sqrt(math.fsum(map(mul, weights, map(mul, around, around))) / total)
    reached = list(accumulate(weights))
    last = len(ordered) - 1
    found = {name: values[min(last, bisect_left(reached, share * total * (1 - 1e-12)))] for name, share in _PERCENTILES}
    n = round(total)
    return Dist(n=n, mean=mean, sd=sd, min=values[0], max=values[-1], thin=_thin(n), **found)


def _thin(n: int) -> tuple[str, ...]:
    return tuple(name for name, share in _PERCENTILES if n * (1 - share) < 1 - 1e-9)


def batch_means(batches: Sequence[float]) -> tuple[float, float]:
    """Mean and half width of its 95 % interval from batches of equal length (method of batch means).

    Neighbouring batches that depend on each other (lag-1 correlation over 0.25) are joined in pairs first. Raises
    ValueError for fewer than four batches.
    """
    values = list(batches)
    if len(values) < 4:
        raise ValueError("batch means need at least four batches")
    if len(values) >= 8 and lag1(values) > 0.25:
        values = [(values[i] + values[i + 1]) / 2 for i in range(0, len(values) - 1, 2)]
    n = len(values)
    mean = math.fsum(values) / n
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return mean, t95(n - 1) * math.sqrt(variance / n)


def lag1(values: Sequence[float]) -> float:
    """Correlation of each value with the next one, -1 to 1; 0 for a constant series."""
    n = len(values)
    mean = math.fsum(values) / n
    around = [value - mean for value in values]
    total = math.fsum(value * value for value in around)
    return math.fsum(around[i] * around[i + 1] for i in range(n - 1)) / total if total > 0 else 0.0


def t95(freedom: int) -> float:
    """Student's t for a two-sided 95 % interval."""
    return _T95[freedom - 1] if freedom <= len(_T95) else 1.96 + 2.4 / freedom


def little_in_flight(rate_per_s: float, latency_s: float) -> float:
    """Mean number in the system, L = lambda W (Little's law)."""
    return rate_per_s * latency_s

"""Intervals for few samples: Student's t for any share, medians by order statistics, bands for the next value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

SHARE = 0.95


def t_quantile(freedom: int, share: float = SHARE) -> float:
    """Student's t, two-sided, so that `share` lies within; exact for 1 and 2 degrees of freedom, else within 0.3 %.

    Series of Abramowitz and Stegun 26.7.5 in 1 / freedom. Raises ValueError below one degree of freedom.
    """
    if freedom < 1:
        raise ValueError("an interval needs two samples")
    if freedom == 1:
        return math.tan(math.pi * share / 2)
    if freedom == 2:
        return share * math.sqrt(2 / (1 - share * share))
    z, n = NormalDist().inv_cdf((1 + share) / 2), float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / n**power for power, term in enumerate(terms, 1))


def mean_half(values: Sequence[float], share: float = SHARE) -> float:
    """Half width of the interval of the mean of at least two values."""
    return t_quantile(len(values) - 1, share) * stdev(values) / math.sqrt(len(values))


def next_half(values: Sequence[float], share: float = SHARE) -> float:
    """How far the next value may lie from the mean of at least two (prediction interval): t s sqrt(1 + 1/n)."""
    return t_quantile(len(values) - 1, share) * stdev(values) * math.sqrt(1 + 1 / len(values))


def quantile_half(ordered: Sequence[float], at: float, share: float = SHARE) -> float | None:
    """Half width of the interval of the `at` quantile of sorted samples, by ranks: n at +- z sqrt(n at (1 - at)).

    Free of any shape of the distribution. None where a rank falls off the end, as p99 of a hundred samples does.
    """
    n = len(ordered)
    spread = NormalDist().inv_cdf((1 + share) / 2) * math.sqrt(n * at * (1 - at))
    low, high = math.floor(n * at - spread), math.ceil(n * at + spread)
    if n < 5 or low < 0 or high > n - 1:
        return None
    return (ordered[high] - ordered[low]) / 2


def spread_of_logs(values: Sequence[float]) -> tuple[float, float]:
    """Mean of the logarithms of positive values, and the half width for the next one (see `next_half`)."""
    logs = [math.log(value) for value in values]
    return fmean(logs), next_half(logs)

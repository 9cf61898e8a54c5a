"""A against B from alternating blocks: the ratio with its interval, and what may be said of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from tokpit.load.stats import t95


class Versus(msgspec.Struct, frozen=True, kw_only=True):
    """B against A. Ratios: 1.1 is 10 % more of what was measured. `low` and `high`: 95 % interval; None: one pair."""

    pairs: int
    ratio: float
    low: float | None = None
    high: float | None = None
    drift: float | None = None
    """Change of A from its first block to its last, as a ratio."""

    def verdict(self, noise: float) -> str:
        """In a sentence. Differences within `noise` (relative) are called none."""
        change = f"B gives {(self.ratio - 1) * 100:+.1f} % against A"
        if self.low is None or self.high is None:
            return f"{change}, from one pair of blocks: no interval, so no verdict"
        told = f"{change} ({(self.low - 1) * 100:+.1f} to {(self.high - 1) * 100:+.1f} %, {self.pairs} pairs)"
        if self.low > 1 + noise:
            return f"{told}: B is better"
        if self.high < 1 - noise:
            return f"{told}: A is better"
        if self.low >= 1 - noise and self.high <= 1 + noise:
            return f"{told}: the same within {noise:.0%}"
        if self.low > 1:
            return f"{told}: B is probably better, by less than is sure to exceed {noise:.0%}"
        if self.high < 1:
            return f"{told}: A is probably better, by less than is sure to exceed {noise:.0%}"
        return f"{told}: no difference shown; more blocks would narrow it"


def order(blocks: int) -> list[str]:
    """`A B B A A B`: each pair the other way round, so that a drift does not favour one; neighbours share a start."""
    return [side for pair in range(blocks) for side in (("A", "B") if pair % 2 == 0 else ("B", "A"))]


def compare(a: Sequence[float], b: Sequence[float]) -> Versus:
    """Blocks of A and B in the order measured, paired; values > 0. Raises ValueError without a pair."""
    pairs = list(zip(a, b, strict=False))
    if not pairs or min(min(pair) for pair in pairs) <= 0:
        raise ValueError("no pair of blocks has a value on both sides")
    logs = [math.log(y / x) for x, y in pairs]
    mean = math.fsum(logs) / len(logs)
    drift = a[-1] / a[0] if len(a) > 1 else None
    if len(logs) < 2:
        return Versus(pairs=1, ratio=math.exp(mean), drift=drift)
    spread = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (len(logs) - 1))
    half = t95(len(logs) - 1) * spread / math.sqrt(len(logs))
    return Versus(
        pairs=len(logs), ratio=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), drift=drift
    )

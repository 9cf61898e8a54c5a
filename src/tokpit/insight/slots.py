"""State slots of a pool, from printed numbers and usages."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.insight.digest import Row


def pool_sizes(rows: Sequence[Row]) -> tuple[int, ...]:
    """Every whole number of slots that makes each printed usage (two decimals) of the printed number held."""
    pairs = {(r.state_num, r.state_usage) for r in rows if r.state_num and r.state_usage}
    if not pairs:
        return ()
    held_most, usage = max(pairs)
    assert held_most
    assert usage
    low, high = held_most / (usage + 0.005), held_most / max(usage - 0.005, 0.001)
    return tuple(
        n
        for n in range(max(1, int(low)), int(high) + 2)
        if all(abs((number or 0.0) / n - (share or 0.0)) <= 0.0051 for number, share in pairs)
    )


def total_slots(rows: Sequence[Row]) -> int | None:
    """The likeliest size of the pool: of those that fit, the nearest to number / usage of the fullest row."""
    fits = pool_sizes(rows)
    pairs = [(r.state_num, r.state_usage) for r in rows if r.state_num and r.state_usage]
    if not fits:
        return None
    held_most, usage = max(pairs)
    return min(fits, key=lambda n: abs((held_most or 0.0) / n - (usage or 0.0)))


def held(rows: Sequence[Row]) -> float:
    """Most state slots that one running request holds."""
    return max((r.state_num / r.running for r in rows if r.state_num and r.running), default=0.0)

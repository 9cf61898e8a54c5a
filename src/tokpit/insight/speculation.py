"""What speculative decoding pays: expected acceptance length, cost of a step, break-even, gain by draft length."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tokpit.insight.facts import Facts

MOST_DRAFTS = 8


def expected_length(p: float, k: int) -> float:
    """Acceptance length of k draft tokens, each accepted with p where those before were: 1 + p + ... + p^k."""
    return sum(p**i for i in range(k + 1))


def length_of_positions(rates: Sequence[float], k: int | None = None) -> float:
    """Acceptance length from the share of steps in which draft token i was accepted: 1 + their sum."""
    return 1.0 + sum(rates[:k])


def acceptance_of(length: float, k: int) -> float | None:
    """The constant p that gives this acceptance length with k draft tokens, by bisection; None outside 1..k+1."""
    if k < 1 or not 1 <= length <= k + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_length(middle, k) < length else (low, middle)
    return (low + high) / 2


def step_ratio(length: float, spec_tps: float, baseline_tps: float) -> float:
    """Time of a speculative step / time of a plain one: (length / spec tok/s) / (1 / plain tok/s). Pays if < length."""
    return length * baseline_tps / spec_tps


class Gain(msgspec.Struct, frozen=True):
    """Speed-up over no speculation with k draft tokens; `length` tokens a step, a step `cost` plain ones."""

    k: int
    length: float
    cost: float
    other_cost: float
    """The cost if drafting takes the same time whatever k is (one pass of the drafter)."""

    @property
    def span(self) -> tuple[float, float]:
        """Speed-up between the two ideas of what a draft token costs."""
        found = (self.length / self.cost, self.length / self.other_cost)
        return min(found), max(found)

    @property
    def speedup(self) -> float:
        """Throughput of one stream / that without speculation."""
        return self.length / self.cost


def gains(p: float, ratio: float, k_now: int, *, positions: Sequence[float] = ()) -> tuple[Gain, ...]:
    """Gain for k = 0..8, each draft token adding the same cost: cost(k) = 1 + (ratio - 1) x k / k_now.

    Per-position rates are taken where they are known, constant p goes on from the last one.
    """
    each = max(0.0, ratio - 1) / max(1, k_now)
    found = []
    for k in range(MOST_DRAFTS + 1):
        rates = list(positions[:k])
        while len(rates) < k:
            rates.append((rates[-1] if rates else 1.0) * p)
        found.append(Gain(k, 1 + sum(rates), 1 + each * k, max(1.0, ratio) if k else 1.0))
    return tuple(found)


def draft_length(facts: Facts) -> int | None:
    """Draft tokens a step: given, or (length - 1) / rate."""
    if facts.draft_tokens:
        return round(facts.draft_tokens)
    if facts.accept_len and facts.accept_rate and facts.accept_len > 1:
        return max(1, round((facts.accept_len - 1) / facts.accept_rate))
    return None

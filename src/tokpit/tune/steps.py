"""What is known of steps and acceptance from the candidates measured so far: bounds that hold, and a guess that orders.

Bounds rest on what cannot be otherwise: a step with more drafts or more requests is not shorter, and reads the weights
once at least (roofline); a further draft position is not accepted more often than those before it. The guess is a step
time linear in drafts and running requests, fitted to every measured level:
step = a + b k + (n - 1) (c + d k), all >= 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tokpit.insight.fits import least_squares
from tokpit.insight.roofline import Roofline
from tokpit.insight.speculation import acceptance_of, expected_length

_DRAFT_SHARE, _REQUEST_SHARE = 0.12, 0.02
"""Before anything is measured: a draft costs 12 % of a plain step, one more request 2 %. Only orders candidates."""
_GUESS_WEIGHT = 0.05
_USUAL_RATE = 0.7
"""Acceptance of a draft, before any was measured. Only orders candidates."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One measured level: `drafts` a step, `running` requests, `tps` in all (`high`: the upper end of its interval)."""

    drafts: int
    running: int
    ranks: int
    tps: float
    high: float
    accept_len: float | None = None

    def step_s(self) -> float | None:
        """Mean time of a step; None where the acceptance is not known."""
        length = self.accept_len if self.drafts else 1.0
        return self.running * length / self.tps if length else None


class Steps:
    """See the module docstring."""

    def __init__(self, roofline: Roofline | None = None) -> None:
        self._roofline = roofline
        self._seen: list[Seen] = []
        self._lengths: dict[int, float] = {}
        self._fit: list[float] | None = None

    def add(self, seen: Seen) -> None:
        """Take a measured level in."""
        self._seen.append(seen)
        if seen.drafts and seen.accept_len:
            earlier = self._lengths.get(seen.drafts)
            # The mean of what the levels say: texts differ, acceptance follows them.
            self._lengths[seen.drafts] = seen.accept_len if earlier is None else (earlier + seen.accept_len) / 2
        self._fit = None

    @property
    def measured(self) -> frozenset[int]:
        """Numbers of drafts that were measured."""
        return frozenset(seen.drafts for seen in self._seen)

    def length_at_most(self, drafts: int) -> float:
        """Tokens a step can give: drafts + 1, less what measured lengths leave room for."""
        bound = 1.0 + drafts
        for k, length in self._lengths.items():
            bound = min(bound, length if drafts <= k else length + (drafts - k) * (length - 1) / k)
        return bound

    def length(self, drafts: int) -> float:
        """Tokens a step will probably give: measured, else from the constant acceptance of the nearest measured."""
        if not drafts:
            return 1.0
        if drafts in self._lengths:
            return self._lengths[drafts]
        if not self._lengths:
            return expected_length(_USUAL_RATE, drafts)
        near = min(self._lengths, key=lambda k: abs(k - drafts))
        p = acceptance_of(self._lengths[near], near)
        return min(expected_length(p if p is not None else _USUAL_RATE, drafts), self.length_at_most(drafts))

    def step_at_least(self, drafts: int, running: int, ranks: int) -> float:
        """Seconds that a step takes at least; 0: nothing is known."""
        bound = self._roofline.each_gb / self._roofline.bandwidth_gbps if self._roofline is not None else 0.0
        if self._roofline is not None:
            bound *= self._roofline.gpus / max(1, ranks)
        for seen in self._seen:
            if seen.drafts <= drafts and seen.running <= running and seen.ranks >= ranks:
                length = 1.0 if not seen.drafts else (seen.accept_len or 1.0)
                bound = max(bound, seen.running * length / seen.high)
        return bound

    def rate_at_most(self, drafts: int, running: int, ranks: int) -> float | None:
        """tok/s that so many running requests can give at most; None: nothing is known."""
        step = self.step_at_least(drafts, running, ranks)
        return running * self.length_at_most(drafts) / step if step > 0 else None

    def rate(self, drafts: int, running: int, ranks: int) -> float | None:
        """tok/s by the fitted steps; None before anything was measured."""
        fit = self._fitted()
        if fit is None:
            return None
        step = sum(a * b for a, b in zip(fit, _row(drafts, running, ranks), strict=True))
        return running * self.length(drafts) / step if step > 0 else None

    def _fitted(self) -> list[float] | None:
        if self._fit is None and self._seen:
            self._fit = self._solve()
        return self._fit

    def _solve(self) -> list[float] | None:
        rows: list[list[float]] = []
        targets: list[float] = []
        plain: Sequence[float] = ()
        for seen in self._seen:
            length = seen.accept_len or self.length(seen.drafts)
            step = seen.running * (length if seen.drafts else 1.0) / seen.tps
            usual = 1 + _DRAFT_SHARE * seen.drafts + _REQUEST_SHARE * (seen.running - 1) * (1 + 0.5 * seen.drafts)
            plain = (*plain, step * seen.ranks / usual)
            rows.append([x / step for x in _row(seen.drafts, seen.running, seen.ranks)])
            targets.append(1.0)
        # A weak pull towards the usual shares, so that what no level tells apart yet is not taken for nothing.
        base = sorted(plain)[len(plain) // 2]
        guess = (base, _DRAFT_SHARE * base, _REQUEST_SHARE * base, 0.5 * _REQUEST_SHARE * base)
        for index, value in enumerate(guess):
            rows.append([_GUESS_WEIGHT / value if i == index else 0.0 for i in range(4)])
            targets.append(_GUESS_WEIGHT)
        return least_squares(rows, targets)


def _row(drafts: int, running: int, ranks: int) -> list[float]:
    share = 1 / max(1, ranks)
    return [share, drafts * share, (running - 1) * share, (running - 1) * drafts * share]

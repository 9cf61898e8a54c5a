"""Which finished requests are told one by one: all would flood a screen, or the pipe to it."""

from __future__ import annotations

import time

from .clock import Clock
from .events import RequestFinished
from .stream import Exchange
from .summary import times

SAMPLES_PER_S = 10
FIRST = 3
"""Of every outcome, so many are told whatever the rate."""


class Sampler:
    """Lets the first three of every outcome through, and ten a second of the others."""

    def __init__(self) -> None:
        self._second = -1
        self._count = 0
        self._seen: dict[str, int] = {}

    def wanted(self, outcome: str) -> bool:
        """Whether one more request with `outcome` is told."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._count = second, 0
        seen = self._seen[outcome] = self._seen.get(outcome, 0) + 1
        if seen > FIRST and self._count >= SAMPLES_PER_S:
            return False
        self._count += 1
        return True


def told(x: Exchange, level: int, begun_ns: int, clock: Clock) -> RequestFinished:
    """The event for `x`, of a level that began at `begun_ns`."""
    one = times(x, clock) if x.t_sent and x.t_first else None
    return RequestFinished(
        level=level,
        index=x.index,
        outcome=x.outcome,
        detail=x.detail,
        ttft_s=one.ttft_s if one else None,
        e2e_s=one.e2e_s if one else None,
        output_tokens=x.tokens,
        at_s=clock.host_s(x.t_end - begun_ns),
    )

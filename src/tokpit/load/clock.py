"""Time: raw monotonic nanoseconds inside, the host's clock outside, kernel stamps brought over from real time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from operator import sub

now_ns = time.monotonic_ns


class Clock:
    """Brings kernel receive stamps (CLOCK_REALTIME) to the monotonic clock, and raw durations to the host's clock.

    `factor` multiplies every duration: a simulated host that runs 20 times faster than the wall gives figures on its
    own clock with factor 20.
    """

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor
        self.offset_ns = 0
        """Real time less monotonic time."""
        self.steps = 0
        """How often real time jumped by over 1 ms since the last look (an NTP step): stamps near it are off."""
        self.refresh(first=True)

    def refresh(self, *, first: bool = False) -> None:
        """Measures the distance of the two clocks again; cheap, called many times a second."""
        before = time.monotonic_ns()
        real = time.time_ns()
        offset = real - (before + time.monotonic_ns()) // 2
        if not first and abs(offset - self.offset_ns) > 1_000_000:
            self.steps += 1
        self.offset_ns = offset

    def from_realtime(self, stamp_ns: int) -> int:
        """A kernel stamp on the monotonic clock."""
        return stamp_ns - self.offset_ns

    def host_s(self, raw_ns: float) -> float:
        """A raw duration in nanoseconds as seconds of the host's clock."""
        return raw_ns * self.factor / 1e9

    def gaps_s(self, stamps_ns: Sequence[int]) -> list[float]:
        """The seconds between each stamp and the next one on the host's clock; one fewer than there are stamps."""
        factor = self.factor
        return [gap * factor / 1e9 for gap in map(sub, stamps_ns[1:], stamps_ns)]

    def real_s(self, host_s: float) -> float:
        """A duration on the host's clock as seconds to wait here."""
        return host_s / self.factor

"""The clock of the simulated host: starts at real UTC and runs `factor` times as fast."""

from __future__ import annotations

import time


class SimClock:
    """Simulated UTC seconds from a shared origin, so that every process of one host reads the same time."""

    def __init__(self, factor: float, origin_utc: float, origin_monotonic: float) -> None:
        self.factor = factor
        self._utc = origin_utc
        self._mono = origin_monotonic

    def now(self) -> float:
        """Simulated UTC seconds."""
        return self._utc + (time.monotonic() - self._mono) * self.factor

    def real_delay(self, until: float) -> float:
        """Real seconds from now to the simulated moment `until`; never negative."""
        return max(0.0, (until - self.now()) / self.factor)

    @staticmethod
    def stamp(t: float) -> str:
        """`YYYY-MM-DD HH:MM:SS`, the form of SGLang's log; the simulated host's zone is UTC."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(t))

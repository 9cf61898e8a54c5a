"""A closed loop of equal requests on a batching engine: they run in waves of min(C, cap).

A level of n requests takes floor(n / m) full waves and one of the rest; a wave of m takes as long as one request with m
running. The last wave is emptier, so the whole-run rate of a level rises with n although the engine's does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tokpit.insight.points import Point


class WaveModel(msgspec.Struct, frozen=True):
    """Seconds that a request runs with m at once, for some m (rising); linear between them, flat outside."""

    times: tuple[tuple[float, float], ...]
    cap: int

    def service_s(self, running: float) -> float:
        """Seconds that a request runs with this many at once."""
        before = self.times[0]
        if running <= before[0]:
            return before[1]
        for after in self.times[1:]:
            if running <= after[0]:
                share = (running - before[0]) / (after[0] - before[0])
                return before[1] + share * (after[1] - before[1])
            before = after
        return before[1]

    def waves(self, concurrency: int, requests: int) -> tuple[int, int]:
        """Full waves, and requests in the last one (0: none)."""
        m = min(concurrency, self.cap)
        return requests // m, requests % m

    def elapsed_s(self, concurrency: int, requests: int) -> float:
        """Whole run of a level."""
        m = min(concurrency, self.cap)
        full, rest = self.waves(concurrency, requests)
        return full * self.service_s(m) + (self.service_s(rest) if rest else 0.0)

    def last_wave_share(self, concurrency: int, requests: int) -> float:
        """Share of the run in which fewer than min(C, cap) run."""
        rest = self.waves(concurrency, requests)[1]
        return self.service_s(rest) / self.elapsed_s(concurrency, requests) if rest else 0.0

    def output_tps(self, concurrency: int, requests: int, tokens: float) -> float:
        """Whole-run rate of a level."""
        return requests * tokens / self.elapsed_s(concurrency, requests)

    def steady_tps(self, concurrency: int, tokens: float) -> float:
        """Rate while min(C, cap) run."""
        m = min(concurrency, self.cap)
        return m * tokens / self.service_s(m)


def wave_model(points: Sequence[Point], cap: int) -> WaveModel | None:
    """The model of a sweep, given the cap; None where no level is at or below it.

    Below the cap a level's time over its number of waves is the request time; at the cap it follows from the levels
    above, whose last wave is taken off, and is not less than that of the largest level below.
    """
    below = [p for p in points if p.concurrency <= cap]
    above = [p for p in points if p.concurrency > cap]
    if not below or any(not p.timed for p in points):
        return None
    times: list[tuple[float, float]] = []
    for p in below:
        waves = -(-p.ok // p.concurrency)
        longest = times[-1][1] if times else 0.0
        times.append((float(p.concurrency), max(longest, p.elapsed_s / waves)))
    model = WaveModel(tuple(times), cap)
    if not above or times[-1][0] >= cap:
        return model
    found = []
    for p in above:
        full, rest = model.waves(p.concurrency, p.ok)
        if full:
            found.append((full, (p.elapsed_s - (model.service_s(rest) if rest else 0.0)) / full))
    if not found:
        return model
    mean = sum(full * t for full, t in found) / sum(full for full, _ in found)
    return WaveModel((*times, (float(cap), max(mean, times[-1][1]))), cap)

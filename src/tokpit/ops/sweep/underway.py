"""The rate of a level while it runs, with its interval: enough to see that going on with it would be in vain. Pure."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tokpit.load.events import Progress

LOOKS = 20
"""At most so many times a level is judged while it runs."""
WIDER = 1.8
"""Each of many looks has its own chance to err. Pocock's boundary for twenty of them (Biometrika 64, 1977: z = 2.67, or
0.75 % each) keeps all together within 5 %. For the five batches that pairs of ten leave, Student's t at that level is
4.99 instead of 2.78."""
BATCHES = 10
MIN_CHUNKS = 200
MIN_DONE = 2
"""Requests that must have ended: before, nobody knows how many tokens a chunk holds."""
_BUSY_SHARE = 0.8


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Output tok/s so far, with the half width of its interval over all looks."""

    concurrency: int
    tps: float
    half: float
    done: int
    elapsed_s: float


class Underway:
    """One closed-loop level. `total`: its requests, or None where it lasts `duration_s`.

    What counts begins with the first text after 80 % of the slots were taken, and ends when they empty: the wait for
    the first prompts would make a level look slower than it is, and every later look is better than an early one.
    """

    def __init__(self, concurrency: int, *, total: int | None, duration_s: float | None) -> None:
        self._concurrency, self._total, self._duration_s = concurrency, total, duration_s
        self._times: list[float] = []
        self._chunks: list[int] = []
        self._looked = 0

    def add(self, seen: Progress) -> Rate | None:
        """Take a progress line in; the rate, where it is time for a look and there is enough to see."""
        busy = seen.running >= _BUSY_SHARE * self._concurrency
        if busy and seen.chunks > 0 and (not self._times or seen.elapsed_s > self._times[-1]):
            self._times.append(seen.elapsed_s)
            self._chunks.append(seen.chunks)
        share = self._share(seen)
        if not busy or seen.ok < MIN_DONE or share * LOOKS < self._looked + 1:
            return None
        found = self._rate(seen)
        if found is not None:
            self._looked = int(share * LOOKS)
        return found

    def _share(self, seen: Progress) -> float:
        if self._duration_s:
            return seen.elapsed_s / self._duration_s
        return seen.done / self._total if self._total else 0.0

    def _rate(self, seen: Progress) -> Rate | None:
        from tokpit.load.stats import batch_means

        if len(self._times) <= BATCHES or self._chunks[-1] - self._chunks[0] < MIN_CHUNKS:
            return None
        begin, end = self._times[0], self._times[-1]
        edges = [self._at(begin + (end - begin) * number / BATCHES) for number in range(BATCHES + 1)]
        length = (end - begin) / BATCHES
        mean, half = batch_means([(b - a) / length for a, b in pairwise(edges)])
        each = seen.tokens / seen.chunks
        return Rate(
            concurrency=self._concurrency,
            tps=mean * each,
            half=half * each * WIDER,
            done=seen.ok,
            elapsed_s=seen.elapsed_s,
        )

    def _at(self, t: float) -> float:
        """Chunks at a time between two lines, linear between them."""
        after = min(max(1, bisect_right(self._times, t)), len(self._times) - 1)
        low, high = self._times[after - 1], self._times[after]
        share = (t - low) / (high - low)
        return self._chunks[after - 1] + share * (self._chunks[after] - self._chunks[after - 1])

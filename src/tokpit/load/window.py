"""When a level was in a steady state, and what it did meanwhile. Pure; times in raw nanoseconds."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from .stats import batch_means
from .stream import Exchange

BUSY_SHARE = 0.8
MIN_CHUNKS = 200
"""Chunks in a window below which no interval is given: ten batches of twenty."""
MANY_CHUNKS = 2000


@dataclass(frozen=True)
class Window:
    """A stretch of a level. `kind`: `busy` (>= 80 % of C in flight), `time` (after the first request), `offered`."""

    start_ns: int
    end_ns: int
    kind: str

    @property
    def length_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Steady:
    """Output tokens per raw second in a window, with the half width of the 95 % interval (None: too few samples)."""

    tokens_per_s: float
    half_width: float | None
    batches: tuple[float, ...] = ()
    completed: int = 0
    chunks: int = 0


def in_flight_profile(exchanges: Sequence[Exchange]) -> list[tuple[int, int]]:
    """(time, number in flight from then on), in order of time."""
    changes: dict[int, int] = {}
    for x in exchanges:
        start = x.t_sent or x.t_start
        if not start or x.t_end <= start:
            continue
        changes[start] = changes.get(start, 0) + 1
        changes[x.t_end] = changes.get(x.t_end, 0) - 1
    profile, running = [], 0
    for at in sorted(changes):
        running += changes[at]
        profile.append((at, running))
    return profile


def peak_and_mean(profile: Sequence[tuple[int, int]], start_ns: int, end_ns: int) -> tuple[int, float]:
    """Most and mean number in flight between two times."""
    if end_ns <= start_ns:
        return 0, 0.0
    peak, area = 0, 0.0
    for position, (at, running) in enumerate(profile):
        until = profile[position + 1][0] if position + 1 < len(profile) else end_ns
        low, high = max(at, start_ns), min(until, end_ns)
        if high > low:
            peak = max(peak, running)
            area += running * (high - low)
    return peak, area / (end_ns - start_ns)


def closed_window(exchanges: Sequence[Exchange], concurrency: int) -> Window | None:
    """The steady window of a closed loop; None if there is none.

    From the first to the last moment at which at least 80 % of C requests were in flight: ramp-up and drain, where
    slots are empty, would pull the figure down. With one request at a time every moment is busy, and the first
    request bears what is cold: there the window runs from the end of the first request to the end of the last.
    """
    if concurrency == 1:
        ends = sorted(x.t_end for x in exchanges if x.outcome == "ok")
        return Window(ends[0], ends[-1], "time") if len(ends) >= 3 else None
    need = math.ceil(BUSY_SHARE * concurrency - 1e-9)
    start = end = 0
    full = False
    for at, running in in_flight_profile(exchanges):
        if running >= need:
            start = start or at
            full = True
        elif full:
            end, full = at, False
    return Window(start, end, "busy") if start and end > start else None


def open_window(exchanges: Sequence[Exchange]) -> Window | None:
    """The steady window of an open loop: after one typical request time, until the last arrival; None if empty."""
    done = sorted(x.t_end - x.t_sent for x in exchanges if x.outcome == "ok")
    starts = sorted(x.t_sent for x in exchanges if x.t_sent)
    if len(done) < 5:
        return None
    start, end = starts[0] + done[len(done) // 2], starts[-1]
    return Window(start, end, "offered") if end > start else None


def chunk_tokens(x: Exchange, per_chunk: float) -> list[float]:
    """Output tokens of every chunk of `x`: counted where usage came with each, else spread evenly.

    `per_chunk` stands in where the answer broke off before its usage.
    """
    n = len(x.stamps)
    if not n:
        return []
    if len(x.cum_tokens) == n:
        return [float(x.cum_tokens[0]), *(float(x.cum_tokens[i] - x.cum_tokens[i - 1]) for i in range(1, n))]
    each = x.completion_tokens / n if x.completion_tokens is not None else per_chunk
    return [each] * n


def counted(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """The requests whose tokens are output: the good ones, and the cut ones of a level that was stopped."""
    return [x for x in exchanges if x.outcome in ("ok", "cancelled")]


def steady_rate(exchanges: Sequence[Exchange], window: Window, per_chunk: float) -> Steady | None:
    """Output rate in `window`; None if nothing was completed in it."""
    if window.length_ns <= 0:
        return None
    tokens, chunks, completed = 0.0, 0, 0
    spans: list[tuple[Exchange, list[float], int, int]] = []
    for x in counted(exchanges):
        completed += x.outcome == "ok" and window.start_ns < x.t_end <= window.end_ns
        low, high = bisect_right(x.stamps, window.start_ns), bisect_right(x.stamps, window.end_ns)
        if high > low:
            weights = chunk_tokens(x, per_chunk)
            spans.append((x, weights, low, high))
            tokens += math.fsum(weights[low:high])
            chunks += high - low
    if not completed or not chunks:
        return None
    rate = tokens / (window.length_ns / 1e9)
    if chunks < MIN_CHUNKS:
        return Steady(rate, None, completed=completed, chunks=chunks)
    count = 20 if chunks >= MANY_CHUNKS else 10
    length = window.length_ns / count
    sums = [0.0] * count
    for x, weights, low, high in spans:
        for position in range(low, high):
            slot = min(count - 1, int((x.stamps[position] - window.start_ns) / length))
            sums[slot] += weights[position]
    batches = tuple(value / (length / 1e9) for value in sums)
    return Steady(rate, batch_means(batches)[1], batches, completed, chunks)


def series(
    exchanges: Sequence[Exchange], start_ns: int, end_ns: int, bucket_ns: float, per_chunk: float
) -> list[float]:
    """Output tokens in every bucket of a level, of all requests."""
    if end_ns <= start_ns:
        return []
    count = max(1, math.ceil((end_ns - start_ns) / bucket_ns))
    sums = [0.0] * count
    for x in counted(exchanges):
        weights = chunk_tokens(x, per_chunk)
        for position in range(bisect_left(x.stamps, start_ns), len(x.stamps)):
            slot = int((x.stamps[position] - start_ns) / bucket_ns)
            sums[min(slot, count - 1)] += weights[position]
    return sums

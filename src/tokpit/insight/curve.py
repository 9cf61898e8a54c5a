"""What a sweep's curve says: peak, knee, operating point, where it stops rising, latencies, fitted models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from tokpit.insight.fits import Fit, batch_fit, capped_fit, usl_fit
from tokpit.insight.points import Point, usable

PEAK_SHARE = 0.9
"""A level with at least this share of the best rate is good enough: beyond it latency is all that grows."""
_NEAR_SHARE = 0.86
"""The knee is taken where it comes this close: a few percent of noise decide about 90 % of the peak, not about it."""
FLAT_SLOPE = 0.25
"""A stretch is flat where doubling C adds less than 2 ** this - 1 = 19 %."""
_CLIFF = 0.75


class Advice(msgspec.Struct, frozen=True):
    """The operating point: a measured level, the rule that chose it, and what it costs."""

    point: Point
    share: float
    """Its rate / the best rate."""
    rule: str
    latency_s: float | None
    """Of a request, by Little's law."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep read as a whole. `points` are usable ones by rising concurrency."""

    points: tuple[Point, ...]
    peak: Point
    knee: Point | None
    advice: Advice
    flat_from: Point | None
    """First level of the stretch at the end in which throughput no longer rises; None: it still rises."""
    cliffs: tuple[tuple[Point, Point], ...]
    """Neighbours of which the second, at higher concurrency, is slower by a quarter and more."""
    capped: Fit | None
    batch: Fit | None
    """The batch model without a cap."""
    usl: Fit | None

    @property
    def flat(self) -> tuple[Point, ...]:
        """The levels of the flat stretch."""
        start = self.flat_from.concurrency if self.flat_from else math.inf
        return tuple(p for p in self.points if p.concurrency >= start)

    @property
    def cap_in_curve(self) -> float | None:
        """A cap that the curve itself shows: the capped model fits well and at least twice as well as those without.

        None where it does not, or where fewer than two levels lie above the cap.
        """
        if self.capped is None:
            return None
        cap = self.capped.parameters["cap"]
        rivals = [fit.rms for fit in (self.batch, self.usl) if fit is not None]
        clear = self.capped.rms < 0.06 and all(self.capped.rms * 2 <= rms for rms in rivals)
        above = sum(1 for p in self.points if p.concurrency > cap * 1.05)
        below = sum(1 for p in self.points if p.concurrency <= cap * 1.05)
        return cap if clear and above >= 2 and below >= 2 else None


def read_curve(points: Iterable[Point]) -> Curve | None:
    """Read a sweep; None where no level measured anything."""
    used = usable(points)
    if not used:
        return None
    pairs = [(float(p.concurrency), p.tps) for p in used]
    peak = max(used, key=lambda p: p.tps)
    knee = knee_of(used)
    return Curve(
        points=used,
        peak=peak,
        knee=knee,
        advice=advise(used, knee),
        flat_from=flat_from(used),
        cliffs=tuple((a, b) for a, b in pairwise(used) if b.tps < _CLIFF * a.tps),
        capped=capped_fit(pairs),
        batch=batch_fit(pairs),
        usl=usl_fit(pairs),
    )


def knee_of(points: Sequence[Point]) -> Point | None:
    """The knee by Kneedle (Satopaa et al. 2011): farthest above the line from the first point to the best.

    None for fewer than three levels, or where no level is clearly above that line.
    """
    if len(points) < 3:
        return None
    first, last = points[0], points[-1]
    low, high = min(p.tps for p in points), max(p.tps for p in points)
    if high <= low:
        return None

    def above(p: Point) -> float:
        x = (p.concurrency - first.concurrency) / (last.concurrency - first.concurrency)
        return (p.tps - low) / (high - low) - x

    best = max(points, key=above)
    return best if above(best) > 0.1 else None


def advise(points: Sequence[Point], knee: Point | None, cap: float | None = None) -> Advice:
    """The operating point of a sweep: the smallest level with 90 % of the best rate, or the knee if that is near.

    With a known cap on running requests, never a level above it while one at or below it gives 80 %.
    """
    peak = max(points, key=lambda p: p.tps)
    chosen = next(p for p in points if p.tps >= PEAK_SHARE * peak.tps)
    rule = f"smallest C with at least {PEAK_SHARE:.0%} of the best rate"
    if knee is not None and knee.concurrency < chosen.concurrency and knee.tps >= _NEAR_SHARE * peak.tps:
        chosen, rule = knee, "the knee of the curve"
    if cap is not None and chosen.concurrency > cap:
        within = [p for p in points if p.concurrency <= cap and p.tps >= 0.8 * peak.tps]
        if within:
            chosen, rule = within[-1], f"largest measured C that fits into the cap of {cap:.0f}"
    return Advice(chosen, chosen.tps / peak.tps, rule, latency_of(chosen))


def latency_of(point: Point) -> float | None:
    """Seconds that a request takes at a level: measured where it was, else by Little's law."""
    return point.e2e_mean_s if point.e2e_mean_s is not None else point.little_s


def slope(a: Point, b: Point) -> float:
    """Growth of throughput against concurrency between two levels: 1 is proportional, 0 is flat."""
    return math.log(b.tps / a.tps) / math.log(b.concurrency / a.concurrency)


def flat_from(points: Sequence[Point]) -> Point | None:
    """The first level from which on throughput does not rise any more (see FLAT_SLOPE), whichever level follows.

    None where the last stretch still rises, or where it spans less than 1.4 times the concurrency.
    """
    for i, start in enumerate(points[:-1]):
        later = points[i + 1 :]
        flat = all(slope(start, p) < FLAT_SLOPE for p in later)
        if flat and points[-1].concurrency >= 1.4 * start.concurrency:
            return start
    return None


def service_spread(points: Sequence[Point], cap: float) -> tuple[float, float] | None:
    """Mean time that a request runs with the cap applied, and its spread (standard deviation / mean)."""
    times = [t for p in points if (t := p.service_s(cap)) is not None]
    if not times:
        return None
    mean = math.fsum(times) / len(times)
    return mean, math.sqrt(math.fsum((t - mean) ** 2 for t in times) / len(times)) / mean


def log_growth(curve: Curve) -> float:
    """Slope over the flat stretch; 0 where there is none."""
    flat = curve.flat
    return slope(flat[0], flat[-1]) if len(flat) > 1 else 0.0

"""The rate that a measured level keeps up for hours, with how sure it is: what a long job is planned from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from tokpit.insight.fits import Fit, batch_fit
from tokpit.insight.points import Point
from tokpit.insight.waves import WaveModel, wave_model

_AS_FAST = 0.03
"""A job of weeks notices more than that, however wide an interval is."""

Basis = Literal["steady window", "whole run without its last wave", "whole run"]


class Span(msgspec.Struct, frozen=True):
    """A figure with the interval that the measurement gives it; `low` and `high` None: measured once, not known."""

    mid: float
    low: float | None = None
    high: float | None = None

    def over(self, amount: float) -> Span:
        """`amount` / figure: the slow end of a rate is the long end of a time."""
        return Span(amount / self.mid, self.high and amount / self.high, self.low and amount / self.low)

    def times(self, factor: float) -> Span:
        """Figure x `factor`."""
        return Span(
            self.mid * factor,
            None if self.low is None else self.low * factor,
            None if self.high is None else self.high * factor,
        )

    @property
    def worst(self) -> float:
        """The upper end, or the figure where there is none."""
        return self.mid if self.high is None else self.high


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Output tok/s of one number of running requests."""

    running: int
    """Requests that the server runs at once: min(C, cap)."""
    concurrency: int
    """The smallest measured C with that many running, which is all that a client needs."""
    levels: tuple[int, ...]
    """Every measured C with that many running; levels above a cap repeat one measurement."""
    tps: Span
    basis: Basis
    tokens: float
    """Output tokens a request, as measured."""
    error_share: float

    @property
    def good_tps(self) -> Span:
        """Tokens of requests that ended well, with the failed ones done again."""
        return self.tps.times(1 - self.error_share)

    def latency_s(self, tokens: float) -> float:
        """Seconds that a request of `tokens` runs, by Little's law W = L / X; waiting above the cap left out."""
        return self.running * tokens / self.tps.mid


def rates(points: Iterable[Point], cap: int | None = None) -> tuple[Rate, ...]:
    """The rates of a sweep by rising number of running requests; levels without a rate are left out.

    A level counts with its steady window; without one, the last and emptier wave of a whole run is taken off where
    the wave model allows it. The interval of a rate is the wider of the range of its levels and their own 95 %
    intervals; of one that was measured once without an interval, twice the scatter of the curve around its step model
    (`fits.batch_fit`) where at least four rates show that.
    """
    used = [p for p in points if p.tps > 1e-6 and p.ok > 0 and p.concurrency > 0 and not p.void]
    groups: dict[int, list[Point]] = {}
    for p in sorted(used, key=lambda p: p.concurrency):
        groups.setdefault(min(p.concurrency, cap) if cap else p.concurrency, []).append(p)
    if not groups:
        return ()
    ordered = [p for group in groups.values() for p in group]
    model = wave_model(_one_each(ordered), cap or max(groups))
    found = [_rate(running, group, model) for running, group in groups.items()]
    fit = step_fit(found)
    if fit is not None and len(found) >= 4:
        scatter = 2 * fit.rms * math.sqrt(len(found) / (len(found) - 2))
        found = [_widened(rate, scatter) for rate in found]
    return tuple(found)


def step_fit(found: Sequence[Rate]) -> Fit | None:
    """The step model X(m) = m / (alpha + beta m) through the rates; None for fewer than two."""
    return batch_fit([(float(rate.running), rate.tps.mid) for rate in found])


def predicted(found: Sequence[Rate], running: int) -> Span | None:
    """The step model at a number of running requests that was not measured.

    The interval is what the model says with each rate left out in turn; None for fewer than three rates.
    """
    fit = step_fit(found)
    if fit is None or len(found) < 3:
        return None
    pairs = [(float(rate.running), rate.tps.mid) for rate in found]
    others = [batch_fit([*pairs[:i], *pairs[i + 1 :]]) for i in range(len(pairs))]
    values = [one.at(running) for one in (fit, *others) if one is not None]
    return Span(fit.at(running), min(values), max(values))


def best(found: Sequence[Rate]) -> Rate:
    """The smallest number of running requests that is as fast as the fastest: within its interval, and 3 %."""
    top = max(found, key=lambda rate: rate.good_tps.mid)
    floor = max(top.good_tps.mid * (1 - _AS_FAST), top.good_tps.low or 0.0)
    return next(rate for rate in found if rate.good_tps.mid >= floor)


def _one_each(points: Sequence[Point]) -> list[Point]:
    return list({p.concurrency: p for p in points}.values())


def _rate(running: int, group: Sequence[Point], model: WaveModel | None) -> Rate:
    values = [_kept_up(p, running, model) for p in group]
    mid = math.fsum(tps for tps, _ in values) / len(values)
    half = [p.steady_ci for p in group if p.steady_tps is not None and p.steady_ci is not None]
    around = max([(max(v for v, _ in values) - min(v for v, _ in values)) / 2 if len(values) > 1 else 0.0, *half])
    judged = sum(p.ok + p.err for p in group)
    bases = [basis for _, basis in values]
    return Rate(
        running=running,
        concurrency=group[0].concurrency,
        levels=tuple(sorted({p.concurrency for p in group})),
        tps=Span(mid, max(mid - around, 0.01 * mid), mid + around) if around > 0 else Span(mid),
        basis=max(bases, key=("steady window", "whole run without its last wave", "whole run").index),
        tokens=math.fsum(p.tokens for p in group) / len(group),
        error_share=sum(p.err for p in group) / judged if judged else 0.0,
    )


def _kept_up(p: Point, running: int, model: WaveModel | None) -> tuple[float, Basis]:
    if p.steady_tps is not None:
        return p.steady_tps, "steady window"
    if model is None or not p.timed:
        return p.output_tps, "whole run"
    full, rest = divmod(p.ok, running)
    wave_s = (p.elapsed_s - (model.service_s(rest) if rest else 0.0)) / full if full else 0.0
    if wave_s <= 0:
        return p.output_tps, "whole run"
    return running * p.tokens / wave_s, "whole run without its last wave"


def _widened(rate: Rate, scatter: float) -> Rate:
    if rate.tps.low is not None:
        return rate
    mid = rate.tps.mid
    return msgspec.structs.replace(rate, tps=Span(mid, max(mid * (1 - scatter), 0.01 * mid), mid * (1 + scatter)))

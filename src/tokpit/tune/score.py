"""From the levels of a sweep to the value of a candidate, with its interval; and when a sweep cannot win any more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tokpit.domain.run import Level
from tokpit.domain.tuning import CurvePoint
from tokpit.insight.words import within
from tokpit.tune.experiment import Objective

SLO_SHARE = 0.95
"""Requests that must keep the SLO for a level to count, as in `tokpit sweep --find`."""
_WHOLE_RUN_HALF = 0.03
"""Relative half width taken for a rate without an interval of its own (a level too short for a steady window)."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a candidate; None: no level counts, and `reason` says why."""

    value: float | None
    half: float = 0.0
    """Half width of the 95 % interval."""
    reason: str = ""

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return (self.value or 0.0) + self.half

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return (self.value or 0.0) - self.half


def point_of(level: Level) -> CurvePoint:
    """A stored level as a point of a candidate's curve."""
    found: Mapping[str, Any] = level.result
    tpot = found.get("tpot_s")
    p50 = tpot.get("p50") if isinstance(tpot, Mapping) else None
    steady = level.steady_tps
    ended = level.ok + level.err
    return CurvePoint(
        concurrency=level.concurrency,
        tps=steady if steady is not None else level.output_tps,
        half=_number(found.get("steady_ci")) if steady is not None else None,
        stream_tps=1 / p50 if p50 else None,
        ttft_s=level.ttft_p50_s,
        running=_number(found.get("server_running")),
        accept_len=_number(found.get("accept_len")),
        goodput_rps=_number(found.get("goodput_rps")),
        err_share=level.err / ended if ended else 1.0,
        slo_share=_number(found.get("goodput_share")),
        void=str(found.get("void") or ""),
    )


def underway_point(concurrency: int, tps: float, half: float) -> CurvePoint:
    """A level that runs, as far as it is measured. Of its requests none has failed or missed an SLO for certain yet."""
    return CurvePoint(concurrency=concurrency, tps=tps, half=half, slo_share=1.0)


def curve(points: Sequence[CurvePoint], underway: CurvePoint | None) -> tuple[CurvePoint, ...]:
    """Points of finished levels with the one that runs among them."""
    return pooled((*points, underway)) if underway is not None else tuple(points)


def pooled(points: Iterable[CurvePoint]) -> tuple[CurvePoint, ...]:
    """Repeated levels as one point each, by concurrency: the mean of the rates and the half width of its interval.

    That is the wider of what the levels' own intervals leave and what the repeats show between them.
    """
    from tokpit.load.stats import t95

    groups: dict[int, list[CurvePoint]] = {}
    for point in points:
        groups.setdefault(point.concurrency, []).append(point)
    found = []
    for _, group in sorted(groups.items()):
        good = [p for p in group if not p.void] or group
        last = good[-1]
        if len(good) > 1:
            rates = [p.tps for p in good]
            n = len(rates)
            mean = math.fsum(rates) / n
            spread = math.sqrt(math.fsum((r - mean) ** 2 for r in rates) / (n - 1))
            # Student's t of two values (12.7) says nothing: of two, half their distance stands in.
            between = t95(n - 1) * spread / math.sqrt(n) if n > 2 else abs(rates[0] - rates[1]) / 2
            within = math.sqrt(math.fsum(half_of(p) ** 2 for p in good)) / n
            last = msgspec.structs.replace(last, tps=mean, half=max(between, within))
        found.append(last)
    return tuple(found)


def score(
    points: Sequence[CurvePoint], objective: Objective, error_rate: float, first: Sequence[CurvePoint] = ()
) -> Score:
    """The value of a candidate by the objective. `first`: the curve of the first server, which `pareto` is told in."""
    counted, reasons = [], []
    for point in points:
        why = _does_not_count(point, objective, error_rate)
        reasons += [why] if why else []
        if not why:
            counted.append(point)
    if not counted:
        return Score(value=None, reason=reasons[0] if reasons else "nothing was measured")
    if objective.kind == "goodput":
        best = max(counted, key=lambda p: p.goodput_rps or 0.0)
        value = best.goodput_rps or 0.0
        return Score(value=value, half=value * half_of(best) / best.tps if best.tps else 0.0)
    if objective.kind == "single":
        lowest = min(counted, key=lambda p: p.concurrency)
        return Score(value=lowest.tps / lowest.concurrency, half=half_of(lowest) / lowest.concurrency)
    best = max(counted, key=lambda p: p.tps)
    if objective.kind == "throughput":
        return Score(value=best.tps, half=half_of(best))
    return _weighted(counted, best, objective, first)


def _weighted(
    counted: Sequence[CurvePoint], best: CurvePoint, objective: Objective, first: Sequence[CurvePoint]
) -> Score:
    lowest = min(counted, key=lambda p: p.concurrency)
    stream = lowest.tps / lowest.concurrency
    reference = [p for p in first if not p.void and p.tps > 0] or list(counted)
    base = max(p.tps for p in reference)
    low = min(reference, key=lambda p: p.concurrency)
    w = objective.weight
    value = (best.tps / base) ** w * (stream / (low.tps / low.concurrency)) ** (1 - w)
    relative = math.hypot(w * half_of(best) / best.tps, (1 - w) * half_of(lowest) / lowest.tps)
    return Score(value=value, half=value * relative)


def _does_not_count(point: CurvePoint, objective: Objective, error_rate: float) -> str:
    if point.void:
        return point.void
    if point.err_share > error_rate:
        return f"C={point.concurrency}: {point.err_share:.0%} of the requests failed"
    if point.tps <= 0:
        return f"C={point.concurrency}: no tokens came"
    missed = objective.slo and objective.kind != "goodput" and (point.slo_share or 0.0) < SLO_SHARE
    if missed:
        return f"C={point.concurrency}: {point.slo_share or 0.0:.0%} of the requests kept the SLO, {SLO_SHARE:.0%} must"
    return ""


def half_of(point: CurvePoint) -> float:
    """Half width of the 95 % interval of a point's rate; a few percent where it was not measured."""
    return point.half if point.half is not None else _WHOLE_RUN_HALF * point.tps


def cannot_win(
    points: Sequence[CurvePoint],
    left: Sequence[int],
    cap: int | None,
    objective: Objective,
    error_rate: float,
    best: Score,
    first: Sequence[CurvePoint] = (),
    underway: CurvePoint | None = None,
) -> str:
    """Why the levels that are `left` cannot bring this candidate up to `best`; empty while they can.

    A stream does not get faster with more of them beside it, so min(C, cap) streams at C give at most the speed that
    one had at a lower level, times their number. The upper end of its interval is taken against the lower of `best`.
    `underway`: the level that runs, not among `left`, as far as it is measured; it may keep every SLO yet.
    """
    points = (*points, underway) if underway is not None else points
    if best.value is None or not points or not (left or underway) or objective.kind == "goodput":
        return ""  # goodput: a level's share within the SLO is not bounded by its rate
    now = score(points, objective, error_rate, first)
    if now.value is not None and now.high >= best.low:
        return ""
    measured = [p for p in points if not p.void and p.tps > 0]
    if not measured:
        return ""
    if not left:
        so_far = now if now.value is not None else Score(value=measured[-1].tps, half=half_of(measured[-1]))
        return (
            f"{within(so_far.value or 0.0, so_far.half)} so far, at C={measured[-1].concurrency}; "
            f"the best has {within(best.value, best.half)}"
        )
    fastest = min(((p.tps + half_of(p)) / min(p.concurrency, cap or p.concurrency), p.concurrency) for p in measured)[0]
    bounds = [_at_most(c, cap, fastest) for c in left]
    top = max(bounds, key=lambda b: b.tps)
    lowest = min(p.concurrency for p in measured)
    if objective.kind == "single":
        if min(left) < lowest:
            return ""
        return f"one stream gives {fastest:.1f} tok/s at most, the best has {best.value:.1f} ± {best.half:.1f}"
    ceiling = score([*measured, top], msgspec.structs.replace(objective, slo=""), 1.0, first)
    if ceiling.value is None or ceiling.high >= best.low:
        return ""
    streams = min(top.concurrency, cap or top.concurrency)
    return (
        f"{streams} streams of at most {fastest:.1f} tok/s give {streams * fastest:.0f} tok/s at C={top.concurrency}; "
        f"the best has {within(best.value, best.half)}"
    )


def _at_most(concurrency: int, cap: int | None, each: float) -> CurvePoint:
    return CurvePoint(concurrency=concurrency, tps=min(concurrency, cap or concurrency) * each, half=0.0)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

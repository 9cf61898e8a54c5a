"""Why a curve stops rising: a cap on running requests, the client, errors, throttling, or the step that grows."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from tokpit.insight.capacity import LOGGED, Cap, running_cap
from tokpit.insight.curve import FLAT_SLOPE, Curve, service_spread, slope
from tokpit.insight.facts import Facts
from tokpit.insight.points import Point
from tokpit.insight.waves import WaveModel, wave_model

CAP, CURVE_CAP, COMPUTE, CLIENT, ERRORS, THROTTLED, POLICY, UNKNOWN = (
    *("cap", "cap in the curve", "compute", "client", "errors", "throttled", "queue policy", "unknown"),
)
MAX_ERROR_SHARE = 0.01
_SPREAD = 0.12
_CLIENT_CODES = ("CLIENT_BOUND", "CLIENT_LIMIT")


class Plateau(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch without gain and its cause. `cap` is the number of requests that run there, if a cap is the cause."""

    cause: str
    levels: tuple[Point, ...]
    cap: Cap | None = None
    service_s: float | None = None
    """Mean time that a request runs, over the levels at or above the cap."""
    waves: WaveModel | None = None


def explain(curve: Curve, facts: Facts) -> Plateau | None:
    """The cause of a curve's flat stretch; None where it has none and no level is above a known cap."""
    known = running_cap(facts)
    flat = curve.flat
    if known is not None and (found := _at_cap(curve, known) or _seen_at_cap(curve, known)) is not None:
        return found
    if not flat:
        return None
    if any(not p.timed for p in curve.points):
        return Plateau(cause=UNKNOWN, levels=flat[1:])
    above = tuple(p for p in flat[1:])
    if any(p.error_share > MAX_ERROR_SHARE for p in above):
        return Plateau(cause=ERRORS, levels=above)
    if any(code in _CLIENT_CODES for p in above for code in p.failed_checks):
        return Plateau(cause=CLIENT, levels=above)
    if any(p.throttled for p in above):
        return Plateau(cause=THROTTLED, levels=above)
    seen = _seen_running(above)
    if seen is not None:
        cap = _seen_cap(facts, seen)
        policy = known is not None and known.value > seen * 1.1
        return Plateau(cause=POLICY if policy else CAP, levels=above, cap=cap, waves=wave_model(curve.points, seen))
    inferred = curve.cap_in_curve
    if known is None and inferred is not None:
        return _capped(curve, Cap(max(1, round(inferred)), "logged", ""), CURVE_CAP)
    if curve.batch is not None and _grows(flat):
        return Plateau(cause=COMPUTE if known is not None or _batch_fits(curve) else UNKNOWN, levels=above)
    return Plateau(cause=UNKNOWN, levels=above)


def _at_cap(curve: Curve, cap: Cap) -> Plateau | None:
    """The plateau of a known cap: levels above it, with a service time that no longer changes."""
    above = [p for p in curve.points if p.concurrency > cap.value]
    within = [p for p in curve.points if p.concurrency <= cap.value]
    if not above:
        return None
    judged = [p for p in curve.points if p.concurrency >= 0.8 * cap.value]
    spread = service_spread(judged, cap.value)
    if spread is None or (spread[1] > _SPREAD and not _waves_fit(curve, cap.value)):
        return None
    half = [p for p in within if p.concurrency <= 0.55 * cap.value]
    if half and within[-1] is not half[-1] and slope(half[-1], within[-1]) < FLAT_SLOPE:
        return None  # flat long before the cap
    if within and above[-1].tps > 1.15 * within[-1].tps * max(1.0, cap.value / within[-1].concurrency):
        return None  # still rising above the cap: it is not what the server works with
    return _capped(curve, cap, CAP)


def _seen_at_cap(curve: Curve, cap: Cap) -> Plateau | None:
    """The plateau of a known cap that the server was seen to keep: so many ran and the others waited, at every level.

    That decides also where times are too noisy to show it, unless throughput still rises.
    """
    above = [p for p in curve.points if p.concurrency > cap.value]
    within = [p for p in curve.points if p.concurrency <= cap.value]
    if not above or not all(p.queued and round(p.running or 0.0) == cap.value for p in above):
        return None
    if within and above[-1].tps > 1.15 * within[-1].tps * max(1.0, cap.value / within[-1].concurrency):
        return None
    return _capped(curve, cap, CAP)


def _waves_fit(curve: Curve, cap: int) -> bool:
    """Whether waves of `cap` requests give the elapsed times above it: few waves spread the mean service time."""
    model = wave_model(curve.points, cap)
    above = [p for p in curve.points if p.concurrency > cap]
    return model is not None and all(abs(model.elapsed_s(p.concurrency, p.ok) / p.elapsed_s - 1) < 0.1 for p in above)


def _capped(curve: Curve, cap: Cap, cause: str) -> Plateau:
    above = tuple(p for p in curve.points if p.concurrency > cap.value)
    judged = [p for p in curve.points if p.concurrency >= 0.8 * cap.value]
    spread = service_spread(judged, cap.value)
    waves = wave_model(curve.points, cap.value)
    return Plateau(cause=cause, levels=above, cap=cap, service_s=spread[0] if spread else None, waves=waves)


def _seen_running(levels: tuple[Point, ...]) -> int | None:
    """Requests that the server ran at most on all these levels, where others waited at the same time."""
    known = [p for p in levels if p.running and p.queued]
    if not known or len(known) < len(levels):
        return None
    most = [p.running or 0.0 for p in known]
    return round(max(most)) if max(most) <= 1.1 * min(most) and max(most) < 0.9 * levels[-1].concurrency else None


def _seen_cap(facts: Facts, seen: int) -> Cap:
    """What sets a cap that was only seen: the pool that gives the same number, where one does."""
    told = f"the server never ran more than {seen} at once while others waited"
    cap = running_cap(msgspec.structs.replace(facts, max_running_requests=seen))
    if cap is None or cap.value != seen or cap.by == LOGGED:
        return Cap(seen, LOGGED, told)
    return Cap(seen, cap.by, f"{cap.arithmetic}; {told}", cap.per_request)


def _grows(levels: tuple[Point, ...]) -> bool:
    """Whether a request's running time grows with the number at once, all through the levels."""
    times = [p.service_s() or 0.0 for p in levels]
    return all(b > a for a, b in pairwise(times))


def _batch_fits(curve: Curve) -> bool:
    """Whether a step cost that grows with the batch describes the curve as well as a cap would."""
    if len(curve.points) < 4 or curve.points[0] in curve.flat or curve.batch is None or curve.batch.rms > 0.08:
        return False
    return curve.capped is None or curve.batch.rms < 2 * curve.capped.rms or curve.capped.rms > 0.06

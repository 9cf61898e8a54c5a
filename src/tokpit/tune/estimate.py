"""How long an experiment will take: before it, from what is known; while it runs, from what it measured itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from tokpit.domain.tuning import Trial

USUAL_RESTART_S = 150.0
_USUAL_STREAM_TPS = 30.0
_USUAL_CAP = 16


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds on the host's clock, each with where it comes from."""

    restart_s: float
    sweep_s: float
    restart_from: str
    sweep_from: str

    @property
    def each_s(self) -> float:
        """One candidate: its start and its measurement."""
        return self.restart_s + self.sweep_s


def before(
    restarts_s: Sequence[float], sweep: Mapping[str, Any], levels: Sequence[int], rates: Mapping[int, float]
) -> Times:
    """An estimate from earlier restarts (seconds) and from a stored sweep's rates by concurrency (tok/s)."""
    if restarts_s:
        restart, restart_from = float(median(restarts_s)), _median_of(len(restarts_s), "earlier start", " here")
    else:
        restart, restart_from = USUAL_RESTART_S, "assumed: no earlier start on this host is known"
    known = bool(rates)

    def rate(concurrency: int) -> float:
        if known:
            return rates[min(rates, key=lambda c: abs(c - concurrency))]
        return _USUAL_STREAM_TPS * min(concurrency, _USUAL_CAP)

    source = "rates of the last sweep here" if known else f"assumed: {_USUAL_STREAM_TPS:g} tok/s a stream"
    return Times(
        restart_s=restart,
        sweep_s=sweep_s(sweep, levels, rate),
        restart_from=restart_from,
        sweep_from=source if not sweep.get("duration_s") else "as asked",
    )


def sweep_s(sweep: Mapping[str, Any], levels: Sequence[int], rate: Callable[[int], float]) -> float:
    """Seconds of one sweep: each level by its duration, or by its tokens at the rate."""
    repeat = int(sweep.get("repeat") or 1)
    tokens = float(sweep.get("max_tokens") or 1024)
    total = 0.0
    for level in levels:
        if sweep.get("duration_s"):
            total += float(sweep["duration_s"]) + tokens * level / max(1.0, rate(level))
        else:
            total += float(sweep.get("requests") or max(2 * level, 8)) * tokens / max(1.0, rate(level))
    return total * repeat


def measured(times: Times, trials: Iterable[Trial]) -> Times:
    """The estimate corrected by what the experiment has measured: the median of its own starts and sweeps."""
    done = list(trials)
    restarts = [t.restart_s for t in done if t.restart_s]
    sweeps = [t.measure_s for t in done if t.measure_s and t.status == "measured"]
    changes: dict[str, Any] = {}
    if restarts:
        changes |= {"restart_s": float(median(restarts)), "restart_from": _median_of(len(restarts), "start")}
    if sweeps:
        changes |= {"sweep_s": float(median(sweeps)), "sweep_from": _median_of(len(sweeps), "sweep")}
    return msgspec.structs.replace(times, **changes)


def _median_of(count: int, what: str, where: str = "") -> str:
    return f"median of {count} {what}s{where}" if count > 1 else f"one {what}{where}"


def minutes(seconds: float) -> str:
    """`about 40 min`, `about 3.5 h`."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"

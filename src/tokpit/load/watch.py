"""Which request has run into one of the client's own limits. Pure."""

from __future__ import annotations

from .clock import Clock
from .plan import Timeouts
from .stream import Exchange

AFTER_DONE_S = 1.0
"""Real seconds that a body may stay open after [DONE]."""


def overdue(x: Exchange, now_ns: int, limits: Timeouts, clock: Clock) -> tuple[str, str]:
    """The outcome and detail that end `x` now, or two empty strings. `done` ends it well: all of it is here."""
    past = clock.host_s
    if x.done:
        return ("done", "") if now_ns - x.t_last_rx > AFTER_DONE_S * 1e9 else ("", "")
    if not x.t_sent:
        if past(now_ns - x.t_start) > limits.connect_s:
            return "timeout.connect", f"no connection within {limits.connect_s:g} s, the client's own limit"
        return "", ""
    if limits.total_s is not None and past(now_ns - x.t_sent) > limits.total_s:
        return "timeout.total", f"not finished within {limits.total_s:g} s, the client's own limit"
    if not x.t_first:
        if limits.first_s is not None and past(now_ns - x.t_sent) > limits.first_s:
            return "timeout.first", f"no token within {limits.first_s:g} s, the client's own limit"
    elif limits.between_s is not None and past(now_ns - x.t_last_rx) > limits.between_s:
        chunks = len(x.stamps)
        return "timeout.between", f"silent for {limits.between_s:g} s after {chunks} chunks, the client's own limit"
    return "", ""


def watch_period_s(limits: Timeouts, clock: Clock) -> float:
    """How often to look, real seconds: a tenth of the shortest limit, between 5 and 100 ms."""
    named = [limit for limit in (limits.connect_s, limits.first_s, limits.between_s, limits.total_s) if limit]
    return min([0.1, *(max(0.005, clock.real_s(limit) / 10) for limit in named)])

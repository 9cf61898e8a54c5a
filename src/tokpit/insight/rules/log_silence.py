"""Silence, and health checks that tell the wrong thing about it."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.digest import DECODE, PREFILL, STATS, Row
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules.log_words import place, some, span, told
from tokpit.insight.words import num

_BLOCKED_S = 60
_ROTATED_S = 7200
"""Longer gaps are parts of a log that are missing."""


def blocked(evidence: Evidence) -> Sequence[Finding]:
    """No line of any sort for over a minute while requests were running."""
    found = []
    for log in evidence.logs:
        periodic = [s for s in log.silences if _BLOCKED_S < s.seconds < _ROTATED_S]
        # A server that always writes so seldom is not silent.
        if not periodic or (len(log.rows) > 3 and len(periodic) > 0.2 * len(log.rows)):
            continue
        worst = periodic[0]
        found.append(
            Finding(
                code="SCHEDULER_BLOCKED",
                severity="warning",
                claim=f"No line for {num(worst.seconds)} s with {num(worst.running)} requests running: the scheduler "
                f"was "
                "blocked, it did not crash.",
                evidence=(f"silence after {place(log, worst.after_line)}",),
                confidence="likely",
                next_action="Take a stack dump (py-spy dump) while it is silent; allow a longer liveness timeout, and "
                "reduce the host cache or the context.",
                figures={"silence_s": worst.seconds},
            )
        )
    return found


def stuck(evidence: Evidence) -> Sequence[Finding]:
    """Requests wait and none runs, line after line."""
    found = []
    for log in evidence.logs:
        longest: list[Row] = []
        now: list[Row] = []
        for row in log.of(STATS, DECODE):
            now = [*now, row] if row.queued and not row.running and not row.gen_tps else []
            longest = max(longest, now, key=len)
        seconds = span(longest)
        if len(longest) < 3 or not seconds or seconds < 30:
            continue
        found.append(
            Finding(
                code="SCHEDULER_BLOCKED",
                severity="error",
                claim=f"For {num(seconds)} s {num(longest[-1].queued or 0)} requests wait and none runs: the scheduler "
                "admits nothing.",
                evidence=some(log, longest),
                confidence="likely",
                next_action="Look for a request that can never fit (its tokens against the KV cache), take a stack "
                "dump, "
                "and restart.",
            )
        )
    return found


def health_negative(evidence: Evidence) -> Sequence[Finding]:
    """Health checks fail while prefill or decode goes on: busy, not dead."""
    found = []
    variable = f" ({evidence.health_variable})" if evidence.health_variable else ""
    for log in evidence.logs:
        if not log.health_failed:
            continue
        first = log.health_failed[0]
        after = [r for r in log.of(PREFILL, DECODE) if r.line > first - 5]
        alive = [r for r in after if r.kind == PREFILL or r.gen_tps]
        if not alive:
            continue
        pending = max((r.pending or 0.0 for r in alive), default=0.0)
        busy = f"busy with prefill ({num(pending, 6)} tokens pending)" if pending else "busy"
        found.append(
            Finding(
                code="HEALTH_FALSE_NEGATIVE",
                severity="warning",
                claim=f"A health check failed although the server works: it is {busy}, not dead.",
                evidence=(f"failed health check: {place(log, first)}", told(log, alive[0])),
                next_action=f"Allow a longer health timeout{variable}; do not restart the server.",
            )
        )
    return found


def health_positive(evidence: Evidence) -> Sequence[Finding]:
    """Health says 200 while requests in flight produce nothing."""
    f = evidence.facts
    health = sum(log.health_ok for log in evidence.logs)
    if not f.client_in_flight or f.tokens_last_minute is None or f.tokens_last_minute > 0:
        return ()
    return (
        Finding(
            code="HEALTH_FALSE_POSITIVE",
            severity="error",
            claim=f"{f.client_in_flight} requests in flight produced 0 tokens in 60 s"
            + (f", although {health} health checks answered 200." if health else "."),
            evidence=tuple(place(log, log.lines) for log in evidence.logs if log.health_ok),
            next_action="Judge life by the progress of tokens, not by HTTP 200; look for a crashed scheduler.",
        ),
    )

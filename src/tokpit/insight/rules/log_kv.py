"""A KV cache that is too small: requests are put back again and again."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.digest import Digest
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules.log_words import place, some, span
from tokpit.insight.words import num, percent

_FEW = 3
_STORM_PER_S = 0.5


def retraction(evidence: Evidence) -> Sequence[Finding]:
    """Retractions without any progress (livelock), or many of them with progress (storm)."""
    return [found for log in evidence.logs if (found := _log(log)) is not None]


def _log(log: Digest) -> Finding | None:
    retracted = log.retractions
    if len(retracted) < _FEW:
        return None
    first, last = retracted[0], retracted[-1]
    seconds = last[1] - first[1] if first[1] is not None and last[1] is not None else None
    # What was printed between the first and the last retraction tells whether anything went on.
    between = [r for r in log.busy if first[0] < r.line < last[0]]
    progress = [r for r in between if r.gen_tps]
    span = f" in {num(seconds + 1)} s" if seconds is not None else ""
    evidence = (f"{place(log, first[0])} to {last[0]}: {len(retracted)} lines with retracted requests",)
    if not progress and not log.completed:
        return Finding(
            code="RETRACTION_LIVELOCK",
            severity="error",
            claim=f"{len(retracted)} retractions{span} and no completed request: the server puts requests back and "
            "takes them in again without progress.",
            evidence=evidence,
            next_action="Lower the concurrency or the total of tokens, and restart: this does not end by itself.",
            figures={"retractions": float(len(retracted))},
        )
    rate = len(retracted) / max(1.0, seconds) if seconds is not None else None
    if rate is None or (rate < _STORM_PER_S and len(retracted) < max(10, 0.3 * len(between))):
        return None
    return Finding(
        code="PREEMPTION_STORM",
        severity="warning",
        claim=f"{len(retracted)} retractions{span} while the server works: more is admitted than the KV cache can "
        f"hold, "
        "and work is done twice.",
        arithmetic=f"{num(rate)} retractions/s",
        evidence=evidence,
        next_action="Lower the cap on running requests, or give the KV cache more memory.",
        figures={"retractions": float(len(retracted)), "per_s": rate},
    )


def preempted_rows(evidence: Evidence) -> Sequence[Finding]:
    """Preemptions printed on the lines of engine statistics."""
    found = []
    for log in evidence.logs:
        rows = [r for r in log.busy if r.preempted is not None]
        total = sum(r.preempted or 0.0 for r in rows)
        seconds = span(rows)
        if not seconds or total / seconds < _STORM_PER_S:
            continue
        found.append(_storm(total, seconds, max(r.kv or 0.0 for r in rows), some(log, rows)))
    return found


def preemption(evidence: Evidence) -> Sequence[Finding]:
    """Many preemptions by the server's counter, with the KV cache full."""
    facts = evidence.facts
    if not facts.preemptions or not facts.window_s:
        return ()
    full = facts.kv_usage is None or facts.kv_usage > 0.9
    if facts.preemptions / facts.window_s < _STORM_PER_S or not full:
        return ()
    return (_storm(facts.preemptions, facts.window_s, facts.kv_usage, ()),)


def _storm(count: float, seconds: float, kv: float | None, evidence: tuple[str, ...]) -> Finding:
    usage = f", KV {percent(kv)} used" if kv is not None else ""
    rate = count / seconds
    return Finding(
        code="PREEMPTION_STORM",
        severity="warning",
        claim=f"{num(count, 6)} preemptions in {num(seconds)} s ({num(rate, 2)}/s){usage}: more is admitted than the "
        f"KV "
        "cache can hold, and work is done twice.",
        arithmetic=f"{num(count, 6)} / {num(seconds)} s = {num(rate, 2)}/s",
        evidence=evidence,
        next_action="Lower the cap on running requests, give the KV cache more memory or set a watermark; do not "
        "compare this level.",
        figures={"per_s": rate},
    )

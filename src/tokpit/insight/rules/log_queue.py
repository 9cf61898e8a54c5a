"""Requests wait although the server could do more: a pool or a cap is full."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from tokpit.domain.finding import Finding
from tokpit.insight.capacity import CONFIGURED, STATE, Cap, running_cap, slot_choices
from tokpit.insight.digest import STATS, Digest, Row
from tokpit.insight.evidence import Evidence
from tokpit.insight.facts import Facts
from tokpit.insight.rules.log_words import some
from tokpit.insight.slots import held, total_slots
from tokpit.insight.words import num, percent

_KV_FULL = 0.95
_KV_FREE = 0.9
_SHARE = 0.8
_PERSISTENT = 0.3


def rule(evidence: Evidence) -> Sequence[Finding]:
    """Each log in which requests queue while what runs stays the same."""
    return [found for log in evidence.logs if (found := _log(log, evidence)) is not None]


def disagreement(evidence: Evidence) -> Sequence[Finding]:
    """A log that states another cap than the one that was set or that the API repeats."""
    cap, given = evidence.facts.max_running_requests, evidence.api_cap
    if cap is None or given is None or given <= cap:
        return ()
    known = running_cap(evidence.facts)
    state = known is not None and known.by == STATE
    return (
        Finding(
            code="QUEUE_LIMITED_BY_STATE_SLOTS" if state else "QUEUE_LIMITED_BY_CAP",
            severity="warning",
            claim=(
                f"At most {cap} requests run at once, not the {given} asked for"
                + (" (state slots set it)" if state else "")
                + ": the log tells the truth, the server's API repeats the flag."
            ),
            arithmetic=known.arithmetic if known is not None else "",
            next_action=f"Read levels above C={cap} as queue; "
            + (
                "raise --max-mamba-cache-size or --mamba-full-memory-ratio, or use --mamba-ssm-dtype bfloat16."
                if state
                else "raise the pool that binds."
            ),
            figures={"cap": float(cap), "asked": float(given)},
        ),
    )


def waiting(log: Digest) -> tuple[Row, ...]:
    """Rows on which requests wait, if they are a lasting part of the busy ones."""
    busy = log.busy
    found = tuple(row for row in busy if row.queued)
    enough = len(found) >= max(1, _PERSISTENT * len(busy)) or _longest(busy) >= 10
    return found if enough else ()


def _longest(rows: Sequence[Row]) -> int:
    """Longest stretch of rows on which requests wait."""
    best = now = 0
    for row in rows:
        now = now + 1 if row.queued else 0
        best = max(best, now)
    return best


def _log(log: Digest, evidence: Evidence) -> Finding | None:
    rows = waiting(log)
    if not rows:
        return None
    most = max(row.running or 0.0 for row in rows)
    at_top = [row for row in rows if (row.running or 0.0) >= 0.9 * most]
    kv = max((row.kv or 0.0) for row in rows)
    if median(row.kv or 0.0 for row in rows) > _KV_FULL:
        return _kv(log, rows) if len(rows) >= 2 else None
    if len(at_top) < _SHARE * len(rows) or most < 1 or kv >= _KV_FREE:
        return None
    cap = _cap(log, evidence.facts, at_top)
    if cap is None or most < 0.9 * cap.value:
        return _unnamed(log, rows, most, kv, evidence)
    return _state(log, rows, cap, kv) if cap.by == STATE else _capped(log, rows, cap, kv)


def _cap(log: Digest, facts: Facts, rows: Sequence[Row]) -> Cap | None:
    """The cap that the rows stand at: stated, or the slots of a pool over what the engine reserves a request."""
    stated = merged_cap(log, facts)
    most = round(max(row.running or 0.0 for row in rows))
    if stated is not None and stated.by == STATE and stated.value == most:
        return stated
    slots = total_slots(rows)
    fits = [c for c in slot_choices(facts) if slots and int(slots // c) == most and held(rows) <= c]
    if fits and (stated is None or stated.value >= most):
        each = max(fits)
        return Cap(most, STATE, f"floor({slots} state slots / {each} per request) = {most}", each)
    return stated


def merged_cap(log: Digest, facts: Facts) -> Cap | None:
    """The cap by what this log states, else by the facts."""
    own = log.facts.max_running_requests
    return running_cap(facts if own is None else msgspec.structs.replace(facts, max_running_requests=own))


def _state(log: Digest, rows: Sequence[Row], cap: Cap, kv: float) -> Finding:
    usage = max((r.state_usage or 0.0) for r in rows)
    holds = held(rows)
    arithmetic = [cap.arithmetic]
    if holds and cap.per_request and round(holds) < cap.per_request:
        arithmetic.append(
            f"a running request holds {round(holds)} slots and {cap.per_request} are reserved, so usage stops at "
            f"{percent(usage)}"
        )
    last = max(r.queued or 0.0 for r in rows)
    return Finding(
        code="QUEUE_LIMITED_BY_STATE_SLOTS",
        severity="warning",
        claim=f"{cap.value} requests run and up to {num(last)} wait: state slots set the limit, while the KV cache is "
        f"{percent(kv)} used.",
        arithmetic="; ".join(arithmetic),
        evidence=some(log, rows),
        next_action=f"Raise --max-mamba-cache-size to {cap.per_request or 5} x the wanted concurrency (or "
        "--mamba-full-memory-ratio, or --mamba-ssm-dtype bfloat16); do not wait for 100% usage.",
        figures={"cap": float(cap.value), "queued": last, "kv_usage": kv, "slots_held": holds},
    )


def _capped(log: Digest, rows: Sequence[Row], cap: Cap, kv: float) -> Finding:
    configured = cap.by == CONFIGURED
    return Finding(
        code="QUEUE_LIMITED_BY_MAX_RUNNING" if configured else "QUEUE_LIMITED_BY_CAP",
        severity="warning",
        claim=f"{cap.value} requests run and up to {num(max(r.queued or 0.0 for r in rows))} wait at the cap on "
        f"running "
        f"requests, while the KV cache is {percent(kv)} used.",
        arithmetic=cap.arithmetic,
        evidence=some(log, rows),
        next_action="Raise the cap on running requests, or send fewer at once.",
        figures={"cap": float(cap.value), "kv_usage": kv},
    )


def _kv(log: Digest, rows: Sequence[Row]) -> Finding:
    return Finding(
        code="QUEUE_LIMITED_BY_KV",
        severity="warning",
        claim=f"Requests wait because the KV cache is full ({percent(max(r.kv or 0.0 for r in rows))}).",
        evidence=some(log, rows),
        next_action="Give the KV cache more memory, use a smaller KV type, or allow shorter contexts.",
    )


def _unnamed(log: Digest, rows: Sequence[Row], most: float, kv: float, evidence: Evidence) -> Finding | None:
    """No cap is known and the KV cache has room: an admission limit all the same."""
    speculates = any(row.accept_len is not None for row in log.rows) or bool(evidence.facts.accept_len)
    if kv >= 0.5 or (len(rows) < 2 and not (speculates and any(r.kind == STATS for r in rows))):
        return None
    queued = max(r.queued or 0.0 for r in rows)
    if speculates and any(row.kind == STATS for row in rows):
        return Finding(
            code="SPEC_SHRINKS_CONCURRENCY",
            severity="warning",
            claim=f"Speculation costs concurrency here: {num(most)} running, {num(queued)} waiting, while the KV cache "
            f"is {percent(kv)} used.",
            arithmetic="waiting > 0 with a KV cache below 50% is a limit on admission, not on KV: each request "
            "reserves "
            "blocks for 1 + k draft tokens",
            evidence=some(log, rows),
            confidence="likely",
            next_action="Compare k = 0 at the wanted concurrency; reduce k or give more memory, and turn speculation "
            "off where the sum of all requests is faster without it.",
            figures={"running": most, "queued": queued, "kv_usage": kv},
        )
    return Finding(
        code="QUEUE_LIMITED_BY_CAP",
        severity="warning",
        claim=f"Never more than {num(most)} requests run while up to {num(queued)} wait and the KV cache is "
        f"{percent(kv)} used: something caps what runs at once.",
        evidence=some(log, rows),
        confidence="likely",
        next_action="Read max_running_requests (or --max-num-seqs) and state slots at the start of the log.",
        figures={"running": most, "queued": queued, "kv_usage": kv},
    )

"""Recurrent-state slots: what usage means, and what they allow at once."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.capacity import STATE, running_cap, slot_choices, slots_each
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules.log_words import some
from tokpit.insight.slots import total_slots
from tokpit.insight.words import listed, num

_HIGH = 0.4


def own_slots(evidence: Evidence) -> Sequence[Finding]:
    """High usage of the state pool with one request running: its own slots, not pressure. Quiet for larger pools."""
    found = []
    for log in evidence.logs:
        rows = [r for r in log.busy if r.running == 1 and r.state_usage and r.state_num and r.state_usage >= _HIGH]
        slots = total_slots(rows)
        if not rows or slots is None:
            continue
        usages = sorted({(r.state_num or 0.0, r.state_usage or 0.0) for r in rows})[:3]
        told = listed(f"{num(u)} = {num(n)}/{slots}" for n, u in usages)
        found.append(_slots(evidence, slots, told, some(log, rows, 2)))
    usage = evidence.facts.state_usage
    if not found and usage and evidence.facts.max_running_requests == 1:
        slots = evidence.facts.state_slots or smallest_pool(usage)
        if slots:
            told = listed(f"{num(u)} = {round(u * slots)}/{slots}" for u in usage)
            found.append(_slots(evidence, slots, told, ()))
    return found


def smallest_pool(usages: Sequence[float]) -> int | None:
    """The smallest pool of which every printed usage (two decimals) is a whole number of slots; None up to 64."""
    for n in range(1, 65):
        if all(round(round(u * n) / n, 2) == round(u, 2) for u in usages):
            return n
    return None


def _slots(evidence: Evidence, slots: int, told: str, shown: tuple[str, ...]) -> Finding:
    f = evidence.facts
    choices = slot_choices(f)
    each = slots_each(f)
    if each is None and f.max_running_requests:
        each = max((c for c in choices if slots // c == f.max_running_requests), default=None)
    sums = f"usage {told}: a pool of {slots} slots"
    claim = "The state usage is the one running request's own slots, not pressure: the state of a request has a fixed "
    claim += "size, whatever its length, and it does not slow one stream down."
    if each:
        sums += f"; floor({slots} / {each} per request) = {slots // each} running at once"
        claim += f" The pool allows {slots // each} running at once."
    return Finding(
        code="STATE_SLOTS_OF_ONE_REQUEST",
        severity="info",
        claim=claim,
        arithmetic=sums,
        evidence=shown,
        next_action="For more at once, give the state pool more slots; for a faster stream, look at step time and "
        "acceptance length.",
        figures={"slots": float(slots)},
    )


def capacity(evidence: Evidence) -> Sequence[Finding]:
    """A server that runs one request at a time because of its pools."""
    f = evidence.facts
    cap = running_cap(f)
    if cap is None or cap.value != 1 or f.configured_max_running == 1:
        return ()
    context = f", and a context of {num(f.context_len, 6)} tokens" if f.context_len else ""
    sums = cap.arithmetic
    return (
        Finding(
            code="ONE_AT_A_TIME",
            severity="info",
            claim=f"Capacity: 1 running request{context}. Memory limits concurrency and context, not the speed of one "
            "stream.",
            arithmetic=sums,
            next_action=(
                "Raise --max-mamba-cache-size or --mamba-full-memory-ratio" if cap.by == STATE else "Free GPU memory"
            )
            + ", use --mamba-ssm-dtype bfloat16, or quantize weights or KV to make room.",
        ),
    )

"""Prefill that starves decoding."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tokpit.domain.finding import Finding
from tokpit.insight.digest import DECODE, PREFILL, STATS, Digest, Row
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules.log_words import some, span
from tokpit.insight.words import num, percent

_PER_DECODE = 5
_STALLED = 0.1


def counts(evidence: Evidence) -> Sequence[Finding]:
    """Many prefill batches for each decode line, with requests running that wait for their next token."""
    found = []
    for log in evidence.logs:
        stretch, decodes = _stretch(log)
        running = max((r.running or 0.0 for r in stretch), default=0.0)
        if len(stretch) < 2 * _PER_DECODE or running < 2 or not any(r.pending or r.queued for r in stretch):
            continue
        if len(stretch) <= _PER_DECODE * max(1, len(decodes)):
            continue
        seconds = span([*stretch, *decodes])
        share = [r for r in decodes if r.gen_tps]
        rate = (
            f"; {num(share[-1].running or 0)} running requests share {num(share[-1].gen_tps or 0)} tok/s"
            if share
            else ""
        )
        found.append(
            Finding(
                code="PREFILL_STARVES_DECODE",
                severity="warning",
                claim=f"{len(stretch)} prefill batches for {len(decodes)} decode "
                f"{'line' if len(decodes) == 1 else 'lines'}"
                + (f" in {num(seconds)} s" if seconds else "")
                + rate
                + ": prompts are taken in first, and those that run wait for their next token.",
                arithmetic=f"{len(stretch)} / {max(1, len(decodes))} = {num(len(stretch) / max(1, len(decodes)))}",
                evidence=some(log, stretch),
                next_action="Smaller chunks (--chunked-prefill-size), mixed chunks, a limit on admission, or prefill "
                "and decode on separate servers.",
                figures={"prefills": float(len(stretch)), "decodes": float(len(decodes))},
            )
        )
    return found


def _stretch(log: Digest) -> tuple[list[Row], list[Row]]:
    """The longest stretch of prefill batches with at most one decode line for each ten, and its decode lines."""
    best: tuple[list[Row], list[Row]] = ([], [])
    prefills: list[Row] = []
    decodes: list[Row] = []
    for row in log.of(PREFILL, DECODE):
        if row.kind == PREFILL:
            if row.running:
                prefills.append(row)
        else:
            decodes.append(row)
            if len(prefills) < 2 * _PER_DECODE * len(decodes) or not row.running:
                prefills, decodes = [], []
        if prefills and len(prefills) >= len(best[0]):
            best = (list(prefills), list(decodes))
    return best


def stalls(evidence: Evidence) -> Sequence[Finding]:
    """Generation nearly stops with requests running and none waiting, until a burst of prompt tokens is booked."""
    return [found for log in evidence.logs if (found := _stall(log)) is not None]


def _stall(log: Digest) -> Finding | None:
    rows = [r for r in log.of(STATS) if r.running and r.gen_tps is not None]
    if len(rows) < 4:
        return None
    usual = median(r.gen_tps or 0.0 for r in rows if r.gen_tps)
    best = max(r.gen_tps or 0.0 for r in rows)
    threshold = _STALLED * max(usual, 0.5 * best)
    start: int | None = None
    for i, row in enumerate(rows):
        slow = (row.gen_tps or 0.0) < threshold
        if slow and start is None:
            start = i
        if slow or start is None:
            continue
        stall, begin = rows[start:i], start
        start = None
        usual_prompt = median(r.prompt_tps or 0.0 for r in rows)
        spike = (row.prompt_tps or 0.0) > max(500.0, 10 * usual_prompt)
        if len(stall) < 2 or not spike or begin == 0:
            continue
        seconds = span([*stall, row])
        before = rows[begin - 1].gen_tps or 0.0
        return Finding(
            code="PREFILL_STARVES_DECODE",
            severity="warning",
            claim=(
                "Decoding stalled "
                + (f"for about {num(seconds / 60)} min" if seconds and seconds >= 90 else f"over {len(stall)} lines")
                + f" ({num(before)} to {num(min(r.gen_tps or 0.0 for r in stall))} tok/s) while a long prompt was "
                "taken in: the burst of prompt tokens at its end proves it."
            ),
            arithmetic=f"lines {stall[0].line} to {stall[-1].line} below {percent(_STALLED)} of the usual "
            f"{num(max(usual, 0.5 * best))} tok/s; then {num(row.prompt_tps or 0)} prompt tok/s in one interval",
            evidence=some(log, [*stall, row]),
            next_action="Limit long prompts in a batch (--long-prefill-token-threshold, a smaller token budget); "
            "prompt "
            "throughput of 0 does not mean that no prefill runs.",
        )
    return None


def interference(evidence: Evidence) -> Sequence[Finding]:
    """A controlled experiment: decoding alone and beside a prefill."""
    f = evidence.facts
    if not f.decode_alone_tps or f.decode_mixed_tps is None:
        return ()
    loss = 1 - f.decode_mixed_tps / f.decode_alone_tps
    if loss < 0.5:
        return ()
    prefill = ""
    if f.prefill_alone_tps and f.prefill_mixed_tps:
        prefill = f", prefill -{percent(1 - f.prefill_mixed_tps / f.prefill_alone_tps)}"
    return (
        Finding(
            code="PREFILL_STARVES_DECODE",
            severity="warning",
            claim=f"Beside a long prefill, decoding loses {num(100 * loss)}%{prefill}.",
            arithmetic=f"1 - {num(f.decode_mixed_tps)} / {num(f.decode_alone_tps)} = {num(100 * loss)}%",
            next_action="Smaller prefill chunks, or prefill and decode on separate servers; measure with both at once.",
            figures={"loss": loss},
        ),
    )

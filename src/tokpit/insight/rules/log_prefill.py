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
_SLOW_TPS = 5.0
"""tok/s of one stream, below which nobody wants to read along."""


def counts(evidence: Evidence) -> Sequence[Finding]:
    """Many prefill batches before a decode line, after which each running request has hardly got a token."""
    found = []
    for log in evidence.logs:
        prefills, decodes = _starved(log)
        if not prefills:
            continue
        seconds = span([*prefills, *decodes])
        last = decodes[-1] if decodes else None
        rate = (
            f"; {num(last.running or 0)} running requests share {num(last.gen_tps or 0)} tok/s"
            if last is not None
            else ""
        )
        per = len(prefills) / max(1, len(decodes))
        found.append(
            Finding(
                code="PREFILL_STARVES_DECODE",
                severity="warning",
                claim=f"{len(prefills)} prefill batches for {len(decodes)} decode "
                f"{'line' if len(decodes) == 1 else 'lines'}"
                + (f" in {num(seconds)} s" if seconds else "")
                + rate
                + ": prompts are taken in first, and those that run wait for their next token.",
                arithmetic=f"{len(prefills)} / {max(1, len(decodes))} = {num(per)}",
                evidence=some(log, [*prefills, *decodes]),
                next_action="Smaller chunks (--chunked-prefill-size), mixed chunks, a limit on admission, or prefill "
                "and decode on separate servers.",
                figures={"prefills": float(len(prefills)), "decodes": float(len(decodes))},
            )
        )
    return found


def _starved(log: Digest) -> tuple[list[Row], list[Row]]:
    """Prefill batches of the windows in which decoding starved, and their decode lines.

    A window ends with a decode line. Every prefill batch prints a line but only every 40th step of decoding does, so
    many prefill lines alone are normal on a busy server: a stream must be slow as well.
    """
    windows: list[tuple[list[Row], Row | None]] = []
    now: list[Row] = []
    for row in log.of(PREFILL, DECODE):
        if row.kind == PREFILL:
            now = [*now, row] if row.running else now
        else:
            windows.append((now, row))
            now = []
    windows.append((now, None))
    streams = [_each(end) for rows, end in windows if end is not None and len(rows) <= 2 and _each(end)]
    slow = max(_SLOW_TPS, 0.25 * median(streams) if streams else 0.0)
    prefills: list[Row] = []
    decodes: list[Row] = []
    judged = 0
    for rows, end in windows:
        judged += end is not None
        many = len(rows) > _PER_DECODE and max((r.running or 0.0 for r in rows), default=0.0) >= 2
        if not many or not any(r.pending or r.queued for r in rows):
            continue
        seconds = span(rows) or 0.0
        if end is None and len(rows) >= 2 * _PER_DECODE and seconds >= 10:
            prefills += rows
        elif end is not None and end.running and end.gen_tps and _each(end) < slow:
            prefills += rows
            decodes.append(end)
    return (prefills, decodes) if len(decodes) >= 0.3 * judged else ([], [])


def _each(row: Row) -> float:
    """tok/s of each running request."""
    return (row.gen_tps or 0.0) / row.running if row.running else 0.0


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

"""Faults of a sweep's levels: failed requests, a fall at a threshold, failed checks of the load generator."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.plateau import MAX_ERROR_SHARE
from tokpit.insight.points import Point
from tokpit.insight.words import listed, num, percent


def errors(evidence: Evidence) -> Sequence[Finding]:
    """Levels on which more than 1 % of the requests failed."""
    bad = [p for p in evidence.points if p.error_share > MAX_ERROR_SHARE]
    if not bad:
        return ()
    told = listed(f"{p.err} of {p.ok + p.err} requests ({percent(p.error_share)}) at C={p.concurrency}" for p in bad)
    return (
        Finding(
            code="REJECTED",
            severity="error",
            claim=f"{told} failed: averages over the others flatter the server, and these levels cannot be compared.",
            arithmetic="; ".join(
                f"C={p.concurrency}: goodput {num(p.rps)} requests/s of {num((p.ok + p.err) / p.elapsed_s)} tried"
                for p in bad
                if p.elapsed_s > 0
            ),
            next_action="Look at the errors of one failed request; lower C or allow a longer queue, and measure again.",
            levels=tuple(p.concurrency for p in bad),
        ),
    )


def cliff(evidence: Evidence) -> Sequence[Finding]:
    """A fall between neighbouring levels: more requests, a quarter less throughput."""
    if evidence.curve is None:
        return ()
    found = []
    for a, b in evidence.curve.cliffs:
        gap = b.concurrency - a.concurrency
        between = f"{a.concurrency + 1}..{b.concurrency - 1}" if gap > 1 else "both again"
        found.append(
            Finding(
                code="SWEEP_CLIFF",
                severity="warning",
                claim=(
                    f"Throughput falls between C={a.concurrency} and C={b.concurrency}, from {num(a.tps)} to "
                    f"{num(b.tps)} tok/s: something switches there."
                ),
                arithmetic=f"{num(b.tps)} / {num(a.tps)} = {num(b.tps / a.tps)}",
                confidence="sure" if b.tps < 0.6 * a.tps else "likely",
                next_action=(
                    f"Measure C={between}, and look for a threshold there: a speculation schedule, the largest "
                    "captured graph batch, KV retraction or preemption."
                ),
                figures={"from_concurrency": float(a.concurrency), "to_concurrency": float(b.concurrency)},
                levels=(a.concurrency, b.concurrency),
            )
        )
    return found


def no_tokens(evidence: Evidence) -> Sequence[Finding]:
    """Levels with ok requests and no tokens: a fault of the measurement, not 0 tok/s."""
    bad = [p for p in evidence.points if p.ok > 0 and p.output_tps <= 0]
    if not bad:
        return ()
    told = listed(f"{p.ok} of {p.requests} ok at C={p.concurrency}" for p in bad)
    return (
        Finding(
            code="ZERO_TOKENS_SUSPECT",
            severity="error",
            claim=f"{told}, but 0 tokens: a fault of the measurement, not 0 tok/s.",
            next_action="Look at one raw stream: the text may be in a reasoning field, and usage may be missing.",
            levels=tuple(p.concurrency for p in bad),
        ),
    )


def checks(evidence: Evidence) -> Sequence[Finding]:
    """What the load generator's own checks said of stored levels."""
    told: dict[str, list[tuple[Point, str]]] = {}
    for p in evidence.points:
        for code, sentence in zip(p.failed_checks, p.sentences, strict=True):
            told.setdefault(code, []).append((p, sentence))
    return [
        Finding(
            code=code,
            severity="warning",
            claim=f"C={listed(p.concurrency for p, _ in rows)}: {rows[0][1]}.",
            evidence=tuple(f"C={p.concurrency}: {sentence}" for p, sentence in rows),
            next_action="Do not compare these levels before the cause is gone.",
            levels=tuple(p.concurrency for p, _ in rows),
        )
        for code, rows in told.items()
        if code != "REJECTED"
    ]

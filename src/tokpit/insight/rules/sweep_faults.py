"""Faults of a sweep's levels: failed requests, a fall at a threshold, failed checks of the load generator."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.plateau import MAX_ERROR_SHARE
from tokpit.insight.points import Point
from tokpit.insight.words import listed, num, percent

_LIMITS_S = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)


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
                if p.timed
            ),
            next_action="Look at the errors of one failed request; lower C or allow a longer queue, and measure again.",
            levels=tuple(p.concurrency for p in bad),
        ),
    )


def cliff(evidence: Evidence) -> Sequence[Finding]:
    """A fall between neighbouring levels: more requests, a quarter less throughput."""
    curves = [("", evidence.curve), *evidence.others]
    both = len([curve for _, curve in curves if curve is not None]) > 1
    found = []
    for name, curve in curves:
        for a, b in curve.cliffs if curve is not None else ():
            where = f" in {name} only" if both and name and evidence.curve and not evidence.curve.cliffs else ""
            found.append(_cliff(a, b, where))
    return found


def _cliff(a: Point, b: Point, where: str) -> Finding:
    gap = b.concurrency - a.concurrency
    between = f"{a.concurrency + 1}..{b.concurrency - 1}" if gap > 1 else "both again"
    return Finding(
        code="SWEEP_CLIFF",
        severity="warning",
        claim=f"Throughput falls between C={a.concurrency} and C={b.concurrency}{where}, from {num(a.tps)} to "
        f"{num(b.tps)} tok/s: something switches there.",
        arithmetic=f"{num(b.tps)} / {num(a.tps)} = {num(b.tps / a.tps)}",
        confidence="sure" if b.tps < 0.6 * a.tps else "likely",
        next_action=f"Measure C={between}, and look for a threshold there: a speculation schedule, the largest "
        f"captured "
        "graph batch, KV retraction or preemption.",
        figures={"from_concurrency": float(a.concurrency), "to_concurrency": float(b.concurrency)},
        levels=(a.concurrency, b.concurrency),
    )


def timeout(evidence: Evidence) -> Sequence[Finding]:
    """A level with failures that took exactly a usual time limit."""
    bad = [p for p in evidence.points if p.err and any(abs(p.elapsed_s / t - 1) < 0.005 for t in _LIMITS_S)]
    if not bad:
        return ()
    told = listed(f"{p.err} at C={p.concurrency} after {num(p.elapsed_s, 4)} s" for p in bad)
    return (
        Finding(
            code="CLIENT_TIMEOUT",
            severity="error",
            claim=f"Requests failed ({told}) at what looks like a time limit of the client, not of the server.",
            confidence="likely",
            next_action="Raise the client's total timeout (keep one for silence between chunks), and drop this level.",
            levels=tuple(p.concurrency for p in bad),
        ),
    )


def cold_level(evidence: Evidence) -> Sequence[Finding]:
    """A first level whose streams are slower than those of the next: it was measured cold."""
    points = evidence.curve.points if evidence.curve is not None else ()
    if len(points) < 2:
        return ()
    a, b = points[0], points[1]
    own, next_own = a.tps / a.concurrency, b.tps / b.concurrency
    if next_own < 1.15 * own:
        return ()
    return (
        Finding(
            code="COLD_START",
            severity="warning",
            claim=f"A stream makes {num(own)} tok/s at C={a.concurrency} and {num(next_own)} at C={b.concurrency}: "
            f"more "
            "requests cannot make each one faster, so the first level was measured cold.",
            arithmetic=f"{num(a.tps, 4)} / {a.concurrency} < {num(b.tps, 4)} / {b.concurrency}",
            confidence="likely",
            next_action="Warm up (kernels, graphs, caches) and measure that level again.",
            levels=(a.concurrency,),
        ),
    )


def lengths(evidence: Evidence) -> Sequence[Finding]:
    """Levels whose answers differ in length: rates and latencies of such levels do not compare."""
    used = [p for p in evidence.points if p.ok >= 4 and p.timed and p.output_tps > 0]
    wanted = evidence.facts.requested_output
    if not used:
        return ()
    short, long = (f(used, key=lambda p: p.tokens) for f in (min, max))
    if wanted and long.tokens <= 0.05 * wanted:
        return (
            Finding(
                code="OUTPUT_TRUNCATED",
                severity="error",
                claim=f"Answers have {num(long.tokens)} tokens where {num(wanted, 6)} were asked for: the request was "
                f"wrong.",
                arithmetic=f"rate x elapsed / ok = {num(long.tokens)}",
                next_action="Look at the length in the request that was really sent, and at finish reasons.",
            ),
        )
    if long.tokens < 1.3 * short.tokens:
        return ()
    return (
        Finding(
            code="LENGTH_MISMATCH",
            severity="warning",
            claim=f"Answers have {num(short.tokens)} tokens at C={short.concurrency} and {num(long.tokens)} at "
            f"C={long.concurrency}: these levels do not compare.",
            arithmetic="tokens a request = rate x elapsed / ok",
            next_action="Fix the output length (ignore_eos where the server takes it), or compare equal lengths only.",
            levels=(short.concurrency, long.concurrency),
        ),
    )


def little(evidence: Evidence) -> Sequence[Finding]:
    """Measured latencies that contradict Little's law."""
    off = [p for p in evidence.points if p.e2e_mean_s and p.little_s and not 0.6 < p.e2e_mean_s / p.little_s < 1.5]
    if not off:
        return ()
    p = off[-1]
    return (
        Finding(
            code="LITTLE",
            severity="warning",
            claim=f"A latency of {num(p.e2e_mean_s or 0)} s at C={p.concurrency} does not go with {num(p.rps)} "
            f"requests/s: "
            f"C / rate is {num(p.little_s or 0)} s.",
            arithmetic=f"{p.concurrency} / ({p.ok} / {num(p.elapsed_s, 4)} s) = {num(p.little_s or 0)} s",
            next_action="Find what the latency leaves out (waiting in the client), or how many really were in flight.",
            levels=tuple(q.concurrency for q in off),
        ),
    )


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

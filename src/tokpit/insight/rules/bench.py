"""Figures of a benchmark that contradict one another: the client is the least trustworthy part."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules.log_words import some
from tokpit.insight.words import num, percent

_RATIO = 1.15


def chunks(evidence: Evidence) -> Sequence[Finding]:
    """A peak below the mean, or gaps too long for the rate: chunks were taken for tokens."""
    f = evidence.facts
    found = []
    if f.peak_tps and f.mean_tps and f.peak_tps < 0.98 * f.mean_tps:
        ratio = f.mean_tps / f.peak_tps
        about = f", about 1/{num(f.accept_len)} as tokens come {num(f.accept_len)} a step" if f.accept_len else ""
        found.append(
            Finding(
                code="CHUNKS_NOT_TOKENS",
                severity="error",
                claim=f"The peak of {num(f.peak_tps)} tok/s is below the mean of {num(f.mean_tps, 5)} tok/s, which is "
                "impossible: the tool counted chunks, which carry several tokens, as tokens.",
                arithmetic=f"peak / mean = {num(f.peak_tps / f.mean_tps, 2)}{about}; the true peak is at least "
                f"{num(ratio, 2)} times as high",
                next_action="Count tokens from usage (or token ids), and spread them over the gap of their chunk.",
            )
        )
    if f.itl_ms and f.mean_tps and (f.concurrency or 1) >= 1:
        c = f.concurrency or 1
        per_gap = f.mean_tps * f.itl_ms / 1000 / c
        if per_gap > 1.3:
            found.append(
                Finding(
                    code="ITL_IS_PER_CHUNK",
                    severity="warning",
                    claim=f"A gap of {num(f.itl_ms)} ms does not go with {num(f.mean_tps, 5)} tok/s at C={c}: it is "
                    f"the "
                    f"gap between chunks, each of about {num(per_gap)} tokens.",
                    arithmetic=f"ITL x rate / C = {num(f.itl_ms)} ms x {num(f.mean_tps, 5)} / {c} = {num(per_gap)} "
                    f"tokens a gap; a token takes {num(1000 * c / f.mean_tps)} ms",
                    next_action="Report the gap per chunk and per token, and say which.",
                )
            )
    return found


def client_bound(evidence: Evidence) -> Sequence[Finding]:
    """The server made far more than the client counted."""
    f = evidence.facts
    server, client, unit = f.server_tps, f.client_tps, "tok/s"
    if not (server and client):
        server, client, unit = f.server_tokens, f.client_tokens, "tokens"
    if not server or not client or server / client <= _RATIO:
        return ()
    signs = [
        *([f"loop late by {num(f.loop_lag_ms)} ms"] if f.loop_lag_ms and f.loop_lag_ms > 50 else []),
        *([f"{percent(f.client_cpu)} of a core used"] if f.client_cpu and f.client_cpu > 0.9 else []),
    ]
    return (
        Finding(
            code="CLIENT_BOUND",
            severity="error",
            claim=f"The server made {num(server, 5)} {unit} while the client counted {num(client, 5)}: the client is "
            f"the "
            "bottleneck" + (f" ({', '.join(signs)})." if signs else "."),
            arithmetic=f"{num(server, 5)} / {num(client, 5)} = {num(server / client)} > {_RATIO}",
            next_action="Run the client on the host or on a quieter machine, and compare with the server's counters at "
            "every level.",
        ),
    )


def client_limit(evidence: Evidence) -> Sequence[Finding]:
    """The server sees fewer than the client believes to send, and none waits."""
    f = evidence.facts
    seen = f.server_running
    if not f.concurrency or f.server_queued is None or f.server_queued > 0 or not seen or seen >= 0.95 * f.concurrency:
        return ()
    known = seen in (f.client_limit, 100)
    cap = f.max_running_requests
    if cap is not None and cap <= seen:
        return ()
    return (
        Finding(
            code="CLIENT_LIMIT",
            severity="error",
            claim=f"The server ran {seen} and 0 waited at C={f.concurrency}: the client is held to {seen} connections.",
            arithmetic=f"running {seen} < C={f.concurrency} with an empty queue",
            confidence="sure" if known else "likely",
            next_action="Lift the client's connection limit (0 or C) and look at its limit of open files.",
        ),
    )


def client_limit_rows(evidence: Evidence) -> Sequence[Finding]:
    """A log on which the number that runs never changes and stays below what the client means to send."""
    wanted = evidence.facts.concurrency
    found = []
    for log in evidence.logs if wanted else ():
        rows = log.busy
        most = max((r.running or 0.0 for r in rows), default=0.0)
        cap = evidence.facts.max_running_requests
        steady = [r for r in rows if r.running == most and not r.queued]
        if len(rows) < 3 or len(steady) < 0.6 * len(rows) or any(r.queued for r in rows):
            continue
        if most >= 0.95 * (wanted or 0) or (cap is not None and cap <= most):
            continue
        found.append(
            Finding(
                code="CLIENT_LIMIT",
                severity="error",
                claim=f"The server ran {num(most)} and 0 waited at C={wanted}: the client is held to {num(most)} "
                "connections.",
                evidence=some(log, steady, 2),
                confidence="sure" if most == 100 else "likely",
                next_action="Lift the client's connection limit (0 or C) and look at its limit of open files.",
            )
        )
    return found


def lost(evidence: Evidence) -> Sequence[Finding]:
    """Requests in flight at the client and none at the server."""
    f = evidence.facts
    if not f.client_in_flight or f.server_running is None or f.server_queued is None:
        return ()
    if f.server_running or f.server_queued:
        return ()
    done = f" after {f.client_completed} completed" if f.client_completed else ""
    return (
        Finding(
            code="LOST_REQUESTS",
            severity="error",
            claim=f"{f.client_in_flight} requests are in flight at the client{done} and none at the server: they are "
            "lost and no reply will come.",
            next_action="Stop the level and keep what was measured; with several tokenizer workers try one.",
        ),
    )


def timeouts(evidence: Evidence) -> Sequence[Finding]:
    """Failures that all come after the same time: the client's own limit."""
    times = evidence.facts.failure_elapsed_s or ()
    top = max(times, default=0.0)
    same = [t for t in times if abs(t - top) <= 0.01 * top]
    usual = round(top) in (30, 60, 120, 300, 600, 900, 1800, 3600)
    if top < 5 or not ((len(same) >= 3 and len(same) > 0.5 * len(times)) or (usual and abs(top - round(top)) < 0.5)):
        return ()
    total = evidence.facts.requests
    return (
        Finding(
            code="CLIENT_TIMEOUT",
            severity="error",
            claim=f"{len(same)} {'failure' if len(same) == 1 else 'failures'}"
            + (f" of {total} requests" if total else "")
            + f" came after {num(top, 5)} s each: a limit of the client, not of the server.",
            arithmetic=f"{len(same)} of {len(times)} failures within 1% of {num(top, 5)} s",
            next_action="Raise the total timeout (keep one for silence between chunks), and drop this level.",
        ),
    )


def stalled(evidence: Evidence) -> Sequence[Finding]:
    """A stream that has been silent for minutes."""
    silent = evidence.facts.stream_silent_s
    if silent is None or silent <= 120:
        return ()
    return (
        Finding(
            code="STREAM_STALLED",
            severity="error",
            claim=f"One stream has been silent for {num(silent, 5)} s and holds the level up.",
            next_action="End it by a limit on silence, and keep the others' results.",
        ),
    )


def lengths(evidence: Evidence) -> Sequence[Finding]:
    """Outputs (or inputs) of another length than asked for, and no tokens at all."""
    f = evidence.facts
    count = f.ok or f.requests
    mean = f.output_tokens
    if f.total_output_tokens is not None and count:
        mean = f.total_output_tokens / count
    if mean is None:
        return ()
    if mean == 0:
        ok = f"{count} of {f.requests or count} ok" if count else "requests were ok"
        return (
            Finding(
                code="ZERO_TOKENS_SUSPECT",
                severity="error",
                claim=f"{ok}, but 0 tokens: a fault of the measurement, not 0 tok/s.",
                next_action="Do not plot it; look at one raw stream (reasoning fields, missing usage).",
            ),
        )
    wanted = f.requested_output
    if not wanted or 0.95 <= mean / wanted <= 1.05:
        return ()
    truncated = mean <= 0.05 * wanted
    return (
        Finding(
            code="OUTPUT_TRUNCATED" if truncated else "LENGTH_MISMATCH",
            severity="error" if truncated else "warning",
            claim=f"Answers have {num(mean, 5)} tokens on average where {num(wanted, 6)} were asked for"
            + (": the request was wrong." if truncated else ": compare runs of equal actual lengths only."),
            arithmetic=f"{num(mean, 5)} / {num(wanted, 6)} = {percent(mean / wanted)}",
            next_action="Look at the length in the request that was really sent, and at finish reasons (length, stop)."
            if truncated
            else "Print nominal and actual lengths of every run.",
        ),
    )


def prompts(evidence: Evidence) -> Sequence[Finding]:
    """Few different prompts in a measurement: the prefix cache answers."""
    f = evidence.facts
    unique, every = f.unique_prompts, f.prompts or f.requests
    if not unique or not every or unique >= 0.9 * every or every < 2:
        return ()
    return (
        Finding(
            code="DUPLICATE_PROMPTS",
            severity="warning",
            claim=f"{unique} unique {'prompt' if unique == 1 else 'prompts'} of {every}: the prefix cache answers the "
            "others.",
            arithmetic=f"{unique} / {every} = {num(unique / every)}",
            next_action="Use a prompt of its own for every request.",
        ),
    )


def rejected(evidence: Evidence) -> Sequence[Finding]:
    """Failed or refused requests, where no sweep tells them."""
    f = evidence.facts
    bad = f.rejected or f.err
    if not bad or evidence.points:
        return ()
    total = f.ok + bad if f.ok is not None else f.requests
    if not total or bad / total <= 0.01:
        return ()
    return (
        Finding(
            code="REJECTED",
            severity="error",
            claim=f"{bad} of {total} requests failed ({percent(bad / total)}): averages over the others flatter the "
            "server, and this level cannot be compared.",
            arithmetic=f"{bad} / {total} = {percent(bad / total)}",
            next_action="Draw the error rate with the curve, honour Retry-After, and never retry silently.",
        ),
    )


def usage(evidence: Evidence) -> Sequence[Finding]:
    """No usage from the server: tokens are chunks."""
    if evidence.facts.usage_reported is not False:
        return ()
    return (
        Finding(
            code="NO_USAGE",
            severity="warning",
            claim="The server reports no usage: token counts are estimated from chunks, a lower bound.",
            next_action="Count with the server's tokenizer, and mark the figure as an estimate.",
        ),
    )

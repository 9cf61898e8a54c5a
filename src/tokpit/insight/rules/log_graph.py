"""Decoding without captured graphs."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.digest import DECODE, Digest, Row
from tokpit.insight.evidence import Evidence
from tokpit.insight.facts import Facts
from tokpit.insight.rules.log_words import some
from tokpit.insight.words import num


def rule(evidence: Evidence) -> Sequence[Finding]:
    """Decode lines that say no graph was used, if they are a lasting part. Prefill lines say so normally."""
    return [found for log in evidence.logs if (found := _log(log, evidence.facts)) is not None]


def by_flag(evidence: Evidence) -> Sequence[Finding]:
    """Graphs that were switched off on the command line."""
    if not evidence.facts.graph_off or any(row.graph for log in evidence.logs for row in log.of(DECODE)):
        return ()
    return (
        Finding(
            code="GRAPH_OFF",
            severity="info",
            claim="Graphs are switched off by a flag: every step pays for its launches, most of all with few requests.",
            next_action="Leave out --enforce-eager or --disable-cuda-graph and compare, unless memory forbids it.",
        ),
    )


def _log(log: Digest, facts: Facts) -> Finding | None:
    spoken = [row for row in log.of(DECODE) if row.graph is not None and row.running]
    off = [row for row in spoken if row.graph is False]
    if not off or (len(off) < 0.5 * len(spoken) and _longest(spoken) < 20):
        return None
    most = max(row.running or 0.0 for row in off)
    ranks = len({row.rank for row in off})
    dp = facts.dp or ranks
    arithmetic, action = "", "Raise the largest captured batch (--cuda-graph-max-bs, in newer releases "
    action += "--cuda-graph-max-bs-decode), and look for lines that say why the capture was left out."
    claim = f"Decoding runs without CUDA graphs at {num(most)} running requests: every step pays for its launches."
    whole = most * dp
    limit = facts.graph_max_batch
    if dp > 1 and (facts.dp_attention or ranks > 1):
        arithmetic = f"with data-parallel attention the limit is compared with the sum over ranks: {num(most)} x {dp} "
        arithmetic += f"= {num(whole)}" + (f" > {limit}" if limit and whole > limit else "")
        action = f"Raise the largest captured batch to at least {num(whole)}."
        claim = f"Decoding runs without CUDA graphs: the batch over all {dp} ranks is {num(whole)}" + (
            f", captured are {limit}." if limit else "."
        )
    elif limit and most > limit:
        arithmetic = f"{num(most)} > {limit} captured"
        action = f"Raise the largest captured batch to at least {num(most)}."
    suspended = [row for row in off if row.accept_len == 1.0 and (row.accept_rate or 0) > 0]
    if suspended:
        claim += " Speculation is suspended there (acceptance length 1.00), and its rate means nothing."
        action = "Capture graphs for the plain path as well, or keep speculation on at this batch."
    return Finding(
        code="GRAPH_OFF",
        severity="warning",
        claim=claim,
        arithmetic=arithmetic,
        evidence=some(log, off),
        next_action=action,
        figures={"batch": whole if dp > 1 else most},
    )


def _longest(rows: Sequence[Row]) -> int:
    best = now = 0
    for row in rows:
        now = now + 1 if row.graph is False else 0
        best = max(best, now)
    return best

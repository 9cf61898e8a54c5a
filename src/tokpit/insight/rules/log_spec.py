"""Speculation as a log shows it: a dead draft, wasted drafts, acceptance that decays."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from tokpit.domain.finding import Finding
from tokpit.insight.digest import Digest, Row
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules.log_words import place, some
from tokpit.insight.speculation import acceptance_of, draft_length, expected_length
from tokpit.insight.words import num, percent

_FEW = 3
_ENOUGH_DRAFTS = 100
_MANY_DRAFTS = 1000
_BY_CHANCE = 0.01
"""Share of accepted draft tokens that a head which knows nothing may reach: by luck, and where text repeats itself."""


def rule(evidence: Evidence) -> Sequence[Finding]:
    """The first of dead, decaying and wasteful that fits each log."""
    found = []
    for log in evidence.logs:
        rows = [r for r in log.rows if r.accept_len is not None or r.drafted is not None]
        if rows:
            told = _dead(log, rows) or _decay(log, rows) or _wasteful(log, rows, evidence)
            if told is not None:
                found.append(told)
    return found


def _dead(log: Digest, rows: list[Row]) -> Finding | None:
    drafted = sum(r.drafted or 0.0 for r in rows)
    accepted = sum(r.accepted or 0.0 for r in rows)
    spoken = [r for r in rows if r.accept_len is not None]
    constant = len(spoken) >= _FEW and all(r.accept_len == 1.0 and not r.accept_rate for r in spoken)
    chance = len(spoken) >= _FEW and all(
        (r.accept_len or 1.0) <= 1.03 and r.accept_rate is not None and r.accept_rate <= _BY_CHANCE for r in spoken
    )
    counted = _counted(drafted, accepted)
    if not counted and not ((constant or chance) and (drafted == 0 or accepted == 0)):
        return None
    claim = counted or (
        f"No draft token was ever accepted: the acceptance length is exactly 1.00 on all {len(spoken)} lines"
        if constant
        else f"Next to no draft token was accepted: an acceptance length of at most "
        f"{num(max(r.accept_len or 1.0 for r in spoken))} on all {len(spoken)} lines"
    )
    notes = tuple(f"{place(log, number)}: {text}" for number, text in log.notes.get("weights_unused", ())[:2])
    return Finding(
        code="DRAFT_DEAD",
        severity="error",
        claim=f"{claim}: the draft's weights are wrong or not loaded, it is not merely weak.",
        evidence=(*some(log, rows), *notes),
        next_action="Look for warnings about unused or missing weights and at the quantization of the draft layers; "
        "use "
        "another file or checkpoint, or turn speculation off.",
    )


def _counted(drafted: float, accepted: float) -> str:
    """What counts of draft tokens say of a dead draft; empty where it is none, or too few were drafted to tell."""
    if drafted >= _ENOUGH_DRAFTS and accepted == 0:
        return f"0 of {num(drafted, 7)} drafted tokens were accepted"
    if drafted >= _MANY_DRAFTS and accepted < _BY_CHANCE * drafted:
        return (
            f"{num(accepted, 7)} of {num(drafted, 7)} drafted tokens ({num(100 * accepted / drafted, 2)}%) were "
            "accepted, no more than by chance"
        )
    return ""


def _decay(log: Digest, rows: list[Row]) -> Finding | None:
    """Acceptance falls as the context of few requests grows."""
    known = [r for r in rows if r.accept_len and r.tokens and r.running and r.running <= 2]
    if len(known) < 2:
        return None
    known.sort(key=lambda r: (r.tokens or 0.0) / (r.running or 1.0))
    part = max(1, len(known) // 3)
    early, late = known[:part], known[-part:]
    a, b = median(r.accept_len or 1.0 for r in early), median(r.accept_len or 1.0 for r in late)
    short = median((r.tokens or 0.0) / (r.running or 1.0) for r in early)
    long = median((r.tokens or 0.0) / (r.running or 1.0) for r in late)
    if long < max(4 * short, 8000) or a - 1 <= 0 or (b - 1) > 0.6 * (a - 1) or a - b < 0.4:
        return None
    drafts = [d for r in (early[0], late[-1]) if (d := _drafts(r)) is not None]
    rates = [(r.gen_tps or 0.0) / (r.running or 1.0) for r in (early[0], late[-1])]
    ratio = (
        f"; throughput {num(rates[1] / rates[0], 2)}, acceptance length {num(b / a, 2)} of before" if rates[0] else ""
    )
    k = round(fmean(drafts)) if drafts else None
    return Finding(
        code="LOW_ACCEPT_LONG_CONTEXT",
        severity="warning",
        claim=f"Acceptance length fell from {num(a)} to {num(b)} as the context grew from {num(short, 2)} to "
        f"{num(long, 3)} tokens" + (f": drafts of {k} are mostly wasted there." if k and k > 1 else "."),
        arithmetic=(f"draft tokens = (length - 1) / rate = {num(fmean(drafts), 2)}" if drafts else "") + ratio,
        evidence=some(log, [early[0], late[-1]]),
        next_action="Use fewer draft steps for long contexts, or adaptive speculation; plot acceptance length against "
        "context tokens.",
        figures={"accept_len_short": a, "accept_len_long": b},
    )


def _drafts(row: Row) -> float | None:
    if not row.accept_len or not row.accept_rate or row.accept_len <= 1:
        return None
    return (row.accept_len - 1) / row.accept_rate


def _wasteful(log: Digest, rows: list[Row], evidence: Evidence) -> Finding | None:
    spoken = [r for r in rows if r.accept_len is not None and r.accept_len > 1.0 and r.accept_rate]
    if len(spoken) < _FEW:
        return None
    length = median(r.accept_len or 1.0 for r in spoken)
    rate = median(r.accept_rate or 0.0 for r in spoken)
    return _waste(length, rate, draft_length(evidence.facts), some(log, spoken))


def _waste(length: float, rate: float, drafted: int | None, evidence: tuple[str, ...]) -> Finding | None:
    k = drafted or max(1, round((length - 1) / rate))
    # Trees draft many tokens of which one path is accepted: their rate is low by nature.
    if rate >= 0.3 or length >= min(1 + 0.4 * k, 2.0) or k < 2:
        return None
    p = acceptance_of(length, k)
    shorter = ", ".join(f"k={j}: {num(expected_length(p, j), 3)}" for j in range(1, k)) if p is not None else ""
    return Finding(
        code="DRAFT_WASTEFUL",
        severity="warning",
        claim=f"Of {k} tokens drafted a step {percent(rate)} are accepted: the acceptance length of {num(length)} "
        "would nearly be reached with fewer.",
        arithmetic=f"p = {num(p or 0, 2)} a token gives {shorter}" if shorter else "",
        evidence=evidence,
        confidence="likely",
        next_action="Draft fewer tokens a step and compare tok/s.",
        figures={"accept_rate": rate, "accept_len": length, "draft_tokens": float(k)},
    )


def told(evidence: Evidence) -> Sequence[Finding]:
    """Acceptance as somebody states it: nothing accepted at all, or little of much. Logs say more, and go first."""
    f = evidence.facts
    if any(row.accept_len is not None or row.drafted is not None for log in evidence.logs for row in log.rows):
        return ()
    if counted := _counted(f.drafted_tokens or 0.0, f.accepted_tokens or 0.0):
        return (_told_dead(counted, "sure", ("counted on the server's metrics page",)),)
    levels = [p for p in evidence.points if p.accept_len is not None]
    if f.draft_tokens and levels and all((p.accept_len or 1.0) < 1.005 for p in levels):
        made = num(sum(p.tokens * p.ok for p in levels), 7)
        claim = f"No draft token was accepted at any level: the acceptance length is {num(levels[0].accept_len or 1.0)}"
        shown = tuple(f"C={p.concurrency}: acceptance length {num(p.accept_len or 1.0)}" for p in levels[:4])
        return (_told_dead(claim, "sure", (*shown, f"{made} output tokens in all")),)
    speculates = bool(f.draft_tokens or f.spec_tps or f.accept_rate == 0)
    nothing = f.accept_len is not None and f.accept_len < 1.005 and not f.accept_rate
    positions = bool(f.per_position) and not any(f.per_position or ())
    if speculates and (nothing or positions or (f.accept_rate == 0 and f.accept_len is None)):
        figure = f"the acceptance length is {num(f.accept_len)}" if f.accept_len is not None else "the rate is 0"
        return (_told_dead(f"No draft token is accepted ({figure})", "likely", ()),)
    if f.accept_len is None or f.accept_len <= 1 or f.baseline_tps:
        return ()  # with a rate without speculation the price is known, and its own rule judges
    k = draft_length(f)
    rate = f.accept_rate or ((f.accept_len - 1) / k if k else None)
    waste = _waste(f.accept_len, rate, k, ()) if rate else None
    return (waste,) if waste is not None else ()


def _told_dead(claim: str, confidence: str, shown: tuple[str, ...]) -> Finding:
    return Finding(
        code="DRAFT_DEAD",
        severity="error",
        claim=f"{claim}: the draft's weights are wrong or not loaded, it is not merely weak.",
        evidence=shown,
        confidence=confidence,
        next_action="See in the log whether it is exactly 1.00 on every line, and whether weights were unused or "
        "missing; use another file or checkpoint, or turn speculation off.",
    )

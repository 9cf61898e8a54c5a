"""The prefix cache: no use of it where there should be some, and use where a measurement must have none."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.digest import PREFILL, STATS, Digest
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules.log_words import place, some
from tokpit.insight.words import num, percent

_NONE = 0.05
_WARM = 0.01


def repeated(evidence: Evidence) -> Sequence[Finding]:
    """Prompts of exactly the same length come again and again, and nothing is found in the cache."""
    return [found for log in evidence.logs if (found := _repeated(log, evidence)) is not None]


def _repeated(log: Digest, evidence: Evidence) -> Finding | None:
    if evidence.facts.prefix_cache is False or evidence.facts.prompt_kind in ("random", "unique"):
        return None
    rows = [r for r in log.of(PREFILL) if r.line > log.start_line and r.new_tokens and r.cached_tokens is not None]
    same: dict[float, int] = {}
    for row in rows:
        # A prompt that is taken in by chunks prints the chunk size on every line: pending tokens tell.
        if (row.new_tokens or 0) >= 256 and not row.pending and not row.running:
            same[row.new_tokens or 0.0] = same.get(row.new_tokens or 0.0, 0) + 1
    often = max(same.items(), key=lambda item: item[1], default=(0.0, 0))
    if often[1] < 2 or often[1] < 0.5 * len(rows):
        return None
    new = sum(r.new_tokens or 0.0 for r in rows)
    cached = sum(r.cached_tokens or 0.0 for r in rows)
    if cached / (new + cached) >= _NONE:
        return None
    return Finding(
        code="PREFIX_CACHE_INEFFECTIVE",
        severity="info",
        claim=f"{often[1]} prompts of the same {num(often[0], 6)} tokens, and {percent(cached / (new + cached))} of "
        f"the "
        "prompt tokens came from the cache.",
        arithmetic=f"hit rate = cached / (new + cached) = {num(cached, 6)} / {num(new + cached, 6)}",
        evidence=some(log, rows, 2),
        confidence="possible",
        next_action="If these prompts are meant to share a prefix, repeat one prompt and look at #cached-token; on "
        "models with recurrent state only whole, aligned blocks are found again.",
        figures={"hit_rate": cached / (new + cached)},
    )


def counters(evidence: Evidence) -> Sequence[Finding]:
    """Lookups without hits over a window, where prefixes are shared."""
    f = evidence.facts
    if not f.prefix_queries or f.prefix_hits is None or f.prefix_cache is False:
        return ()
    share = f.prefix_hits / f.prefix_queries
    random = f.prompt_kind == "random"
    if share < _NONE and not random and f.prefix_cache:
        hybrid = " (recurrent state is cached at whole blocks only)" if f.hybrid else ""
        return (
            Finding(
                code="PREFIX_CACHE_INEFFECTIVE",
                severity="warning",
                claim=f"{percent(share)} hits over {num(f.prefix_queries, 7)} tokens looked up, although prefix "
                f"caching "
                f"is on{hybrid}.",
                arithmetic=f"{num(f.prefix_hits, 7)} / {num(f.prefix_queries, 7)}",
                confidence="likely",
                next_action="Share longer prefixes (whole blocks), or use a release that caches the state at every "
                "block; "
                "do not count on reuse when sizing.",
            ),
        )
    if share > _WARM and random:
        return (_warm(f.prefix_hits, f.prefix_queries),)
    return ()


def _warm(hits: float, queries: float) -> Finding:
    return Finding(
        code="WARM_PREFIX",
        severity="warning",
        claim=f"{percent(hits / queries)} of the prompt tokens of this measurement came from the prefix cache.",
        arithmetic=f"{num(hits, 7)} / {num(queries, 7)} = {num(hits / queries, 2)}",
        next_action="Use fresh prompts for every request and level, or empty the cache between levels; do not compare "
        "this run with cold ones.",
        figures={"hit_rate": hits / queries},
    )


def shared(evidence: Evidence) -> Sequence[Finding]:
    """Prompts that are said to share a prefix, or to be random, against the hit rate that a log prints."""
    f = evidence.facts
    found = []
    for log in evidence.logs:
        rows = [r for r in log.of(STATS) if r.hit_rate is not None and r.prompt_tps]
        pairs = [r for r in log.of(PREFILL) if r.new_tokens is not None and r.cached_tokens is not None]
        if len(rows) >= 3:
            share = max(r.hit_rate or 0.0 for r in rows)
        elif len(pairs) >= 3:
            cached = sum(r.cached_tokens or 0.0 for r in pairs)
            share = cached / max(1.0, cached + sum(r.new_tokens or 0.0 for r in pairs))
        else:
            continue
        if f.prompt_kind == "random" and share > _NONE:
            found.append(_warm(share, 1.0))
        whole = f.shared_prefix_tokens and f.shared_prefix_tokens >= (f.block_size or 16)
        if whole and share < _WARM and f.prefix_cache is not False:
            found.append(
                Finding(
                    code="PREFIX_CACHE_INEFFECTIVE",
                    severity="warning",
                    claim=f"Prompts share {num(f.shared_prefix_tokens or 0, 6)} tokens, and {percent(share)} of the "
                    f"prompt "
                    "tokens came from the cache.",
                    evidence=some(log, rows or pairs, 2),
                    confidence="likely",
                    next_action="Look whether prefix caching is on, and whether something changes at the begin of each "
                    "prompt (a date, an id); models with recurrent state reuse whole, aligned blocks only.",
                )
            )
    return found


def warm_log(evidence: Evidence) -> Sequence[Finding]:
    """Lines in which nearly a whole prompt was found, beside a prefill rate far above that of an earlier run."""
    rates = sorted(t.figures["prefill_tok_s"] for t in evidence.trials if "prefill_tok_s" in t.figures)
    hits = [(log, line) for log in evidence.logs for line in log.notes.get("cache_hit", ())]
    if len(rates) < 2 or rates[-1] < 3 * rates[0]:
        return ()
    return (
        Finding(
            code="WARM_PREFIX",
            severity="warning",
            claim=f"Prefill is {num(rates[-1] / rates[0], 2)} times as fast as in another run of the same profile: the "
            "prompts came from a cache.",
            arithmetic=f"{num(rates[-1], 6)} / {num(rates[0], 6)} tok/s",
            evidence=tuple(f"{place(log, number)}: {text}" for log, (number, text) in hits[:3]),
            confidence="sure" if hits else "likely",
            next_action="Use fresh prompts, or empty the cache (one on disk survives a restart), and measure again.",
        ),
    )


def block(evidence: Evidence) -> Sequence[Finding]:
    """A shared prefix that is shorter than the block of the cache."""
    f = evidence.facts
    if not f.shared_prefix_tokens or not f.block_size or f.block_size <= 16:
        return ()
    whole = int(f.shared_prefix_tokens // f.block_size) * f.block_size
    lines = [(log, line) for log in evidence.logs for line in log.notes.get("block_size", ())]
    shown = tuple(f"{place(log, number)}: {text}" for log, (number, text) in lines[:1])
    if not whole:
        return (
            Finding(
                code="PREFIX_SHORTER_THAN_BLOCK",
                severity="warning",
                claim=f"The shared prefix of {num(f.shared_prefix_tokens, 6)} tokens is shorter than a block of "
                f"{f.block_size}: nothing of it is ever reused.",
                arithmetic=f"floor({num(f.shared_prefix_tokens, 6)} / {f.block_size}) = 0 blocks",
                evidence=shown,
                next_action=f"Lengthen the common prompt to {f.block_size} tokens and more, or accept it.",
            ),
        )
    share = whole / f.shared_prefix_tokens
    if share > 0.8:
        return ()
    return (
        Finding(
            code="PREFIX_SHORTER_THAN_BLOCK",
            severity="info",
            claim=f"Of a shared prefix of {num(f.shared_prefix_tokens, 6)} tokens only {whole} ({percent(share)}) can "
            f"be "
            f"reused: the cache keeps whole blocks of {f.block_size}.",
            evidence=shown,
            next_action="Bring the common prompt to a multiple of the block.",
        ),
    )

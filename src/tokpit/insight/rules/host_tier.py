"""What the host tier of the prefix cache is worth: hits by tier, bytes moved, occupancy, time saved or lost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tokpit.domain.finding import Finding
from tokpit.insight.digest import PREFILL
from tokpit.insight.evidence import Evidence
from tokpit.insight.facts import Facts
from tokpit.insight.prefill import compute
from tokpit.insight.words import listed, num, percent, seconds

_ENOUGH_TOKENS = 20_000
"""Prompt tokens before anything is said: a few prompts say nothing of a cache."""
_UNUSED = 0.005
_FULL = 0.95
_LOST = 0.2
_LARGE_BATCH = 1000
"""Tokens of a prefill batch from which its rate is one of computing."""


class Rate(msgspec.Struct, frozen=True):
    """Prompt tokens computed a second, and where that is from. `bound`: no server is faster."""

    tps: float
    source: str
    bound: bool = False


def rule(evidence: Evidence) -> Sequence[Finding]:
    """Whether the host tier pays, is not used, or costs more than computing would; quiet without counted tiers."""
    f = evidence.facts
    if f.host_hit_tokens is None or not f.tier_prompt_tokens or f.tier_prompt_tokens < _ENOUGH_TOKENS:
        return ()
    found = [_unused(f) if f.host_hit_tokens < _UNUSED * f.tier_prompt_tokens else _worth(evidence)]
    if (small := _too_small(f)) is not None:
        found.append(small)
    return found


def _tiers(f: Facts) -> str:
    prompt = f.tier_prompt_tokens or 1.0
    parts = [("GPU", f.gpu_hit_tokens), ("host", f.host_hit_tokens), ("storage", f.storage_hit_tokens)]
    told = [f"{name} {percent(hits / prompt)} ({num(hits, 6)})" for name, hits in parts if hits is not None]
    left = max(0.0, prompt - sum(hits or 0.0 for _, hits in parts))
    return f"of {num(prompt, 6)} prompt tokens: {', '.join(told)}, computed {percent(left / prompt)}"


def _moved(f: Facts) -> list[str]:
    told = []
    for gb, took, way in (
        (f.host_load_gb, f.host_load_s, "host to GPU"),
        (f.host_store_gb, f.host_store_s, "GPU to host"),
    ):
        if gb:
            rate = f" in {seconds(took)} = {num(gb / took)} GB/s" if took else ""
            told.append(f"{num(gb)} GB {way}{rate}{' (one rank)' if (f.tp or 1) > 1 else ''}")
    return told


def _held(f: Facts) -> str:
    pools = [("KV", f.host_cache_usage), ("state slots", f.host_state_usage)]
    return ", ".join(f"{name} {percent(usage)}" for name, usage in pools if usage is not None)


def _shown(f: Facts) -> tuple[str, ...]:
    held = _held(f)
    return (_tiers(f), *_moved(f), *((f"host occupancy: {held}",) if held else ()))


def _prefill_rate(evidence: Evidence) -> Rate | None:
    """Measured, else of the log's larger prefill batches (their 90th percentile), else the ceiling of computing."""
    f = evidence.facts
    if f.prefill_tps:
        return Rate(f.prefill_tps, "prefill rate")
    rows = [r for log in evidence.logs for r in log.of(PREFILL) if (r.new_tokens or 0) >= _LARGE_BATCH and r.prompt_tps]
    if len(rows) >= 3:
        rates = sorted(r.prompt_tps or 0.0 for r in rows)
        return Rate(rates[int(0.9 * (len(rates) - 1))], "fast prefill batches of the log")
    ceiling = compute(f)
    return Rate(ceiling.tps, f"the most that the GPUs compute: {ceiling.words()}", bound=True) if ceiling else None


def _worth(evidence: Evidence) -> Finding:
    f = evidence.facts
    hits, prompt = f.host_hit_tokens or 0.0, f.tier_prompt_tokens or 1.0
    rate = _prefill_rate(evidence)
    share = percent(hits / prompt)
    sums = [f"{num(hits, 6)} / {num(prompt, 6)} = {share}"]
    figures: dict[str, float | str] = {"host_hit_rate": hits / prompt}
    claim = f"The host cache gave {share} of the prompt tokens ({num(hits, 6)})"
    costs = False
    if rate is not None:
        again = hits / rate.tps
        saved = again - (f.host_load_s or 0.0)
        loaded = f", loading took {seconds(f.host_load_s)}" if f.host_load_s else ""
        sums.append(
            f"to compute them: {num(hits, 6)} / {num(rate.tps)} tok/s ({rate.source}) = {seconds(again)}{loaded}"
        )
        figures |= {"recompute_s": again, "saved_s": saved}
        # A bound is the least that computing takes: it can show a gain, never a loss.
        costs = saved < 0 and not rate.bound
        least = "at least " if rate.bound else ""
        if costs:
            claim += f", and loading them took {seconds(f.host_load_s or 0.0)} where computing takes {seconds(again)}"
        elif saved > 0:
            sums.append(f"saved {seconds(again)} - {seconds(f.host_load_s or 0.0)} = {seconds(saved)}")
            per = saved / prompt * 1000
            claim += f" and saved {least}{seconds(saved)} of prefill, {seconds(per)} for every 1,000 prompt tokens"
    else:
        sums.append("prefill_tps, or the GPU and the model's parameters, would say the time that it saved")
    held = _held(f)
    return Finding(
        code="HOST_CACHE_COSTS" if costs else "HOST_CACHE_PAYS",
        severity="warning" if costs else "info",
        claim=f"{claim}.",
        arithmetic="; ".join(sums),
        evidence=_shown(f),
        confidence="likely",
        next_action="Loading is slower than computing here: look at the PCIe link and at pinned memory, raise the "
        "shortest prefix that is loaded, or switch the host cache off."
        if costs
        else f"Keep it{f'; its occupancy is {held}' if held else ''}.",
        figures=figures,
    )


def _unused(f: Facts) -> Finding:
    sums = [f"{num(f.host_hit_tokens or 0.0, 6)} / {num(f.tier_prompt_tokens or 1.0, 6)}"]
    why = "what was asked again was still on the GPU, or nothing was asked again"
    if f.evicted_tokens is not None:
        sums.append(f"{num(f.evicted_tokens, 6)} tokens left the GPU's cache")
        if f.evicted_tokens == 0:
            why = "nothing ever had to leave the GPU's own cache"
    memory = (
        f" It holds {num(f.hicache_total_gb or f.hicache_gb or 0.0)} GB of host memory."
        if (f.hicache_total_gb or f.hicache_gb)
        else ""
    )
    return Finding(
        code="HOST_CACHE_UNUSED",
        severity="info",
        claim=f"The host cache gave {percent((f.host_hit_tokens or 0.0) / (f.tier_prompt_tokens or 1.0))} of the "
        f"prompt tokens: {why}.{memory}",
        arithmetic="; ".join(sums),
        evidence=_shown(f),
        confidence="likely",
        next_action="Without prompts that come back later it is memory and copying for nothing: give it less, or leave "
        "it off.",
        figures={"host_hit_rate": (f.host_hit_tokens or 0.0) / (f.tier_prompt_tokens or 1.0)},
    )


def _too_small(f: Facts) -> Finding | None:
    """The host pool is full, and much of what leaves the GPU is lost."""
    usages = [u for u in (f.host_cache_usage, f.host_state_usage) if u is not None]
    if not f.host_dropped_tokens or not f.evicted_tokens or not usages or max(usages) < _FULL:
        return None
    share = f.host_dropped_tokens / f.evicted_tokens
    if share < _LOST:
        return None
    full = [
        name for name, u in (("KV", f.host_cache_usage), ("state", f.host_state_usage)) if u is not None and u >= _FULL
    ]
    return Finding(
        code="HOST_CACHE_TOO_SMALL",
        severity="warning",
        claim=f"The host cache is full ({listed(full)}): {percent(min(1.0, share))} of what left the GPU was lost "
        "without a copy.",
        arithmetic=f"{num(f.host_dropped_tokens, 6)} lost / {num(f.evicted_tokens, 6)} evicted tokens = "
        f"{percent(share)}; host occupancy: {_held(f)}",
        evidence=_shown(f),
        confidence="likely",
        next_action="Give it more host memory if there is some; else see whether its hits are worth what it takes.",
        figures={"lost_share": share},
    )

"""The compute ceiling of prefill beside the time to the first token of one stream."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.prefill import Compute, compute
from tokpit.insight.words import num, percent, seconds

_SHORT = 1000
"""Tokens of a prompt below which launches and the read of the weights take the time, not computing."""
_BOUND, _FAR = 0.3, 0.2
"""Shares of the ceiling, by convention: attention and launches are not in it."""
_EIGHT_BIT = 2.0
"""Matrices of 8 bit are computed twice as fast at most."""


class Measured(msgspec.Struct, frozen=True):
    """One stream's prefill: prompt tokens computed, and what that took."""

    tokens: float
    ttft_s: float
    source: str


def rule(evidence: Evidence) -> Sequence[Finding]:
    """How near to its ceiling prefill is, and whether the time to the first token is that of computing the prompt."""
    ceiling = compute(evidence.facts)
    got = _measured(evidence)
    if ceiling is None or got is None or got.tokens < _SHORT:
        return ()
    rate, floor = got.tokens / got.ttft_s, ceiling.seconds(got.tokens)
    share = rate / ceiling.tps
    sums = (
        f"ceiling of prefill {ceiling.words()}; {num(got.tokens, 6)} tokens / {num(ceiling.tps)} = {seconds(floor)} at "
        f"least; measured {num(got.tokens, 6)} / {seconds(got.ttft_s)} = {num(rate)} tok/s, {percent(share)} of it"
    )
    code, severity, claim, action = _verdict(share, got, floor, ceiling)
    shown = [got.source]
    if ceiling.gpu is not None and ceiling.gpu.peak_tflops is not None and not evidence.facts.peak_tflops:
        shown.append(f"{ceiling.gpu.name}: {num(ceiling.gpu.peak_tflops, 4)} TFLOPS dense, 16 bit")
    return (
        Finding(
            code=code,
            severity=severity,
            claim=claim,
            arithmetic=sums,
            evidence=tuple(shown),
            confidence="possible" if ceiling.guessed else "likely",
            next_action=action,
            figures={"ceiling_tps": ceiling.tps, "floor_s": floor, "share": share},
        ),
    )


def _measured(evidence: Evidence) -> Measured | None:
    """The first token of one stream: as stated, or of the level C=1; prompt tokens that a cache had are taken off."""
    f = evidence.facts
    level = next((p for p in evidence.points if p.concurrency == 1 and p.ttft_p50_s and not p.void), None)
    if level is not None and level.ttft_p50_s and level.prompt_tokens and "WARM_PREFIX" not in level.failed_checks:
        told = f"level C=1: TTFT p50 {seconds(level.ttft_p50_s)} of prompts of {num(level.prompt_tokens, 5)} tokens"
        return Measured(level.prompt_tokens, level.ttft_p50_s, told)
    if not f.input_tokens:
        return None
    cached = f.prefix_hits / f.prefix_queries if f.prefix_hits and f.prefix_queries else 0.0
    tokens = f.input_tokens * (1 - min(1.0, cached))
    note = f", {percent(cached)} of the prompt tokens from the prefix cache" if cached else ""
    if f.ttft_s and (f.concurrency or 1) == 1:
        return Measured(tokens, f.ttft_s, f"TTFT {seconds(f.ttft_s)}, as stated{note}")
    if level is None or not level.ttft_p50_s:
        return None
    return Measured(tokens, level.ttft_p50_s, f"level C=1: TTFT p50 {seconds(level.ttft_p50_s)}{note}")


def _verdict(share: float, got: Measured, floor: float, ceiling: Compute) -> tuple[str, str, str, str]:
    first = f"The first token after {seconds(got.ttft_s)} of a prompt of {num(got.tokens, 6)} tokens"
    if share > 1.05 * _EIGHT_BIT:
        return (
            "PREFILL_ABOVE_CEILING",
            "warning",
            f"{first} is {num(share)} times as fast as this GPU can compute: the facts do not fit together, or the "
            "prompts came from a cache.",
            "Check that prompts are fresh, and the parameters that a token passes (a mixture of experts has fewer).",
        )
    if share > 1.05:
        return (
            "PREFILL_CEILING",
            "info",
            f"{first} is {num(share)} times as fast as matrices of 16 bit allow: they are computed in 8 bit, or fewer "
            "parameters are in use than was thought.",
            "Say the parameters that a token passes (active_params_b) to be sure.",
        )
    if share >= _BOUND:
        return (
            "TTFT_PREFILL_BOUND",
            "info",
            f"{first} is the time of computing it: {seconds(floor)} is the least that the GPU allows.",
            "A sooner first token needs fewer tokens to compute (prefix cache, shorter prompts), more GPUs, or 8-bit "
            "matrices; memory bandwidth and draft tokens do not help it.",
        )
    if share < _FAR:
        return (
            "TTFT_FAR_ABOVE_PREFILL",
            "warning",
            f"{first} is {num(got.ttft_s / floor)} times the {seconds(floor)} that computing it takes at best: most of "
            "the wait is something else.",
            "Look at the queue and the size of prefill chunks, at decoding beside it, tokenization, communication of "
            "the GPUs, and at kernels that were compiled at that moment; measure one long prompt alone.",
        )
    return (
        "PREFILL_CEILING",
        "info",
        f"{first} is {percent(share)} of the rate that computing allows ({seconds(floor)} at least).",
        "Larger prefill chunks bring it nearer; what is left is attention, launches and the first step of decoding."
        if not ceiling.guessed
        else "Say the parameters (params_b) or bits of the weights (weight_bits) to be sure of the ceiling.",
    )

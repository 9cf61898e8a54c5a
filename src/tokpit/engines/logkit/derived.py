"""Quantities that follow from printed ones. Pure; None where they do not follow."""

from __future__ import annotations

_ROUNDING = 0.005
"""Lengths and rates are printed with two decimals."""


def step_ms(running: float, accept_len: float, gen_tps: float) -> float | None:
    """Time of one forward step in ms: 1000 x running requests x acceptance length / generation rate.

    Every running request yields `accept_len` tokens (1 without speculation) per step, so this is the identity
    gen_tps = running x accept_len / step solved for the step. Prefill time within the interval is part of it.
    """
    if running <= 0 or accept_len <= 0 or gen_tps <= 0:
        return None
    return 1000.0 * running * accept_len / gen_tps


def draft_tokens_per_step(accept_len: float, accept_rate: float) -> float | None:
    """Draft tokens proposed per verify step: (acceptance length - 1) / acceptance rate.

    Holds where the rate is accepted / proposed without the bonus token (SGLang since 0.5.11, vLLM, llama.cpp).
    """
    if accept_rate <= 0 or accept_len < 1:
        return None
    return (accept_len - 1) / accept_rate


def accept_rate(accept_len: float, draft_tokens: float) -> float | None:
    """Accepted / proposed draft tokens (fraction): (acceptance length - 1) / draft tokens per step."""
    if draft_tokens <= 0 or accept_len < 1:
        return None
    return (accept_len - 1) / draft_tokens


def plain_accept_rate(accept_len: float, printed: float, num_draft_tokens: float | None = None) -> float:
    """SGLang's printed acceptance rate without the bonus token, whichever release printed it.

    SGLang 0.5.4 - 0.5.10 divides the acceptance length (bonus token included) by `num_draft_tokens` (root
    included); since 0.5.11 it is (length - 1) / (num_draft_tokens - 1). With `num_draft_tokens` (a setting of the
    server) the rate is computed; without, the older meaning is recognised where only it gives a whole number of
    tokens, within the rounding of the two printed decimals.
    """
    if accept_len < 1:
        return printed
    if num_draft_tokens is not None and num_draft_tokens > 1:
        return (accept_len - 1) / (num_draft_tokens - 1)
    if printed <= 0:
        return printed
    older = _whole_within(accept_len, printed)
    newer = _whole_within(accept_len - 1, printed)
    if older is not None and older >= 2 and newer is None:
        return (accept_len - 1) / (older - 1)
    return printed


def _whole_within(value: float, rate: float) -> int | None:
    """The only whole number that value / rate can be, given that both are rounded; None if none fits."""
    low = (value - _ROUNDING) / (rate + _ROUNDING)
    high = (value + _ROUNDING) / max(rate - _ROUNDING, 1e-9)
    nearest = round(value / rate)
    return nearest if nearest >= 1 and low <= nearest <= high else None


def slots_per_request(state_slots: float, running: float) -> float | None:
    """Recurrent-state slots held per running request: `mamba num` / `#running-req` of one decode line."""
    return state_slots / running if running > 0 and state_slots > 0 else None


def request_cap(max_state_slots: int, slots_each: int) -> int | None:
    """Requests that a recurrent-state pool admits at once: floor(slots of the pool / slots reserved per request).

    SGLang reserves 1 (radix cache off), 3 (no_buffer), 4 (extra_buffer without overlap) or 5 (with overlap).
    """
    return max_state_slots // slots_each if max_state_slots > 0 and slots_each > 0 else None


def hit_rate(new_tokens: float, cached_tokens: float) -> float | None:
    """Prompt tokens served from the prefix cache (fraction): cached / (new + cached)."""
    total = new_tokens + cached_tokens
    return cached_tokens / total if total > 0 else None


def accept_len_of_positions(per_position: tuple[float, ...]) -> float:
    """Acceptance length from vLLM's per-position acceptance: 1 + their sum; position i counts drafts whose token i
    was accepted.
    """
    return 1.0 + sum(per_position)


def tokens_per_step(gen_tokens: float, first_tokens: float, step_count: float) -> float | None:
    """True tokens per request and step in vLLM, speculation or not, from differences of its counters:
    (generation_tokens - time_to_first_token count) / inter_token_latency count.
    """
    return (gen_tokens - first_tokens) / step_count if step_count > 0 and gen_tokens >= first_tokens else None

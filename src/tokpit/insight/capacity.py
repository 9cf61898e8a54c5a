"""Which pool binds: how many requests can run at once, and what sets it."""

from __future__ import annotations

import msgspec

from tokpit.insight.facts import Facts
from tokpit.insight.words import num

STATE, CONFIGURED, KV, LOGGED = "state slots", "configured", "kv tokens", "logged"


class Cap(msgspec.Struct, frozen=True):
    """Most requests that run at once. `by`: `state slots`, `configured`, `kv tokens` or `logged` (cause unknown)."""

    value: int
    by: str
    arithmetic: str
    per_request: int | None = None
    """State slots reserved a request, where these set it."""


def slot_choices(facts: Facts) -> tuple[int, ...]:
    """State slots that a request of this engine may reserve, by setting; what is no count is left out."""
    return tuple(int(choice) for choice in facts.slot_choices or () if choice >= 1)


def slots_each(facts: Facts) -> int | None:
    """State slots that one request reserves: given, or the only choice of the engine that explains the logged cap."""
    if facts.slots_per_request:
        return facts.slots_per_request
    if not (facts.state_slots and facts.max_running_requests):
        return None
    return max((c for c in slot_choices(facts) if facts.state_slots // c == facts.max_running_requests), default=None)


def pools(facts: Facts) -> tuple[Cap, ...]:
    """Every limit that the facts give, smallest first."""
    found: list[Cap] = []
    each = slots_each(facts)
    if facts.state_slots and each:
        value = facts.state_slots // each
        words = f"floor({facts.state_slots} state slots / {each} per request) = {value}"
        found.append(Cap(value, STATE, words, each))
    length = (facts.input_tokens or 0) + (facts.requested_output or facts.output_tokens or 0)
    if facts.kv_tokens and length:
        value = int(facts.kv_tokens // length)
        words = f"floor({num(facts.kv_tokens, 6)} KV tokens / {num(length, 6)} per request) = {value}"
        found.append(Cap(value, KV, words))
    if facts.configured_max_running:
        value = facts.configured_max_running
        found.append(Cap(value, CONFIGURED, f"max running requests is set to {value}"))
    return tuple(sorted(found, key=lambda cap: cap.value))


def running_cap(facts: Facts) -> Cap | None:
    """The cap on running requests with what sets it; the logged one decides where a log says it."""
    found = pools(facts)
    logged = facts.max_running_requests
    if logged is None:
        return found[0] if found else None
    same = next((cap for cap in found if cap.value == logged), None)
    if same is not None:
        return Cap(logged, same.by, f"{same.arithmetic} = max_running_requests", same.per_request)
    lower = next((cap for cap in found if cap.value < logged), None)
    if lower is not None:
        return Cap(lower.value, lower.by, f"{lower.arithmetic}, below max_running_requests={logged}", lower.per_request)
    return Cap(logged, LOGGED, f"max_running_requests={logged}")

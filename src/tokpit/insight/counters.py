"""What metrics pages count, as facts: hits of a prefix cache by tier (GPU, host memory, storage), draft tokens."""

from __future__ import annotations

from collections.abc import Mapping

from tokpit.insight.facts import Facts

_COUNTS = {
    "tier_prompt_total": "tier_prompt_tokens",
    "tier_gpu_total": "gpu_hit_tokens",
    "tier_host_total": "host_hit_tokens",
    "tier_storage_total": "storage_hit_tokens",
    "host_load_s_total": "host_load_s",
    "host_store_s_total": "host_store_s",
    "host_dropped_total": "host_dropped_tokens",
    "evicted_total": "evicted_tokens",
    "spec_draft_tokens_total": "drafted_tokens",
    "spec_accepted_tokens_total": "accepted_tokens",
}
_BYTES = {"host_load_bytes_total": "host_load_gb", "host_store_bytes_total": "host_store_gb"}


def counted_facts(last: Mapping[str, float], first: Mapping[str, float] | None = None) -> Facts:
    """Facts from canonical values of a metrics page: since the server started, or since `first`.

    A counter that fell was reset in between; then `first` is not subtracted.
    """
    before = dict(first or {})
    if any(last[tag] < before.get(tag, 0.0) for tag in (*_COUNTS, *_BYTES) if tag in last):
        before = {}
    found = {name: last[tag] - before.get(tag, 0.0) for tag, name in _COUNTS.items() if tag in last}
    found |= {name: (last[tag] - before.get(tag, 0.0)) / 1e9 for tag, name in _BYTES.items() if tag in last}
    found |= {name: last[name] for name in ("host_cache_usage", "host_state_usage") if name in last}
    computed, spent = (
        last.get(tag, 0.0) - before.get(tag, 0.0) for tag in ("computed_prompt_total", "prefill_s_total")
    )
    if computed > 0 and spent > 0:
        found["prefill_tps"] = computed / spent
    return Facts(**found)  # type: ignore[arg-type]  # by name, numbers only

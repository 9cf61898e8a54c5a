"""SGLang's Prometheus page (`--enable-metrics`) in canonical tags, names of releases 0.4.6 to 0.5.23."""

from __future__ import annotations

from tokpit.domain.records import MetricsPage
from tokpit.engines.logkit.derived import plain_accept_rate
from tokpit.engines.logkit.prom import Page, Wanted, read

_P = "sglang:"
_WANTED = Wanted(
    _P,
    (
        "num_running_reqs",
        "num_queue_reqs",
        "gen_throughput",
        "token_usage",
        "full_token_usage",
        "swa_token_usage",
        "mamba_usage",
        "mamba_used_tokens",
        "mamba_available_tokens",
        "mamba_evictable_tokens",
        "swa_available_tokens",
        "num_used_tokens",
        "kv_used_tokens",
        "hicache_host_used_tokens",
        "hicache_host_total_tokens",
        "hicache_host_mamba_used_states",
        "hicache_host_mamba_total_states",
        "load_back_bytes_total",
        "load_back_duration_seconds_sum",
        "hicache_backup_bytes_total",
        "hicache_backup_duration_seconds_sum",
        "hicache_dropped_tokens_total",
        "evicted_tokens_total",
        "cache_hit_rate",
        "spec_accept_length",
        "spec_accept_rate",
        "spec_num_draft_tokens",
        "num_retracted_reqs",
        "total_retracted_reqs",
        "num_retracted_requests_total",
        "prompt_tokens_total",
        "generation_tokens_total",
        "realtime_tokens_total",
        "cached_tokens_total",
        "num_requests_total",
    ),
    (
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "request_time_per_output_token_seconds",
        "queue_time_seconds",
        "queue_time_s",
    ),
)
_HISTOGRAMS = (
    ("ttft_s", ("time_to_first_token_seconds",)),
    ("itl_s", ("inter_token_latency_seconds",)),
    ("tpot_s", ("request_time_per_output_token_seconds",)),
    ("e2e_s", ("e2e_request_latency_seconds",)),
    ("queue_s", ("queue_time_seconds", "queue_time_s")),
)
_SUMS = (
    ("running_reqs", ("num_running_reqs",)),
    ("queue_reqs", ("num_queue_reqs",)),
    ("kv_tokens", ("kv_used_tokens", "num_used_tokens")),
    ("retracted_reqs", ("num_retracted_reqs", "total_retracted_reqs")),
    ("preemptions_total", ("num_retracted_requests_total",)),
    ("requests_total", ("num_requests_total",)),
)


def page(text: str) -> MetricsPage:
    """One scrape. Rates are gated by the running requests, since the engine's gauges keep their last value when idle.

    Raises ValueError where `text` is no Prometheus page.
    """
    found = read(text, _WANTED)
    values: dict[str, float] = {}
    for tag, names in _SUMS:
        _set(values, tag, found.sum(*[_P + name for name in names]))
    _usages(found, values)
    _tokens(found, values)
    running = values.get("running_reqs")
    if running == 0:
        values["gen_tps"] = 0.0
    else:
        _set(values, "gen_tps", found.sum(_P + "gen_throughput"))
        _speculation(found, values)
    _host_cache(found, values)
    hits = found.largest(_P + "cache_hit_rate")
    if hits:  # 0 between prefill batches, which says nothing
        values["prefix_hit_rate"] = hits
    histograms = {}
    for key, names in _HISTOGRAMS:
        histogram = found.histogram(*[_P + name for name in names])
        if histogram is not None:
            histograms[key] = histogram
    labels = found.labels.get(_P + "num_running_reqs", {})
    kept = {name: labels[name] for name in ("model_name", "engine_type") if name in labels}
    return MetricsPage(values, histograms, kept)


def _set(values: dict[str, float], tag: str, value: float | None) -> None:
    if value is not None:
        values[tag] = value


def _usages(found: Page, values: dict[str, float]) -> None:
    """Usages by pool. `token_usage` is the largest of all pools since 0.5.10, where the full pool has its own gauge."""
    swa, state = found.largest(_P + "swa_token_usage"), found.largest(_P + "mamba_usage")
    slots = [found.sum(f"{_P}mamba_{name}_tokens") for name in ("used", "available", "evictable")]
    has_state = bool(state) or any(slots)
    has_swa = bool(swa) or bool(found.sum(_P + "swa_available_tokens"))
    plain, full = found.largest(_P + "token_usage"), found.largest(_P + "full_token_usage")
    _set(values, "kv_usage", full if full is not None and (full or has_state or has_swa) else plain)
    if has_swa:
        _set(values, "swa_usage", swa)
    if has_state:
        _set(values, "state_usage", state)
        _set(values, "state_slots", slots[0])


def _tokens(found: Page, values: dict[str, float]) -> None:
    """Token counters: by iteration where the release has them, else by finished request."""
    by_mode = found.labelled(_P + "realtime_tokens_total", "mode")
    if "decode" in by_mode:
        values["gen_tokens_total"] = by_mode["decode"]
    else:
        _set(values, "gen_tokens_total", found.sum(_P + "generation_tokens_total"))
    if "prefill_compute" in by_mode:
        hits = by_mode.get("prefill_cache", 0.0)
        values["prompt_tokens_total"] = by_mode["prefill_compute"]
        values["prefix_hits_total"] = hits
        values["prefix_queries_total"] = by_mode["prefill_compute"] + hits
        return
    prompt, hits_or_none = found.sum(_P + "prompt_tokens_total"), found.sum(_P + "cached_tokens_total")
    _set(values, "prompt_tokens_total", prompt)
    if hits_or_none is not None and prompt is not None:
        values["prefix_hits_total"] = hits_or_none
        values["prefix_queries_total"] = prompt


_MOVED = (
    ("host_load_bytes_total", "load_back_bytes_total"),
    ("host_load_s_total", "load_back_duration_seconds_sum"),
    ("host_store_bytes_total", "hicache_backup_bytes_total"),
    ("host_store_s_total", "hicache_backup_duration_seconds_sum"),
    ("host_dropped_total", "hicache_dropped_tokens_total"),
    ("evicted_total", "evicted_tokens_total"),
)


def _host_cache(found: Page, values: dict[str, float]) -> None:
    """Occupancy of the host cache, hits by tier (of finished requests), and what moved; all absent without one."""
    used, total = found.sum(_P + "hicache_host_used_tokens"), found.sum(_P + "hicache_host_total_tokens")
    if used is None or not total:
        return
    values["host_cache_usage"] = used / total
    held, slots = (found.sum(f"{_P}hicache_host_mamba_{name}_states") for name in ("used", "total"))
    if held is not None and slots:
        values["host_state_usage"] = held / slots
    tiers, prompt = found.labelled(_P + "cached_tokens_total", "cache_source"), found.sum(_P + "prompt_tokens_total")
    if prompt and "total" not in tiers:  # `total`: a release or path that does not tell the tiers apart
        values["tier_prompt_total"] = prompt
        for tag, source in (("tier_gpu_total", "device"), ("tier_host_total", "host")):
            values[tag] = tiers.get(source, 0.0)
        if "storage" in tiers:
            values["tier_storage_total"] = tiers["storage"]
    for tag, name in _MOVED:
        _set(values, tag, found.sum(_P + name))


def _speculation(found: Page, values: dict[str, float]) -> None:
    length = found.weighted(_P + "spec_accept_length", _P + "num_running_reqs")
    if not length:
        return
    values["accept_len"] = length
    rate = found.weighted(_P + "spec_accept_rate", _P + "num_running_reqs")
    if rate is not None:
        values["accept_rate"] = plain_accept_rate(length, rate, found.largest(_P + "spec_num_draft_tokens"))

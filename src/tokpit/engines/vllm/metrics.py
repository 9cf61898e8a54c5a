"""vLLM's Prometheus page in canonical tags, names of releases 0.8.5 to 0.33.

vLLM V1 has no throughput gauge: rates follow from two scrapes, see logkit.rates. Its inter-token latency is observed
once per engine step and request, so its mean is the step time, whatever is drafted; the page says so in its labels.
"""

from __future__ import annotations

from tokpit.domain.records import MetricsPage
from tokpit.engines.logkit.prom import Page, Wanted, read
from tokpit.engines.logkit.rates import ITL_IS_STEP

_P = "vllm:"
_WANTED = Wanted(
    _P,
    (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "gpu_cache_usage_perc",
        "kv_offload_cpu_cache_usage_perc",
        "cpu_cache_usage_perc",
        "prompt_tokens_total",
        "generation_tokens_total",
        "num_preemptions_total",
        "request_success_total",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "gpu_prefix_cache_queries_total",
        "gpu_prefix_cache_hits_total",
        "gpu_prefix_cache_hit_rate",
        "spec_decode_num_drafts_total",
        "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total",
        "spec_decode_num_accepted_tokens_per_pos_total",
        "spec_decode_draft_acceptance_rate",
        "cache_config_info",
        "external_prefix_cache_hits_total",
        "prompt_tokens_cached_by_source_total",
        "prompt_tokens_by_source_total",
        "request_prefill_time_seconds_sum",
        "kv_offload_total_bytes_total",
        "kv_offload_total_time_total",
        "kv_offload_load_bytes_total",
        "kv_offload_load_time_total",
        "kv_offload_store_bytes_total",
        "kv_offload_store_time_total",
    ),
    (
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "time_per_output_token_seconds",
        "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
    ),
)
_HISTOGRAMS = (
    ("ttft_s", ("time_to_first_token_seconds",)),
    ("itl_s", ("inter_token_latency_seconds", "time_per_output_token_seconds")),
    ("tpot_s", ("request_time_per_output_token_seconds",)),
    ("e2e_s", ("e2e_request_latency_seconds",)),
    ("queue_s", ("request_queue_time_seconds",)),
)
_SUMS = (
    ("running_reqs", ("num_requests_running",)),
    ("queue_reqs", ("num_requests_waiting",)),
    ("prompt_tokens_total", ("prompt_tokens_total",)),
    ("gen_tokens_total", ("generation_tokens_total",)),
    ("requests_total", ("request_success_total",)),
    ("preemptions_total", ("num_preemptions_total",)),
    ("prefix_queries_total", ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total")),
    ("prefix_hits_total", ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total")),
    ("spec_drafts_total", ("spec_decode_num_drafts_total",)),
    ("spec_draft_tokens_total", ("spec_decode_num_draft_tokens_total",)),
    ("spec_accepted_tokens_total", ("spec_decode_num_accepted_tokens_total",)),
)
_LARGEST = (
    ("kv_usage", ("kv_cache_usage_perc", "gpu_cache_usage_perc")),
    ("host_cache_usage", ("kv_offload_cpu_cache_usage_perc", "cpu_cache_usage_perc")),
    ("prefix_hit_rate", ("gpu_prefix_cache_hit_rate",)),
    ("accept_rate", ("spec_decode_draft_acceptance_rate",)),
)
_CONFIG = ("block_size", "num_gpu_blocks", "kv_cache_size_tokens", "kv_cache_max_concurrency", "mamba_cache_mode")


def page(text: str) -> MetricsPage:
    """One scrape. Raises ValueError where `text` is no Prometheus page."""
    found = read(text, _WANTED)
    values: dict[str, float] = {}
    for tag, names in _SUMS:
        value = found.sum(*[_P + name for name in names])
        if value is not None:
            values[tag] = value
    for tag, names in _LARGEST:
        value = found.largest(*[_P + name for name in names])
        if value is not None and not (value < 0):
            values[tag] = value
    _host_cache(found, values)
    positions = found.labelled(_P + "spec_decode_num_accepted_tokens_per_pos_total", "position")
    for position, count in positions.items():
        if position.isdigit() and int(position) < 16:
            values[f"spec_accepted_pos{int(position)}_total"] = count
    histograms = {}
    for key, names in _HISTOGRAMS:
        histogram = found.histogram(*[_P + name for name in names])
        if histogram is not None:
            histograms[key] = histogram
    labels = {ITL_IS_STEP: "1"}
    model = found.labels.get(_P + "num_requests_running", {}).get("model_name")
    if model:
        labels["model_name"] = model
    config = found.labels.get(_P + "cache_config_info", {})
    labels |= {name: config[name] for name in _CONFIG if config.get(name)}
    return MetricsPage(values, histograms, labels)


_MOVED = (("load", "CPU_to_GPU"), ("store", "GPU_to_CPU"))


def _host_cache(found: Page, values: dict[str, float]) -> None:
    """Hits by tier, and what moved between host and GPU; absent without KV offloading to the host.

    Bytes and seconds: `kv_offload_{load,store}_*` since 0.25, before that `kv_offload_total_*` by transfer type. Hits
    by tier are told since about 0.32; before, what a connector found outside the GPU is the host's.
    """
    old_bytes = found.labelled(_P + "kv_offload_total_bytes_total", "transfer_type")
    old_times = found.labelled(_P + "kv_offload_total_time_total", "transfer_type")
    for name, kind in _MOVED:
        for tag, unit, old in (
            (f"host_{name}_bytes_total", "bytes", old_bytes),
            (f"host_{name}_s_total", "time", old_times),
        ):
            moved = found.sum(f"{_P}kv_offload_{name}_{unit}_total")
            moved = old.get(kind) if moved is None else moved
            if moved is not None:
                values[tag] = moved
    looked = values.get("prefix_queries_total")
    if looked is None or not ("host_load_bytes_total" in values or "host_store_bytes_total" in values):
        return
    tiers = found.labelled(_P + "prompt_tokens_cached_by_source_total", "source")
    if not tiers:
        outside = found.sum(_P + "external_prefix_cache_hits_total")
        tiers = {} if outside is None else {"device": values.get("prefix_hits_total", 0.0), "host": outside}
    if tiers:
        values["tier_prompt_total"] = looked
        values["tier_gpu_total"] = tiers.get("device", 0.0)
        # The plain CPU offload does not name its tier, and there is no other beside it.
        values["tier_host_total"] = tiers.get("host", 0.0) + tiers.get("external_unspecified", 0.0)
        values["tier_storage_total"] = tiers.get("disk", 0.0)
    computed = found.labelled(_P + "prompt_tokens_by_source_total", "source").get("local_compute")
    spent = found.sum(_P + "request_prefill_time_seconds_sum")
    if computed and spent:
        values["computed_prompt_total"], values["prefill_s_total"] = computed, spent

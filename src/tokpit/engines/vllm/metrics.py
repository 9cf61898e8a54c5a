"""vLLM's Prometheus page in canonical tags, names of releases 0.8.5 to 0.33.

vLLM V1 has no throughput gauge: rates follow from two scrapes, see logkit.rates. Its inter-token latency is observed
once per engine step and request, so its mean is the step time, whatever is drafted; the page says so in its labels.
"""

from __future__ import annotations

from tokpit.domain.records import MetricsPage
from tokpit.engines.logkit.prom import Wanted, read
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

"""How people write the names of facts: other tools' names, flags of engines, units in other spellings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

ALIASES: Mapping[str, str] = {
    "max_running": "max_running_requests", "running_cap": "max_running_requests", "cap": "max_running_requests",
    "max_num_seqs": "max_running_requests", "effective_max_running": "max_running_requests",
    "mamba_slots": "state_slots", "max_mamba_cache_size": "state_slots", "slots": "state_slots",
    "mamba_usage": "state_usage", "state_slots_per_request": "slots_per_request",
    "mamba_slots_per_request": "slots_per_request", "max_total_num_tokens": "kv_tokens",
    "max_total_tokens": "kv_tokens", "kv_cache_tokens": "kv_tokens", "context_length": "context_len",
    "max_model_len": "context_len", "context": "context_len", "acceptance_length": "accept_len",
    "acceptance_rate": "accept_rate", "per_position_rates": "per_position", "spec_steps": "draft_tokens",
    "num_steps": "draft_tokens", "num_speculative_tokens": "draft_tokens", "k": "draft_tokens",
    "baseline": "baseline_tps", "no_spec_tps": "baseline_tps", "baseline_tok_s": "baseline_tps",
    "baseline_tok_s_no_spec": "baseline_tps", "plain_tps": "baseline_tps", "measured_tps": "single_tps",
    "tps": "single_tps", "tok_s": "single_tps", "current_tps": "single_tps", "target_tps": "remembered_tps",
    "expected_tps": "remembered_tps", "previous_tps": "remembered_tps", "remembered_tok_s": "remembered_tps",
    "wanted_tps": "remembered_tps", "weight_gb": "weights_gb", "model_gb": "weights_gb",
    "active_weights_gb": "active_gb", "gpu_name": "gpu", "gpu_count": "gpus", "num_gpus": "gpus", "tp_size": "tp",
    "tensor_parallel_size": "tp", "memory_bandwidth_gbps": "bandwidth_gbps", "bandwidth_gb_s": "bandwidth_gbps",
    "mem_bandwidth": "bandwidth_gbps", "dp_size": "dp", "data_parallel_size": "dp",
    "enable_dp_attention": "dp_attention", "enable_prefix_caching": "prefix_cache", "version": "engine_version",
    "hicache_size": "hicache_gb", "hicache_size_gb": "hicache_gb", "available_gb": "mem_available_gb",
    "mem_available": "mem_available_gb", "memory_available_gb": "mem_available_gb", "host_mem_gb": "mem_available_gb",
    "ram_available_gb": "mem_available_gb", "cgroup_gb": "cgroup_limit_gb", "connector_limit": "client_limit",
    "client_connections": "client_limit", "connections": "client_limit", "server_gen_tps": "server_tps",
    "in_flight": "client_in_flight", "completed": "client_completed", "server_queue": "server_queued",
    "queue": "server_queued", "running": "server_running", "peak_tok_s": "peak_tps", "output_tok_s": "mean_tps",
    "output_tps": "mean_tps", "median_itl_ms": "itl_ms", "num_prompts": "requests",
    "requested_len": "requested_output", "max_tokens": "requested_output", "avg_output": "output_tokens",
    "mean_out": "output_tokens", "mean_in": "input_tokens", "prefix_cache_queries": "prefix_queries",
    "prefix_cache_hits": "prefix_hits", "prompts_unique": "unique_prompts", "n": "prompts",
    "clock_mhz": "sm_clock_mhz", "clock_max_mhz": "sm_clock_max_mhz", "power_limit": "power_limit_w",
    "requested_power_limit": "requested_power_limit_w", "temperature_c": "temp_c",
    "cuda_graph_max_bs": "graph_max_batch", "attention_block_size": "block_size", "decode_alone": "decode_alone_tps",
    "decode_during_prefill": "decode_mixed_tps", "prefill_alone": "prefill_alone_tps",
    "prefill_mixed": "prefill_mixed_tps", "http_503": "rejected", "num_running": "server_running",
    "running_requests": "server_running", "running_reqs": "server_running", "waiting": "server_queued",
    "num_waiting": "server_queued", "queued": "server_queued", "queue_len": "server_queued",
    "queue_reqs": "server_queued", "waiting_requests": "server_queued", "queued_requests": "server_queued",
    "effective_max_running_requests": "max_running_requests", "running_limit": "max_running_requests",
    "max_concurrent_requests": "max_running_requests", "max_seqs": "max_running_requests",
    "slots_total": "state_slots", "total_slots": "state_slots", "mamba_cache_size": "state_slots",
    "mamba_cache_slots": "state_slots", "slots_each": "slots_per_request", "slots_per_req": "slots_per_request",
    "kv_cache_usage": "kv_usage", "token_usage": "kv_usage", "kv_cache_usage_perc": "kv_usage", "kv_used": "kv_usage",
    "total_kv_tokens": "kv_tokens", "max_tokens_in_kv": "kv_tokens", "kv_pool_tokens": "kv_tokens",
    "ctx_len": "context_len", "ctx": "context_len", "max_context": "context_len", "context_limit": "context_len",
    "block": "block_size", "mamba_block_size": "block_size", "accept": "accept_len", "accept_length": "accept_len",
    "mean_acceptance_length": "accept_len", "mean_accept_len": "accept_len", "avg_accept_len": "accept_len",
    "acceptance": "accept_rate", "draft_acceptance_rate": "accept_rate",
    "per_position_acceptance_rate": "per_position", "num_draft_tokens": "draft_tokens", "draft_len": "draft_tokens",
    "draft_length": "draft_tokens", "speculative_num_steps": "draft_tokens", "num_spec_tokens": "draft_tokens",
    "mtp_steps": "draft_tokens", "spec_num_draft_tokens": "draft_tokens",
    "speculative_num_draft_tokens": "draft_tokens", "mtp": "draft_tokens", "off_tps": "baseline_tps",
    "without_spec_tps": "baseline_tps", "spec_off_tps": "baseline_tps", "base_tps": "baseline_tps",
    "baseline_no_spec_tps": "baseline_tps", "with_spec_tps": "spec_tps", "spec_on_tps": "spec_tps",
    "now_tps": "single_tps", "one_stream_tps": "single_tps", "stream_tps": "single_tps",
    "single_stream_tps": "single_tps", "decode_tps": "single_tps", "earlier_tps": "remembered_tps",
    "before_tps": "remembered_tps", "was_tps": "remembered_tps", "old_tps": "remembered_tps",
    "previously_tps": "remembered_tps", "past_tps": "remembered_tps", "weights": "weights_gb",
    "weight_bytes_gb": "weights_gb", "model_size_gb": "weights_gb", "model_weights_gb": "weights_gb",
    "size_gb": "weights_gb", "active_weights": "active_gb", "active": "active_gb", "gpu_model": "gpu", "card": "gpu",
    "device": "gpu", "gpu_type": "gpu", "n_gpus": "gpus", "ngpu": "gpus", "bandwidth": "bandwidth_gbps",
    "gpu_bandwidth_gbps": "bandwidth_gbps", "mem_bw_gbps": "bandwidth_gbps", "hicache": "hicache_gb",
    "host_cache_gb": "hicache_gb", "ram_gb": "mem_total_gb", "mem_gb": "mem_total_gb", "host_ram_gb": "mem_total_gb",
    "total_ram_gb": "mem_total_gb", "free_ram_gb": "mem_available_gb", "host_mem_available_gb": "mem_available_gb",
    "free_gb": "mem_available_gb", "container_limit_gb": "cgroup_limit_gb", "memory_limit_gb": "cgroup_limit_gb",
    "swap_gb": "swap_used_gb", "swap_used": "swap_used_gb", "swap": "swap_used_gb", "swap_in_mb_s": "swap_in_mbps",
    "orphan_processes": "orphans", "orphan_workers": "orphans", "orphan_gb": "orphan_gpu_gb",
    "orphan_memory_gb": "orphan_gpu_gb", "steal": "cpu_steal", "steal_share": "cpu_steal",
    "cpu_steal_percent": "cpu_steal", "memory_pressure": "mem_pressure", "psi_memory": "mem_pressure",
    "sm_clock": "sm_clock_mhz", "clocks_sm": "sm_clock_mhz", "clock": "sm_clock_mhz",
    "clocks_max_sm": "sm_clock_max_mhz", "max_clock_mhz": "sm_clock_max_mhz", "sm_clock_max": "sm_clock_max_mhz",
    "gpu_clock_mhz": "sm_clock_mhz", "gpu_clock_max_mhz": "sm_clock_max_mhz", "temp": "temp_c",
    "temperature": "temp_c", "gpu_temp_c": "temp_c", "temperature_gpu": "temp_c", "power": "power_w",
    "power_draw_w": "power_w", "power_cap_w": "power_limit_w", "throttle_reasons": "throttle",
    "throttle_reason": "throttle", "throttled": "throttle", "clocks_event": "throttle",
    "throttled_share": "throttle_share", "pcie_link_gen": "pcie_gen", "pcie_link_width": "pcie_width",
    "pcie_link_gen_max": "pcie_gen_max", "pcie_link_width_max": "pcie_width_max", "max_pcie_gen": "pcie_gen_max",
    "max_pcie_width": "pcie_width_max", "utilization": "gpu_util", "gpu_utilization": "gpu_util", "c": "concurrency",
    "max_concurrency": "concurrency", "clients": "concurrency", "max_connections": "client_limit",
    "connection_limit": "client_limit", "gen_tps": "server_tps", "generated_tps": "server_tps",
    "client_output_tps": "client_tps", "measured_by_client_tps": "client_tps", "usage_tokens": "server_tokens",
    "counted_tokens": "client_tokens", "inflight": "client_in_flight", "tokens_last_60s": "tokens_last_minute",
    "tokens_last_min": "tokens_last_minute", "tokens_in_60s": "tokens_last_minute",
    "tokens_in_last_minute": "tokens_last_minute", "event_loop_lag_ms": "loop_lag_ms", "lag_ms": "loop_lag_ms",
    "loop_lag_p99_ms": "loop_lag_ms", "cpu": "client_cpu", "client_cpu_cores": "client_cpu",
    "peak_output_tps": "peak_tps", "max_tps": "peak_tps", "avg_tps": "mean_tps", "average_tps": "mean_tps",
    "reported_tps": "mean_tps", "throughput": "mean_tps", "output_throughput": "mean_tps", "itl": "itl_ms",
    "itl_p50_ms": "itl_ms", "p50_itl_ms": "itl_ms", "mean_itl_ms": "itl_ms", "chunk_tokens": "tokens_per_chunk",
    "rejections": "rejected", "errors_503": "rejected", "status_503": "rejected", "failed": "err", "failures": "err",
    "errors": "err", "success": "ok", "succeeded": "ok", "total_requests": "requests", "total": "requests",
    "last_byte_age_s": "stream_silent_s", "silent_s": "stream_silent_s", "stream_idle_s": "stream_silent_s",
    "unique": "unique_prompts", "distinct_prompts": "unique_prompts", "avg_in": "input_tokens",
    "avg_out": "output_tokens", "input_len": "input_tokens", "output_len": "output_tokens", "isl": "input_tokens",
    "osl": "output_tokens", "prompt_len": "input_tokens", "prompt_tokens": "input_tokens",
    "mean_output": "output_tokens", "max_new_tokens": "requested_output", "nominal": "requested_output",
    "nominal_len": "requested_output", "requested_tokens": "requested_output", "asked_output": "requested_output",
    "shared_prefix": "shared_prefix_tokens", "prefix_tokens": "shared_prefix_tokens",
    "prefix_len": "shared_prefix_tokens", "queries": "prefix_queries", "hits": "prefix_hits",
    "preemptions_total": "preemptions", "preemption_count": "preemptions", "num_preemptions": "preemptions",
    "duration_s": "window_s", "interval_s": "window_s", "period_s": "window_s",
    "decode_during_prefill_tps": "decode_mixed_tps", "decode_with_prefill": "decode_mixed_tps",
    "prefix_caching": "prefix_cache", "radix_cache": "prefix_cache",
    "ttft": "ttft_s", "ttft_p50_s": "ttft_s", "ttft_mean_s": "ttft_s", "time_to_first_token_s": "ttft_s",
    "time_to_first_token": "ttft_s", "params": "params_b", "num_experts": "experts", "parameters_b": "params_b",
    "parameters": "params_b",
    "model_params_b": "params_b", "active_params": "active_params_b", "active_parameters_b": "active_params_b",
    "bits": "weight_bits", "quantization_bits": "weight_bits", "tflops": "peak_tflops",
    "peak_flops_tflops": "peak_tflops", "bf16_tflops": "peak_tflops", "fp16_tflops": "peak_tflops",
    "poll_ms": "gpu_poll_ms", "samples_ms": "gpu_poll_ms", "nvidia_smi_ms": "gpu_poll_ms",
    "kv_size_gb": "kv_pool_gb", "kv_gb": "kv_pool_gb", "kv_cache_gb": "kv_pool_gb", "state_gb": "state_pool_gb",
    "mamba_gb": "state_pool_gb", "mamba_cache_gb": "state_pool_gb", "context_tokens": "stream_tokens",
    "prefill_rate": "prefill_tps", "input_throughput": "prefill_tps", "input_tps": "prefill_tps",
    "host_hits": "host_hit_tokens", "cached_from_host": "host_hit_tokens", "hicache_hit_tokens": "host_hit_tokens",
    "device_hits": "gpu_hit_tokens", "device_hit_tokens": "gpu_hit_tokens", "cached_from_device": "gpu_hit_tokens",
    "storage_hits": "storage_hit_tokens", "load_back_gb": "host_load_gb", "load_back_s": "host_load_s",
    "backup_gb": "host_store_gb", "backup_s": "host_store_s", "hicache_usage": "host_cache_usage",
    "hicache_host_usage": "host_cache_usage", "prompt_tokens_total": "tier_prompt_tokens",
    "total_prompt_tokens": "tier_prompt_tokens", "dropped_tokens": "host_dropped_tokens",
    "hicache_dropped_tokens": "host_dropped_tokens", "evicted": "evicted_tokens",
    "evicted_tokens_total": "evicted_tokens",
}  # fmt: skip

_RATES = re.compile(r"tok(?:ens?)?_?(?:/|_per_|p)_?s(?:ec(?:onds?)?)?$|tok_s$|toks_s$|t_s$")
_WITH_ROOT = frozenset({"speculative_num_draft_tokens"})
"""One engine's own flag counts the token that is verified anyway among the draft."""


def spellings(name: str) -> Iterator[str]:
    """The name as it may stand in a table: lower case, words joined by `_`, a rate as `_tps`, without an engine's."""
    key = re.sub(r"[\s.:-]+", "_", name.strip().lower()).strip("_")
    yield key
    rate = _RATES.sub("tps", key)
    yield rate
    for prefix in ("server_", "num_", "gpu_", "host_", "client_", "current_", "measured_", "mean_", "avg_"):
        if rate.startswith(prefix):
            yield rate.removeprefix(prefix)
    if rate.endswith("_version"):
        yield "engine_version"


def root_counted(name: str) -> bool:
    """Whether a count of draft tokens under this name has the root in it."""
    return next(spellings(name)) in _WITH_ROOT


_UNITS = (
    ("_gbps", "GB/s"), ("_mbps", "MB/s"), ("_gb", "GB"), ("_tps", "tok/s"), ("_ms", "ms"), ("_mhz", "MHz"),
    ("_tokens", "tokens"), ("_s", "s"), ("_w", "W"), ("_c", "C"), ("_b", "billions"), ("_bits", "bits"),
    ("_tflops", "TFLOPS"),
    *((end, "0..1, or %") for end in ("_rate", "_usage", "_share", "_util", "cpu_steal", "mem_pressure")),
)  # fmt: skip


def unit(name: str) -> str:
    """The unit of a fact, by its name; empty for a count or a word."""
    return next((words for end, words in _UNITS if name.endswith(end)), "")


def other_names(name: str) -> tuple[str, ...]:
    """The other names of a fact, without its own."""
    return tuple(alias for alias, known in ALIASES.items() if known == name and alias != name)

"""The metric registry: one canonical name a quantity, with label, unit and direction.

Engines map their log fields and Prometheus names to these tags; screens, charts, findings and exports read unit and
label from here and never invent their own. Definitions follow the field's usage: see docs/glossary.md.
"""

from __future__ import annotations

import enum

import msgspec


class Better(enum.Enum):
    """Which way is good; `NEITHER` for quantities that only describe load."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


class Metric(msgspec.Struct, frozen=True):
    """One quantity. `unit` is the unit of stored values; fractions are stored as 0..1 and shown as percent."""

    tag: str
    label: str
    unit: str
    better: Better = Better.NEITHER
    help: str = ""


_ALL = (
    Metric("gen_tps", "generation", "tok/s", Better.HIGHER, "output tokens per second of the whole server"),
    Metric("prompt_tps", "prefill", "tok/s", Better.HIGHER, "prompt tokens computed per second"),
    Metric("running_reqs", "running", "req", help="requests in the running batch"),
    Metric("queue_reqs", "queued", "req", Better.LOWER, "requests waiting for a place in the batch"),
    Metric("max_running_reqs", "running cap", "req", help="most requests that can run at once"),
    Metric(
        "accept_len",
        "acceptance length",
        "tok/step",
        Better.HIGHER,
        "tokens per verify step, bonus token included",
    ),
    Metric(
        "accept_rate",
        "acceptance rate",
        "fraction",
        Better.HIGHER,
        "accepted / proposed draft tokens, no bonus token",
    ),
    Metric("kv_usage", "KV cache", "fraction", help="used / total KV slots"),
    Metric("kv_tokens", "KV tokens", "tok", help="KV slots in use"),
    Metric("swa_usage", "SWA cache", "fraction", help="used / total slots of the sliding-window pool"),
    Metric("state_slots", "state slots", "slots", help="recurrent-state slots held by running requests"),
    Metric("state_usage", "state slots", "fraction", help="used / total recurrent-state (mamba) slots"),
    Metric("host_cache_usage", "host cache", "fraction", help="used / total host-memory cache"),
    Metric("host_state_usage", "host states", "fraction", help="used / total state slots of the host-memory cache"),
    Metric(
        "prefix_hit_rate",
        "prefix hits",
        "fraction",
        Better.HIGHER,
        "prompt tokens served from the prefix cache",
    ),
    Metric("retracted_reqs", "retracted", "req", Better.LOWER, "requests put back into the queue"),
    Metric("preemptions", "preempted", "req", Better.LOWER, "requests preempted in the interval"),
    Metric("step_ms", "step time", "ms", Better.LOWER, "running x acceptance length / generation rate"),
    Metric("ttft_p50_s", "TTFT p50", "s", Better.LOWER, "time to first token, median of the window"),
    Metric("ttft_p99_s", "TTFT p99", "s", Better.LOWER, "time to first token, 99th percentile of the window"),
    Metric("itl_p50_s", "ITL p50", "s", Better.LOWER, "inter-token latency, median of the window"),
    Metric("itl_p99_s", "ITL p99", "s", Better.LOWER, "inter-token latency, 99th percentile of the window"),
    Metric("e2e_p50_s", "E2E p50", "s", Better.LOWER, "end-to-end request latency, median of the window"),
    Metric("prompt_tokens_total", "prompt tokens", "tok", help="counter since the server started"),
    Metric("gen_tokens_total", "generated tokens", "tok", help="counter since the server started"),
    Metric("requests_total", "requests", "req", help="finished requests since the server started"),
    Metric("preemptions_total", "preempted", "req", Better.LOWER, "counter since the server started"),
    Metric("prefix_queries_total", "prefix lookups", "tok", help="prompt tokens looked up in the prefix cache"),
    Metric("prefix_hits_total", "prefix hits", "tok", Better.HIGHER, "prompt tokens found in the prefix cache"),
    Metric("tier_prompt_total", "prompt tokens by tier", "tok", help="prompt tokens whose cache tier is counted"),
    Metric("tier_gpu_total", "GPU hits", "tok", Better.HIGHER, "prompt tokens found in the GPU's own cache"),
    Metric("tier_host_total", "host hits", "tok", Better.HIGHER, "prompt tokens found in the host-memory cache"),
    Metric("tier_storage_total", "storage hits", "tok", Better.HIGHER, "prompt tokens found in storage"),
    Metric("host_load_bytes_total", "loaded from host", "B", help="KV and state bytes, host to GPU, of one rank"),
    Metric("host_load_s_total", "loading", "s", help="time of the copies from host to GPU"),
    Metric("host_store_bytes_total", "stored to host", "B", help="KV and state bytes, GPU to host, of one rank"),
    Metric("host_store_s_total", "storing", "s", help="time of the copies from GPU to host"),
    Metric("host_dropped_total", "lost for the host", "tok", Better.LOWER, "tokens that left the GPU without a copy"),
    Metric("evicted_total", "evicted", "tok", help="tokens that left the GPU's cache"),
    Metric("computed_prompt_total", "computed prompt", "tok", help="prompt tokens computed, not found in a cache"),
    Metric("prefill_s_total", "prefill time", "s", help="time of requests from their schedule to their first token"),
    Metric("spec_drafts_total", "verify steps", "steps", help="verify steps that had draft tokens"),
    Metric("spec_draft_tokens_total", "draft tokens", "tok", help="draft tokens proposed"),
    Metric("spec_accepted_tokens_total", "accepted tokens", "tok", Better.HIGHER, "draft tokens accepted, no bonus"),
    *(
        Metric(f"spec_accepted_pos{i}_total", f"accepted at {i}", "tok", Better.HIGHER, "draft tokens accepted there")
        for i in range(16)
    ),
)

REGISTRY: dict[str, Metric] = {m.tag: m for m in _ALL}


def metric(tag: str) -> Metric:
    """The registered metric; KeyError for a tag that nobody registered."""
    return REGISTRY[tag]

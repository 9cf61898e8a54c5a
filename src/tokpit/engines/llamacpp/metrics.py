"""llama-server's Prometheus page (`--metrics`) in canonical tags. It has no labels and no histograms.

Its token counters move once per finished request, so their differences are no rates; the engine's own averages are
taken instead, and the page says so in its labels.
"""

from __future__ import annotations

from tokpit.domain.records import MetricsPage
from tokpit.engines.logkit.prom import Wanted, read
from tokpit.engines.logkit.rates import BURSTY

_P = "llamacpp:"
_WANTED = Wanted(
    _P,
    (
        "prompt_tokens_total",
        "prompt_tokens_cached_total",
        "tokens_predicted_total",
        "prompt_tokens_seconds",
        "predicted_tokens_seconds",
        "requests_processing",
        "requests_deferred",
        "kv_cache_usage_ratio",
        "kv_cache_tokens",
        "spec_decode_num_drafts_total",
        "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total",
        "spec_decode_num_accepted_tokens_per_pos_total",
    ),
    (),
)
_PLAIN = (
    ("running_reqs", "requests_processing"),
    ("queue_reqs", "requests_deferred"),
    ("prompt_tps", "prompt_tokens_seconds"),
    ("gen_tps", "predicted_tokens_seconds"),
    ("kv_usage", "kv_cache_usage_ratio"),
    ("kv_tokens", "kv_cache_tokens"),
    ("prompt_tokens_total", "prompt_tokens_total"),
    ("gen_tokens_total", "tokens_predicted_total"),
    ("prefix_hits_total", "prompt_tokens_cached_total"),
    ("spec_drafts_total", "spec_decode_num_drafts_total"),
    ("spec_draft_tokens_total", "spec_decode_num_draft_tokens_total"),
    ("spec_accepted_tokens_total", "spec_decode_num_accepted_tokens_total"),
)


def page(text: str) -> MetricsPage:
    """One scrape. The rates are the engine's averages, 0 while nothing runs. Raises ValueError for no such page."""
    found = read(text, _WANTED)
    values: dict[str, float] = {}
    for tag, name in _PLAIN:
        value = found.sum(_P + name)
        if value is not None:
            values[tag] = value
    if values.get("running_reqs") == 0:
        values["gen_tps"] = values["prompt_tps"] = 0.0
    if "prefix_hits_total" in values and "prompt_tokens_total" in values:
        values["prefix_queries_total"] = values["prompt_tokens_total"] + values["prefix_hits_total"]
    for position, count in found.labelled(_P + "spec_decode_num_accepted_tokens_per_pos_total", "position").items():
        if position.isdigit() and int(position) < 16:
            values[f"spec_accepted_pos{int(position)}_total"] = count
    return MetricsPage(values, {}, {BURSTY: "1"})

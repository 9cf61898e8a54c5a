"""What follows from two scrapes of the same server: rates, shares and percentiles of the window between them."""

from __future__ import annotations

from tokpit.domain.records import MetricsPage

BURSTY = "counters_per_request"
"""Label of pages whose token counters move once per finished request: their differences are no rates."""
ITL_IS_STEP = "itl_per_step"
"""Label of pages whose inter-token latency is observed once per step and request: its mean is the step time."""

_QUANTILES = (
    ("ttft_s", "ttft_p50_s", 0.5),
    ("ttft_s", "ttft_p99_s", 0.99),
    ("itl_s", "itl_p50_s", 0.5),
    ("itl_s", "itl_p99_s", 0.99),
    ("e2e_s", "e2e_p50_s", 0.5),
)


def between(before: MetricsPage, after: MetricsPage, dt_s: float) -> dict[str, float]:
    """Values of the window of `dt_s` seconds, in tags of domain.metrics; a tag is absent where nothing follows.

    gen_tps and prompt_tps: counter difference / dt. accept_len: 1 + accepted / verify steps. accept_rate: accepted /
    drafted. prefix_hit_rate: hits / lookups. preemptions: difference. step_ms: mean inter-token latency where that is
    observed per step. Percentiles: of the observations in the window. A counter that fell was reset: no value.
    """
    if dt_s <= 0:
        return {}
    out: dict[str, float] = {}
    if BURSTY not in after.labels:
        for counter, tag in (("gen_tokens_total", "gen_tps"), ("prompt_tokens_total", "prompt_tps")):
            grown = _grown(before, after, counter)
            if grown is not None:
                out[tag] = grown / dt_s
    _shares(before, after, out)
    for key, tag, q in _QUANTILES:
        if key in before.histograms and key in after.histograms:
            value = after.histograms[key].minus(before.histograms[key]).quantile(q)
            if value is not None:
                out[tag] = value
    if ITL_IS_STEP in after.labels and "itl_s" in before.histograms and "itl_s" in after.histograms:
        steps = after.histograms["itl_s"].minus(before.histograms["itl_s"])
        if steps.counts and steps.counts[-1] > 0 and steps.total > 0:
            out["step_ms"] = 1000.0 * steps.total / steps.counts[-1]
    return out


def _grown(before: MetricsPage, after: MetricsPage, tag: str) -> float | None:
    if tag not in before.values or tag not in after.values:
        return None
    grown = after.values[tag] - before.values[tag]
    return grown if grown >= 0 else None


def _shares(before: MetricsPage, after: MetricsPage, out: dict[str, float]) -> None:
    accepted = _grown(before, after, "spec_accepted_tokens_total")
    drafts = _grown(before, after, "spec_drafts_total")
    drafted = _grown(before, after, "spec_draft_tokens_total")
    if accepted is not None and drafts:
        out["accept_len"] = 1.0 + accepted / drafts
    if accepted is not None and drafted:
        out["accept_rate"] = accepted / drafted
    hits, looked = _grown(before, after, "prefix_hits_total"), _grown(before, after, "prefix_queries_total")
    if hits is not None and looked:
        out["prefix_hit_rate"] = hits / looked
    preempted = _grown(before, after, "preemptions_total")
    if preempted is not None:
        out["preemptions"] = preempted


def accept_by_position(page: MetricsPage, before: MetricsPage | None = None) -> tuple[float, ...]:
    """Share of verify steps whose i-th draft token was accepted, since the start or since `before`; () if unknown."""
    drafts = page.values.get("spec_drafts_total", 0.0) - (
        before.values.get("spec_drafts_total", 0.0) if before else 0.0
    )
    if drafts <= 0:
        return ()
    shares: list[float] = []
    for position in range(16):
        tag = f"spec_accepted_pos{position}_total"
        if tag not in page.values:
            break
        shares.append((page.values[tag] - (before.values.get(tag, 0.0) if before else 0.0)) / drafts)
    return tuple(shares)

"""Results of `vllm bench serve --save-result`, also appended ones; keys as vllm/benchmarks/serve.py 0.32.0 writes them.

Detailed results (`--save-detailed`) carry each request; what the file lacks is left out, never guessed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tokpit.engines.benchkit.base import Page, Reading, dist_in_ms, level, need, number, per_request, rows_of, word


class VllmResults:
    """One document is one level."""

    tool = "vllm bench serve"

    def read(self, page: Page) -> Sequence[Reading] | None:
        """The level of a document."""
        if not {"model_id", "num_prompts", "completed", "request_rate"} <= page.keys():
            return None
        ok = int(need(page, "completed"))
        failed = number(page.get("failed"))
        asked = int(need(page, "num_prompts"))
        cap = number(page.get("max_concurrency"))
        rate = number(page.get("request_rate"))
        accepted = number(page.get("spec_decode_acceptance_length"))
        backend = word(page.get("backend") or page.get("endpoint_type"))
        return [
            Reading(
                tool=self.tool,
                model=word(page["model_id"]),
                engine="vllm" if backend == "vllm" else "",
                started_at=_date(page.get("date")),
                plan={"burstiness": page["burstiness"]} if rate is not None and "burstiness" in page else {},
                level=level(
                    concurrency=cap or (number(page.get("max_concurrent_requests")) if rate is None else None) or asked,
                    rate=rate if cap is None else None,
                    ok=ok,
                    err=int(failed) if failed is not None else max(0, asked - ok),
                    elapsed_s=need(page, "duration"),
                    output_tokens=need(page, "total_output_tokens"),
                    output_tps=number(page.get("output_throughput")),
                    prompt_tokens=number(page.get("total_input_tokens")),
                    ttft=dist_in_ms(page, "ttft", ok),
                    tpot=dist_in_ms(page, "tpot", ok),
                    e2e=dist_in_ms(page, "e2el", ok),
                    accept_len=accepted,
                    peak_tps=number(page.get("max_output_tokens_per_s")),
                    itl_s=dist_in_ms(page, "itl", int(need(page, "total_output_tokens"))),
                    rows=_rows(page),
                ),
            )
        ]


def _rows(page: Page) -> list[list[Any]] | None:
    """Single requests; a failed one has an error text, no tokens, and no latencies worth keeping."""
    if (found := per_request(page)) is None:
        return None
    ttfts, gaps, lengths, good = found
    starts = page.get("start_times") or []
    first = min((s for s in starts if number(s)), default=0.0)
    latencies = page.get("latencies") or []
    totals = [number(latencies[i]) if i < len(latencies) else (number(ttfts[i]) or 0.0) + sum(gaps[i]) for i in good]
    return rows_of(
        [starts[i] - first if i < len(starts) else None for i in good],
        [number(ttfts[i]) for i in good],
        totals,
        [int(lengths[i]) for i in good],
    )


def _date(text: object) -> float | None:
    """`20261130-071155`, in the local time of the machine that measured; taken as this machine's."""
    try:
        return time.mktime(time.strptime(str(text), "%Y%m%d-%H%M%S"))
    except (ValueError, OverflowError):
        return None


RESULTS = VllmResults()

"""Results of `sglang.bench_serving --output-file`: one JSON object a line, keys as sglang/benchmark/serving.py 0.5.23
writes them. `server_info` in it is the page that the server gives of itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokpit.engines.benchkit.base import Page, Reading, dist_in_ms, level, need, number, per_request, rows_of, word


class SglangResults:
    """One line is one level."""

    tool = "sglang.bench_serving"

    def read(self, page: Page) -> Sequence[Reading] | None:
        """The level of a line."""
        if not {"dataset_name", "total_output_tokens", "median_ttft_ms", "random_range_ratio"} <= page.keys():
            return None
        info = page.get("server_info")
        server: Mapping[str, Any] = info if isinstance(info, Mapping) else {}
        ok = int(need(page, "completed"))
        errors = page.get("errors")
        failed = sum(1 for text in errors if text) if isinstance(errors, list) else 0
        rate = number(page.get("request_rate"))
        cap = number(page.get("max_concurrency"))
        cache: Mapping[str, Any] = page.get("cache_report") or {}
        backend = word(page.get("backend"))
        return [
            Reading(
                tool=self.tool,
                model=word(server.get("served_model_name") or server.get("model_path")),
                engine="sglang" if backend.startswith("sglang") else "",
                plan=_plan(page),
                level=level(
                    concurrency=cap or (number(page.get("max_concurrent_requests")) if rate is None else None) or ok,
                    rate=rate if cap is None else None,
                    ok=ok,
                    err=failed,
                    elapsed_s=need(page, "duration"),
                    output_tokens=need(page, "total_output_tokens"),
                    output_tps=number(page.get("output_throughput")),
                    prompt_tokens=number(page.get("total_input_tokens")),
                    ttft=dist_in_ms(page, "ttft", ok),
                    tpot=dist_in_ms(page, "tpot", ok),
                    e2e=dist_in_ms(page, "e2e_latency", ok),
                    accept_len=number(page.get("accept_length")),
                    peak_tps=number(page.get("max_output_tokens_per_s")),
                    itl_s=dist_in_ms(page, "itl", int(need(page, "total_output_tokens"))),
                    cached_tokens=number(cache.get("total_cached_tokens")),
                    rows=_rows(page),
                ),
            )
        ]


def _plan(page: Page) -> dict[str, Any]:
    plan: dict[str, Any] = {"dataset": word(page.get("dataset_name"))}
    if "random" in plan["dataset"]:
        asked, given = number(page.get("random_output_len")), number(page.get("random_input_len"))
        plan |= {"max_tokens": int(asked)} if asked is not None and asked > 0 else {}
        plan["dataset"] += f":{given:g}" if given is not None else ""
    return plan


def _rows(page: Page) -> list[list[Any]] | None:
    """Single requests of `--output-details`; their gaps are per token, so they add up to the whole."""
    if (found := per_request(page)) is None:
        return None
    ttfts, gaps, lengths, good = found
    totals = [(number(ttfts[i]) or 0.0) + sum(gaps[i]) for i in good]
    return rows_of([None] * len(good), [number(ttfts[i]) for i in good], totals, [int(lengths[i]) for i in good])


RESULTS = SglangResults()

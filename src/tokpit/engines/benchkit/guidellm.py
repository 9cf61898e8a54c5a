"""GuideLLM reports (`guidellm run --output kind=json`), keys as version 0.8.1 writes them; 0.7 has the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokpit.engines.benchkit.base import Page, Reading, level, number, rows_of, spread, word


class GuideReader:
    """One report holds one benchmark for each strategy."""

    tool = "GuideLLM"

    def read(self, page: Page) -> Sequence[Reading] | None:
        """Levels of the report."""
        found = page.get("benchmarks")
        meta = page.get("metadata")
        if not isinstance(found, list) or not isinstance(meta, Mapping) or "guidellm_version" not in meta:
            return None
        return [self._one(item, word(meta["guidellm_version"])) for item in found if isinstance(item, Mapping)]

    def _one(self, item: Page, version: str) -> Reading:
        config: Mapping[str, Any] = item.get("config") or {}
        metrics: Mapping[str, Any] = item.get("metrics") or {}
        strategy: Mapping[str, Any] = config.get("strategy") or {}
        totals: Mapping[str, Any] = metrics.get("request_totals") or {}
        if "successful" not in totals or number(item.get("duration")) is None:
            raise ValueError("a benchmark of the report has no request_totals or no duration")
        ok = int(totals["successful"])
        streams = number(strategy.get("streams")) or number(strategy.get("max_concurrency"))
        rate = number(strategy.get("rate")) if strategy.get("type_") in ("constant", "poisson", "async") else None
        if strategy.get("type_") == "synchronous":
            streams = 1.0
        requests = ((item.get("requests") or {}).get("successful")) or ()
        start = number(item.get("start_time"))
        backend: Mapping[str, Any] = config.get("backend") or {}
        tokens = _good(metrics, "output_token_count")
        return Reading(
            tool=self.tool,
            version=version,
            model=word(backend.get("model")),
            started_at=start,
            plan={"api": word(backend.get("request_format"))} if backend.get("request_format") else {},
            level=level(
                concurrency=streams or number((_good(metrics, "request_concurrency")).get("max")),
                rate=rate,
                ok=ok,
                err=int(totals.get("errored") or 0),
                elapsed_s=float(item["duration"]),
                output_tokens=number(tokens.get("total_sum")) or 0.0,
                prompt_tokens=number(_good(metrics, "prompt_token_count").get("total_sum")),
                ttft=_dist(metrics, "time_to_first_token_ms", 1e-3),
                tpot=_dist(metrics, "inter_token_latency_ms", 1e-3),
                e2e=_dist(metrics, "request_latency", 1.0),
                cancelled=int(totals.get("incomplete") or 0),
                rows=rows_of(
                    [(number(r.get("request_start_time")) or 0.0) - (start or 0.0) for r in requests],
                    [_ms(r.get("time_to_first_token_ms")) for r in requests],
                    [number(r.get("request_latency")) for r in requests],
                    [int(number(r.get("output_tokens")) or 0) for r in requests],
                ),
            ),
        )


def _ms(value: object) -> float | None:
    found = number(value)
    return None if found is None else found / 1000


def _good(metrics: Page, name: str) -> Page:
    """Statistics of the good requests; their `inter_token_latency_ms` is what everybody else calls TPOT."""
    found = metrics.get(name)
    good = found.get("successful") if isinstance(found, Mapping) else None
    return good if isinstance(good, Mapping) else {}


def _dist(metrics: Page, name: str, scale: float) -> dict[str, Any] | None:
    found = _good(metrics, name)
    at: Mapping[str, Any] = found.get("percentiles") or {}
    values = {key: number(at.get(key)) for key in ("p50", "p90", "p95", "p99")}
    values |= {key: number(found.get(key)) for key in ("mean", "min", "max")} | {"sd": number(found.get("std_dev"))}
    values["p50"] = values["p50"] if values["p50"] is not None else number(found.get("median"))
    return spread(values, int(number(found.get("count")) or 0), scale=scale)

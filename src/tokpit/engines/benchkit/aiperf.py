"""AIPerf summaries (`profile_export_aiperf.json`), schema 1.4 of version 0.13.0. Units are named in the file.

What AIPerf calls inter-token latency is one value a request, (latency - TTFT) / (tokens - 1): TPOT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tokpit.engines.benchkit.base import Page, Reading, level, need, number, spread, word

_SCALE = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}


class AiperfReader:
    """One document is one level."""

    tool = "AIPerf"

    def read(self, page: Page) -> Sequence[Reading] | None:
        """The level of a summary."""
        if "aiperf_version" not in page and not {"request_latency", "input_config"} <= page.keys():
            return None
        counts = {name: int(_total(page, name) or 0) for name in ("request_count", "error_request_count")}
        config: Mapping[str, Any] = page.get("input_config") or {}
        load = _load(config)
        counted = (
            _total(page, "total_output_tokens") or _total(page, "total_osl") or _sum(page, "output_sequence_length")
        )
        said = _total(page, "total_usage_completion_tokens")
        tokens = said if said is not None else counted
        if tokens is None:
            raise ValueError("total_output_tokens is missing: the run did not count tokens")
        differ = bool(counted) and abs(tokens / (counted or 1.0) - 1) > 0.02
        elapsed = _metric(page, "benchmark_duration")
        elapsed_s = need(elapsed, "avg") * _unit(elapsed)
        rate = number(load.get("rate")) or number(load.get("request_rate"))
        cap = number(load.get("concurrency"))
        cut = page.get("is_complete") is False or page.get("was_cancelled") is True
        return [
            Reading(
                tool=self.tool,
                version=word(page.get("aiperf_version")),
                model=_model(config),
                started_at=_date(page.get("start_time")),
                plan={"streaming": True} if _flag(config, "streaming") else {},
                level=level(
                    concurrency=cap if cap is not None else counts["request_count"] if rate is None else None,
                    rate=rate if cap is None else None,
                    ok=counts["request_count"],
                    err=counts["error_request_count"],
                    elapsed_s=elapsed_s,
                    output_tokens=tokens,
                    output_tps=None if differ else number(_metric(page, "output_token_throughput").get("avg")),
                    prompt_tokens=_total(page, "total_isl") or _sum(page, "input_sequence_length"),
                    ttft=_dist(page, "time_to_first_token", counts["request_count"]),
                    # By their own count of tokens; where that is not the server's, neither is this.
                    tpot=None if differ else _dist(page, "inter_token_latency", counts["request_count"]),
                    e2e=_dist(page, "request_latency", counts["request_count"]),
                    checks=[_mismatch(counted or 0.0, tokens)] if differ else None,
                    partial=word(page.get("incomplete_reason")) or "it was stopped" if cut else None,
                ),
            )
        ]


def _mismatch(counted: float, said: float) -> dict[str, Any]:
    sentence = (
        f"the tool's tokenizer counted {counted:,.0f} output tokens, the server's usage says {said:,.0f}: throughput "
        "is by usage here, and TPOT is left out"
    )
    return {
        "code": "TOKEN_COUNT",
        "ok": False,
        "sentence": sentence,
        "distrust": [],
        "value": counted,
        "expected": said,
    }


def _metric(page: Page, name: str) -> Page:
    found = page.get(name)
    return found if isinstance(found, Mapping) else {}


def _unit(metric: Page) -> float:
    unit = str(metric.get("unit", ""))
    if unit not in _SCALE:
        raise ValueError(f"unit {unit!r} of a duration is not known")
    return _SCALE[unit]


def _total(page: Page, name: str) -> float | None:
    return number(_metric(page, name).get("avg"))


def _sum(page: Page, name: str) -> float | None:
    found = _metric(page, name)
    mean, count = number(found.get("avg")), number(found.get("count"))
    return number(found.get("sum")) or (mean * count if mean is not None and count is not None else None)


def _dist(page: Page, name: str, n: int) -> dict[str, Any] | None:
    found = _metric(page, name)
    if not found:
        return None
    values = {key: number(found.get(key)) for key in ("p50", "p90", "p95", "p99", "min", "max")}
    values |= {"mean": number(found.get("avg")), "sd": number(found.get("std"))}
    return spread(values, int(number(found.get("count")) or n), scale=_unit(found))


def _load(config: Page) -> Page:
    """Where the configuration says how hard it loads: the last phase, in older files `loadgen`."""
    phases = config.get("phases")
    if isinstance(phases, list):
        return next((one for one in reversed(phases) if isinstance(one, Mapping)), {})
    found = config.get("loadgen")
    return found if isinstance(found, Mapping) else {}


def _model(config: Page) -> str:
    models = config.get("models")
    items = models.get("items") if isinstance(models, Mapping) else models
    if isinstance(items, list) and items:
        first = items[0]
        return word(first.get("name")) if isinstance(first, Mapping) else word(first)
    names = (config.get("endpoint") or {}).get("model_names")
    return word(names[0]) if isinstance(names, list) and names else ""


def _flag(config: Page, name: str) -> bool:
    endpoint = config.get("endpoint")
    return isinstance(endpoint, Mapping) and endpoint.get(name) is True


def _date(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None

"""The engine's counters and its Prometheus page, in SGLang 0.5.11's names; times are simulated seconds."""

from __future__ import annotations

from bisect import bisect_left

_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_E2E = (*_TTFT, 600, 1200, 1800, 2400)
_ITL = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2,
    4, 6, 8,
)  # fmt: skip


class Histogram:
    """Counts by upper bound, not yet cumulative."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Observe a value so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def lines(self, name: str, labels: str) -> list[str]:
        """The metric in text form."""
        rows, seen = [f"# HELP {name} Histogram.", f"# TYPE {name} histogram"], 0
        for bound, count in zip((*map(float, self.bounds), None), self.counts, strict=True):
            seen += count
            le = "+Inf" if bound is None else str(bound)
            rows.append(f'{name}_bucket{{{labels},le="{le}"}} {float(seen)}')
        return [*rows, f"{name}_count{{{labels}}} {float(seen)}", f"{name}_sum{{{labels}}} {self.total}"]


class Counters:
    """What the server has counted since it started."""

    def __init__(self) -> None:
        self.ttft = Histogram(_TTFT)
        self.itl = Histogram(_ITL)
        self.e2e = Histogram(_E2E)
        self.queue = Histogram(_TTFT)
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated_tokens = 0
        self.requests = 0
        self.aborted = 0


def page(model: str, gauges: dict[str, float], counters: Counters) -> str:
    """The whole page; `gauges` are named without the `sglang:` prefix."""
    scheduler = f'engine_type="unified",model_name="{model}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    tokenizer = f'engine_type="unified",model_name="{model}"'
    rows: list[str] = []
    for name, value in gauges.items():
        rows += [
            f"# HELP sglang:{name} Gauge.",
            f"# TYPE sglang:{name} gauge",
            f"sglang:{name}{{{scheduler}}} {float(value)}",
        ]
    totals = {
        "prompt_tokens_total": counters.prompt_tokens,
        "generation_tokens_total": counters.generated_tokens,
        "num_requests_total": counters.requests,
        "num_aborted_requests_total": counters.aborted,
    }
    for name, count in totals.items():
        rows += [
            f"# HELP sglang:{name} Counter.",
            f"# TYPE sglang:{name} counter",
            f"sglang:{name}{{{tokenizer}}} {float(count)}",
        ]
    rows += [
        "# HELP sglang:cached_tokens_total Counter.",
        "# TYPE sglang:cached_tokens_total counter",
        f'sglang:cached_tokens_total{{cache_source="device",{tokenizer}}} {float(counters.cached_tokens)}',
    ]
    rows += counters.ttft.lines("sglang:time_to_first_token_seconds", tokenizer)
    rows += counters.itl.lines("sglang:inter_token_latency_seconds", tokenizer)
    rows += counters.e2e.lines("sglang:e2e_request_latency_seconds", tokenizer)
    rows += counters.queue.lines("sglang:queue_time_seconds", scheduler)
    return "\n".join(rows) + "\n"

"""What tests of sweeps share: a sound level, and samples of a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tokpit.domain.records import MetricsPage
from tokpit.load.results import LevelResult, Outcome
from tokpit.load.stats import Dist, dist
from tokpit.ops.sweep.server import Sample


def flat(value: float, n: int = 40) -> Dist:
    found = dist([value] * n)
    assert found is not None
    return found


_SOUND = LevelResult(
    level=0, label="C=12", concurrency=12, rate=None, requests=36, ok=36, err=0, cancelled=0,
    outcomes={"ok": Outcome(36, "")}, elapsed_s=30.0, partial="", output_tokens=18000, prompt_tokens=36000,
    cached_tokens=None, token_source="usage", output_tps=600.0, total_tps=1800.0, request_tps=1.2, steady_tps=620.0,
    steady_ci=9.0, steady_note="", steady_window_s=(1.0, 29.0), steady_completed=34, peak_tps=660.0, avg_output=500.0,
    tokens_per_chunk=1.0, goodput_rps=None, goodput_share=None, ttft_s=flat(0.3), answer_s=flat(0.3), e2e_s=flat(9.8),
    ttft_settled_s=flat(0.3), e2e_settled_s=flat(9.8), tpot_s=flat(0.019), icl_s=flat(0.019), itl_s=flat(0.019),
    itl_source="mean per chunk", request_output_tps=flat(51.0), send_delay_s=flat(0.001), peak_in_flight=12,
    mean_in_flight=11.8, finish_reasons={"length": 36}, no_done=0, no_answer=0, stale_retries=0, merged_share=0.0,
    kernel_share=1.0, loop_lag_p99_s=0.001, loop_lag_max_s=0.002, client_cpu=0.1, clock_steps=0,
    unique_prompt_share=1.0, held_back=0, series_s=1.0, tps_series=tuple([610.0] * 30),
)  # fmt: skip


def level_result(**changes: Any) -> LevelResult:
    """A sound level of twelve at once, 500 tokens each, with `changes`."""
    return replace(_SOUND, **changes)


def sample(t: float, **changes: Any) -> Sample:
    """The server at work on twelve requests, all of this client."""
    values: dict[str, Any] = {
        "running": 12.0, "queued": 0.0, "made": 600.0 * t, "accept_len": None, "in_flight": 12, "received": 600.0 * t,
    }  # fmt: skip
    return Sample(t=t, **{**values, **changes})


def page(**values: float) -> MetricsPage:
    return MetricsPage(values=values)

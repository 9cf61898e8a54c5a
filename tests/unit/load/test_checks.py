"""Figures that cannot be believed, and that a check says so: cases from the field, retold."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from tokpit.load import foreign
from tokpit.load.checks import run_checks
from tokpit.load.plan import Plan
from tokpit.load.results import Check, LevelResult, Outcome
from tokpit.load.serverside import ServerSide
from tokpit.load.stats import Dist, dist, shifted

PLAN = Plan(url="http://h", max_tokens=1000)


def flat(value: float, n: int = 100) -> Dist:
    found = dist([value] * n)
    assert found is not None
    return found


GOOD = LevelResult(
    level=0, label="C=8", concurrency=8, rate=None, requests=16, ok=16, err=0, cancelled=0,
    outcomes={"ok": Outcome(16, "")}, elapsed_s=44.0, partial="", output_tokens=16000, prompt_tokens=800,
    cached_tokens=None, token_source="usage", output_tps=363.6, total_tps=381.8, request_tps=0.3636, steady_tps=370.0,
    steady_ci=4.0, steady_note="", steady_window_s=(0.0, 44.0), steady_completed=16, peak_tps=400.0, avg_output=1000.0,
    tokens_per_chunk=3.2, goodput_rps=None, goodput_share=None, ttft_s=flat(0.4), answer_s=flat(0.4), e2e_s=flat(22.0),
    ttft_settled_s=flat(0.4), e2e_settled_s=flat(22.0), tpot_s=flat(0.0216), icl_s=flat(0.069), itl_s=flat(0.0216),
    itl_source="mean per chunk", request_output_tps=flat(45.5), send_delay_s=flat(0.001), peak_in_flight=8,
    mean_in_flight=8.0, finish_reasons={"length": 16}, no_done=0, no_answer=0, stale_retries=0, merged_share=0.0,
    kernel_share=1.0, loop_lag_p99_s=0.001, loop_lag_max_s=0.002, client_cpu=0.1, clock_steps=0,
    unique_prompt_share=1.0, held_back=0, series_s=1.0, tps_series=tuple([370.0] * 44),
)  # fmt: skip


def judge(code: str, server: ServerSide | None = None, plan: Plan = PLAN, **changes: Any) -> Check:
    found = [check for check in run_checks(replace(GOOD, **changes), plan, server) if check.code == code]
    assert len(found) == 1, [check.code for check in run_checks(replace(GOOD, **changes), plan, server)]
    return found[0]


def test_a_sound_level_passes_every_check() -> None:
    failed = [check for check in run_checks(GOOD, PLAN) if check.ok is not True]
    assert failed == []


def test_what_a_check_distrusts_reaches_the_level() -> None:
    level = replace(GOOD, err=5, ok=11)
    level = replace(level, checks=run_checks(level, PLAN))
    assert "steady_tps" in level.distrust
    assert replace(GOOD, checks=run_checks(GOOD, PLAN)).distrust == frozenset()


def test_a_best_second_below_the_average_counts_chunks() -> None:
    found = foreign.peak_vs_mean(98.0, 380.0, accept_len=4.0)
    assert found.ok is False
    assert "392 tok/s" in found.sentence
    assert judge("CHUNKS_NOT_TOKENS", peak_tps=98.0).ok is False


def test_an_itl_that_contradicts_throughput_is_per_chunk() -> None:
    found = foreign.itl_vs_throughput(0.0091, 1, 285.0)
    assert found.ok is False
    assert found.value == pytest.approx(2.59, abs=0.01)
    assert "3.51 ms" in found.sentence
    assert foreign.itl_vs_throughput(0.0035, 1, 285.0).ok is True
    assert judge("ITL_IS_PER_CHUNK", itl_s=flat(0.069)).ok is False


def test_an_itl_faster_than_throughput_means_missing_tokens() -> None:
    assert foreign.itl_vs_throughput(0.001, 1, 285.0).ok is False


def test_reasoning_without_an_answer_is_said() -> None:
    found = judge("REASONING_COUNTED", no_answer=16)
    assert found.ok is False
    assert "no answer text" in found.sentence
    assert judge("REASONING_COUNTED", no_answer=3).ok is True


def test_no_token_in_good_requests_is_a_fault_and_not_a_speed() -> None:
    found = judge("ZERO_TOKENS_SUSPECT", output_tokens=0, avg_output=0.0, output_tps=None)
    assert found.ok is False
    assert "not 0 tok/s" in found.sentence


def test_a_warm_prefix_cache_is_seen_in_usage_and_in_counters() -> None:
    assert judge("WARM_PREFIX", prompt_tokens=32000, cached_tokens=28800).ok is False
    assert judge("WARM_PREFIX", prompt_tokens=32000, cached_tokens=100).ok is True
    found = judge("WARM_PREFIX", ServerSide(hit_tokens=9000, query_tokens=10000), prompt_tokens=32000, cached_tokens=0)
    assert (found.ok, found.value) == (False, 0.9)
    shared = Plan(url="http://h", max_tokens=1000, prefix_share=0.9)
    assert judge("WARM_PREFIX", plan=shared, prompt_tokens=32000, cached_tokens=28800).ok is True


def test_turns_of_a_conversation_may_be_found_in_the_cache() -> None:
    turns = Plan(url="http://h", max_tokens=1000, turns=3)
    server = ServerSide(hit_tokens=9000, query_tokens=10000)
    found = run_checks(replace(GOOD, prompt_tokens=32000, cached_tokens=28800), turns, server)
    assert [check for check in found if check.code == "WARM_PREFIX"] == []


def test_a_chat_template_in_the_cache_is_no_warm_prefix() -> None:
    assert judge("WARM_PREFIX", prompt_tokens=16 * 60, cached_tokens=16 * 12).ok is True


def test_prefill_many_times_faster_than_before_came_from_a_cache() -> None:
    assert foreign.prefill_vs_history(18000, 300).ok is False
    assert foreign.prefill_vs_history(330, 300).ok is True


def test_repeated_prompts_are_counted() -> None:
    found = foreign.uniqueness(1, 500)
    assert (found.ok, found.value) == (False, 0.002)
    assert judge("DUPLICATE_PROMPTS", unique_prompt_share=0.5).ok is False


def test_missing_usage_is_a_lower_bound() -> None:
    found = judge("NO_USAGE", token_source="chunks")
    assert found.ok is False
    assert "lower bound" in found.sentence


def test_a_hidden_limit_on_connections_shows_at_the_server() -> None:
    capped = ServerSide(running=(100, 100, 100, 100), queued=(0, 0, 0, 0))
    found = judge("CLIENT_LIMIT", capped, concurrency=256, peak_in_flight=256, mean_in_flight=250.0)
    assert found.ok is False
    assert "100 running" in found.sentence
    queued = ServerSide(running=(9, 9, 9, 9), queued=(39, 39, 38, 20))
    assert judge("CLIENT_LIMIT", queued, concurrency=48, peak_in_flight=48, mean_in_flight=40.0).ok is True


def test_a_server_that_made_far_more_than_the_client_saw_was_not_the_limit() -> None:
    found = judge("CLIENT_BOUND", None, client_cpu=1.0)
    assert found.ok is False
    checks = run_checks(GOOD, PLAN, ServerSide(tokens_before=1000, tokens_after=161000))
    bound = [check for check in checks if check.code == "CLIENT_BOUND"]
    assert [check.ok for check in bound] == [True, False]
    assert judge("SERVER_COUNT", ServerSide(tokens_before=1000, tokens_after=17100)).ok is True
    assert judge("COUNT_MISMATCH", ServerSide(tokens_before=0, tokens_after=8000)).ok is False
    assert judge("SERVER_COUNT", ServerSide(tokens_before=9000, tokens_after=10)).ok is None


def test_a_late_loop_spoils_user_space_stamps_but_not_the_kernels() -> None:
    assert judge("CLIENT_BOUND", kernel_share=0.0, loop_lag_p99_s=0.05).ok is False
    assert judge("CLIENT_BOUND", kernel_share=1.0, loop_lag_p99_s=0.05).ok is True
    late = {"kernel_share": 1.0, "loop_lag_p99_s": 0.1, "merged_share": 0.05, "icl_bounds": {"p99": (0.069, 0.138)}}
    assert judge("CLIENT_BOUND", **late).ok is False
    found = judge("MERGED_READS", **late)
    assert found.ok is False
    assert "read too late" in found.sentence
    assert "server" in judge("MERGED_READS", merged_share=0.05, icl_bounds={"p99": (0.069, 0.138)}).sentence


def merged_level(share: float, n: int = 20_000) -> tuple[LevelResult, float]:
    """A level whose gaps of 20 ms +-2 % were read with `share` of the chunks in one read, and the true p99."""
    draw = random.Random(7)
    times = [0.0]
    for _ in range(n):
        times.append(times[-1] + 0.020 * (1 + draw.uniform(-0.02, 0.02)))
    true = dist(b - a for a, b in itertools.pairwise(times))
    for late in draw.sample(range(1, n - 1, 2), round(share * n)):
        times[late] = times[late + 1]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert true is not None
    return replace(GOOD, merged_share=share, icl_s=dist(gaps), icl_bounds=shifted(gaps, share)), true.p99


@pytest.mark.parametrize("share", [0.0, 0.001, 0.003, 0.0049, 0.0097, 0.0103, 0.03, 0.2])
def test_no_percentile_that_merged_reads_put_off_goes_unmarked(share: float) -> None:
    level, true = merged_level(share)
    assert level.icl_s is not None
    off = abs(level.icl_s.p99 / true - 1)
    low, high = level.icl_bounds["p99"]
    assert low <= true <= high
    marked = next(check for check in run_checks(level, PLAN) if check.code == "MERGED_READS")
    assert marked.ok is (share < 0.005)
    assert off < 0.02 or marked.ok is False


def test_merged_reads_far_from_the_tail_leave_the_median_trusted() -> None:
    level, _ = merged_level(0.02)
    marked = next(check for check in run_checks(level, PLAN) if check.code == "MERGED_READS")
    assert "p99" in marked.sentence
    assert "p50" not in marked.sentence


def test_failures_that_all_took_as_long_are_the_clients_limit() -> None:
    found = foreign.uniform_timeouts(5, [300.0] * 11)
    assert found.ok is False
    assert "11 of 16" in found.sentence
    assert foreign.uniform_timeouts(5, [3.0, 40.0, 200.0]).ok is True
    assert foreign.uniform_timeouts(5, [3.0]).ok is None


def test_timeouts_by_phase_are_told_apart() -> None:
    stalled = {"ok": Outcome(15, ""), "timeout.between": Outcome(1, "silent for 120 s")}
    assert judge("STREAM_STALLED", outcomes=stalled, ok=15, err=1).ok is False
    capped = {"ok": Outcome(5, ""), "timeout.total": Outcome(11, "not finished within 600 s")}
    found = judge("CLIENT_TIMEOUT", outcomes=capped, ok=5, err=11)
    assert "600 s" in found.sentence


def test_a_workload_shorter_than_its_name_is_measured_by_its_real_length() -> None:
    found = foreign.length_vs_nominal(4096, 3690)
    assert found.ok is False
    assert "90%" in found.sentence


def test_one_token_for_a_thousand_asked_is_a_wrong_request() -> None:
    found = judge("OUTPUT_TRUNCATED", avg_output=1.0, output_tokens=16)
    assert found.ok is False
    assert "1.0 of 1000" in found.sentence


def test_an_early_end_of_sequence_is_told_from_a_wrong_request() -> None:
    found = judge("EARLY_EOS", avg_output=104.0, output_tokens=1664, finish_reasons={"stop": 16})
    assert found.ok is False
    assert "104 of 1000" in found.sentence


def test_a_level_that_gets_faster_was_cold_and_one_that_slows_drifts() -> None:
    assert judge("COLD_START", tps_series=tuple([90.0] * 15 + [370.0] * 29)).ok is False
    assert judge("DRIFT", tps_series=tuple([370.0] * 29 + [200.0] * 15)).ok is False


def test_a_slower_first_run_is_traced_to_its_first_token() -> None:
    cause, sentence = foreign.slowdown_cause(
        ttft_a_s=3.2, e2e_a_s=25.6, tokens_a=1000, ttft_b_s=0.6, e2e_b_s=23.1, tokens_b=1000
    )
    assert cause == "ttft"
    assert "+2.60 s is TTFT" in sentence


def test_equal_time_for_equal_usage_is_no_slowdown_whatever_the_text_says() -> None:
    cause, sentence = foreign.slowdown_cause(
        ttft_a_s=0.11, e2e_a_s=6.4, tokens_a=1000, ttft_b_s=0.1, e2e_b_s=6.2, tokens_b=1000
    )
    assert cause == "none"
    assert "correctness" in sentence
    cause, _ = foreign.slowdown_cause(ttft_a_s=1, e2e_a_s=6, tokens_a=10, ttft_b_s=1, e2e_b_s=6, tokens_b=99)
    assert cause == "both"


def test_requests_that_the_server_forgot_are_found() -> None:
    lost = ServerSide(running=(4, 0, 0, 0), queued=(9, 0, 0, 0), in_flight_now=2700)
    found = judge("LOST_REQUESTS", lost)
    assert found.ok is False
    assert "2700" in found.sentence
    working = ServerSide(running=(4, 4, 4), queued=(0, 0, 0), in_flight_now=4)
    assert judge("LOST_REQUESTS", working).ok is True


def test_a_rejecting_server_is_not_comparable() -> None:
    found = judge("REJECTED", ok=40, err=210, outcomes={"ok": Outcome(40, ""), "5xx": Outcome(210, "503 full")})
    assert found.ok is False
    assert "84%" in found.sentence
    assert "210 x 5xx" in found.sentence


def test_latencies_that_break_littles_law_are_told() -> None:
    """Elapsed / requests is no latency: 2.8 s each at eight in flight and 0.36 requests/s would be one in flight."""
    assert judge("LITTLE").ok is True
    found = judge("LITTLE", e2e_settled_s=flat(2.8))
    assert found.ok is False
    assert found.value == pytest.approx(1.02, abs=0.01)
    assert judge("LITTLE", steady_completed=3).ok is None


def test_more_in_flight_than_asked_or_less_than_the_mean_cannot_be() -> None:
    assert judge("PEAK_IN_FLIGHT", peak_in_flight=9).ok is False
    assert judge("PEAK_IN_FLIGHT", peak_in_flight=7).ok is False


def test_a_clock_that_was_set_is_told() -> None:
    assert judge("CLOCK_STEP", clock_steps=1).ok is False


def test_prompts_of_another_length_than_asked_are_told() -> None:
    plan = Plan(url="http://h", max_tokens=1000, prompts="random", input_tokens=2000)
    assert judge("PROMPT_LENGTH", plan=plan, prompt_tokens=16 * 1500).ok is False
    assert judge("PROMPT_LENGTH", plan=plan, prompt_tokens=16 * 2040).ok is True

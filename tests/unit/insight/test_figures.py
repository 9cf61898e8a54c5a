"""Speculation, ceilings, GPUs, figures of clients, and runs side by side."""

from __future__ import annotations

import pytest

from insight_tools import codes, engine_sweep, findings, one, sweep
from tokpit.domain.records import GpuSample, Problem
from tokpit.insight.diagnose import diagnose
from tokpit.insight.evidence import Evidence, Trial
from tokpit.insight.facts import Facts, parse_facts
from tokpit.insight.gather import gather
from tokpit.insight.gpus import GPUS, lookup
from tokpit.insight.roofline import roofline
from tokpit.insight.speculation import acceptance_of, expected_length, gains, length_of_positions, step_ratio
from tokpit.insight.words import num, percent, seconds


def facts(**given: object) -> Facts:
    return parse_facts({name: str(value) for name, value in given.items()})[0]


def compared(*trials: Trial) -> list[str]:
    return codes(diagnose(gather(trials=trials)))


def trial(name: str, **figures: float) -> Trial:
    return Trial(name=name, figures=figures)


def test_expected_length_of_a_chain() -> None:
    assert [round(expected_length(0.75, k), 2) for k in range(1, 5)] == [1.75, 2.31, 2.73, 3.05]
    assert length_of_positions((0.8, 0.6, 0.4)) == pytest.approx(2.8)
    assert length_of_positions((0.8, 0.6, 0.4), 1) == pytest.approx(1.8)


@pytest.mark.parametrize(("p", "k"), [(0.3, 1), (0.75, 3), (0.95, 7)])
def test_acceptance_follows_from_the_length(p: float, k: int) -> None:
    assert acceptance_of(expected_length(p, k), k) == pytest.approx(p, abs=1e-6)


def test_acceptance_of_impossible_lengths_is_unknown() -> None:
    assert acceptance_of(3.5, 2) is None
    assert acceptance_of(0.9, 2) is None


def test_gain_has_its_best_draft_length_where_the_cost_of_a_token_eats_its_yield() -> None:
    row = gains(0.7, step_ratio(2.19, 40, 25), 2)
    assert row[0].speedup == 1
    assert row[2].speedup == pytest.approx(40 / 25, rel=0.01)
    best = max(row, key=lambda gain: gain.speedup)
    assert 1 <= best.k <= 4


def test_per_position_rates_go_before_the_constant() -> None:
    row = gains(0.9, 1.2, 2, positions=(0.8, 0.5))
    assert row[2].length == pytest.approx(2.3)
    assert row[3].length == pytest.approx(2.3 + 0.45)


def test_speculation_that_loses_although_acceptance_is_fine() -> None:
    found = one(findings(baseline_tps=310, spec_tps=140, accept_len=1.95, draft_tokens=1), "SPEC_OVERHEAD")
    assert "acceptance is fine (1.95)" in found.claim
    assert "4.32 plain ones" in found.claim


def test_roofline_divides_the_weights_and_gives_what_a_rate_needs() -> None:
    roof = roofline(facts(weights_gb=140, gpu="H100 80GB HBM3", tp=4))
    assert roof is not None
    assert roof.step_s == pytest.approx(0.01045, rel=0.001)
    assert roof.length_for(200) == pytest.approx(2.09, abs=0.01)
    assert roof.weights_for(200) == pytest.approx(16.75)
    assert roofline(facts(weights_gb=140)) is None


def test_rate_above_the_ceiling_says_that_the_facts_do_not_fit() -> None:
    assert codes(findings(weights_gb=54, gpu="RTX 4090", single_tps=80)) == ["FASTER_THAN_MEMORY"]


def test_mixture_of_experts_has_a_range() -> None:
    found = one(findings(weights_gb=60, active_gb=6, gpu="RTX 5090", single_tps=120), "ROOFLINE")
    assert "6 to 60 GB a step" in found.arithmetic


def test_remembered_rate_without_speculation_is_above_the_ceiling() -> None:
    found = one(findings(weights_gb=32, gpu="RTX 4090", single_tps=26, remembered_tps=60), "RATE_ABOVE_CEILING")
    assert "impossible here" in found.claim


def test_remembered_rate_that_is_reached_is_no_gap() -> None:
    assert "SPEC_TOO_SHORT" not in codes(findings(accept_len=1.75, draft_tokens=1, single_tps=68, remembered_tps=70))


def test_table_knows_forty_gpus_and_no_bandwidth_is_odd() -> None:
    assert len(GPUS) >= 40
    assert all(60 <= gpu.bandwidth_gbps <= 10_000 for gpu in GPUS.values())


@pytest.mark.parametrize(
    ("name", "gbps"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 1792),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 1597),
        ("NVIDIA RTX A6000", 768),
        ("NVIDIA RTX 6000 Ada Generation", 960),
        ("NVIDIA GeForce RTX 3090 Ti", 1008),
        ("RTX4090", 1008),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA A100-PCIE-40GB", 1555),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 1019.5),
        ("NVIDIA H100 PCIe", 2000),
        ("NVIDIA L40S", 864),
        ("NVIDIA L4", 300),
        ("NVIDIA GB10", 273),
        ("AMD Instinct MI300X", 5300),
        ("A6000", 768),
        ("5090", 1792),
    ],
)
def test_gpu_names_as_drivers_and_people_write_them(name: str, gbps: float) -> None:
    gpu = lookup(name)
    assert gpu is not None
    assert gpu.bandwidth_gbps == gbps


def test_own_table_goes_first_and_unknown_stays_unknown() -> None:
    own = lookup("NVIDIA RTX A6000", {"RTX A6000": 700.0})
    assert own is not None
    assert own.bandwidth_gbps == 700
    assert lookup("Voodoo 2") is None


_HOT = GpuSample(
    0,
    "u",
    "RTX",
    power_w=68,
    power_limit_w=130,
    temp_c=94,
    sm_clock_mhz=610,
    sm_clock_max_mhz=2100,
    throttle=("sw-thermal",),
)


def test_throttled_gpu_shows_clock_temperature_and_a_cap_that_was_not_taken() -> None:
    found = one(diagnose(Evidence(gpus=(_HOT,), facts=facts(requested_power_limit_w=90))), "GPU_THROTTLED")
    assert "610/2,100 MHz (29%), 94 C" in found.claim
    assert "asked for 90 W, effective 130 W" in found.claim


def test_power_cap_is_information() -> None:
    found = findings(power_w=169.5, power_limit_w=170)
    assert [(f.code, f.severity) for f in found] == [("GPU_POWER_CAPPED", "info")]


def test_problems_of_telemetry_keep_their_code_and_weight() -> None:
    problems = (Problem("GPU_LOST", "GPU 3 is lost", 3), Problem("GPU_MIG", "GPU 0 is in MIG mode", 0, info=True))
    assert [(f.code, f.severity) for f in diagnose(Evidence(problems=problems))] == [
        ("GPU_LOST", "error"),
        ("GPU_MIG", "info"),
    ]


@pytest.mark.parametrize(
    ("given", "code", "word"),
    [
        ({"peak_tps": 96, "mean_tps": 380, "accept_len": 4}, "CHUNKS_NOT_TOKENS", "impossible"),
        ({"mean_tps": 240, "median_itl_ms": 9.5, "concurrency": 1}, "ITL_IS_PER_CHUNK", "2.28"),
        ({"server_tps": 510, "client_tps": 60, "loop_lag_ms": 700}, "CLIENT_BOUND", "700 ms"),
        ({"concurrency": 192, "server_running": 100, "server_queue": 0}, "CLIENT_LIMIT", "100 connections"),
        ({"client_in_flight": 412, "server_running": 0, "server_queue": 0}, "LOST_REQUESTS", "412"),
        ({"failure_elapsed_s": "300.0", "requests": 64}, "CLIENT_TIMEOUT", "300 s"),
        ({"failure_elapsed_s": "600,600.1,599.9", "requests": 16}, "CLIENT_TIMEOUT", "3 failures"),
        ({"stream_silent_s": 2500}, "STREAM_STALLED", "2,500 s"),
        ({"requested_output": 1024, "requests": 200, "total_output_tokens": 200}, "OUTPUT_TRUNCATED", "1 tokens"),
        ({"requested_output": 4096, "output_tokens": 3600}, "LENGTH_MISMATCH", "3,600"),
        ({"requests": 6, "ok": 6, "total_output_tokens": 0}, "ZERO_TOKENS_SUSPECT", "6 of 6 ok"),
        ({"unique_prompts": 1, "prompts": 500}, "DUPLICATE_PROMPTS", "1 unique prompt of 500"),
        ({"ok": 30, "rejected": 170}, "REJECTED", "170 of 200 requests failed (85%)"),
        ({"prompt_kind": "random", "prefix_queries": 90000, "prefix_hits": 63000}, "WARM_PREFIX", "70%"),
        ({"prefix_cache": "true", "prefix_queries": 4200, "prefix_hits": 0}, "PREFIX_CACHE_INEFFECTIVE", "4,200"),
        ({"usage_reported": "false"}, "NO_USAGE", "lower bound"),
        ({"throttle_share": "6%"}, "GPU_THROTTLED_PAST", "6%"),
        ({"pcie_width": 4, "pcie_width_max": 16}, "PCIE_DEGRADED", "x4 of x16"),
        ({"swap_in_mbps": 40}, "HOST_SWAPPING", "40 MB/s"),
        ({"orphans": 2, "orphan_gpu_gb": 38}, "ORPHAN_ENGINE", "38 GB"),
        ({"hicache_total_gb": 240, "hicache_ranks": 4, "mem_available_gb": 180}, "HICACHE_PER_RANK", "60 GB x 4 ranks"),
    ],
)
def test_figures_that_contradict_one_another(given: dict[str, object], code: str, word: str) -> None:
    found = one(findings(**given), code)
    assert word in f"{found.claim} {found.arithmetic}"


@pytest.mark.parametrize(
    "given",
    [
        {"peak_tps": 400, "mean_tps": 380},
        {"mean_tps": 240, "median_itl_ms": 4.2, "concurrency": 1},
        {"server_tps": 410, "client_tps": 400},
        {"concurrency": 64, "server_running": 16, "server_queue": 48},
        {"client_in_flight": 8, "server_running": 8, "server_queue": 0},
        {"failure_elapsed_s": "12.1,44,130"},
        {"requested_output": 1024, "output_tokens": 1010},
        {"unique_prompts": 500, "prompts": 500},
        {"ok": 1000, "err": 2},
        {"prompt_kind": "shared", "prefix_queries": 90000, "prefix_hits": 63000},
        {"power_w": 120, "power_limit_w": 300},
    ],
)
def test_figures_that_agree_have_no_finding(given: dict[str, object]) -> None:
    assert findings(**given) == ()


def test_more_gpus_that_slow_one_stream_down() -> None:
    trials = (trial("a", tp=1, tok_s=82), trial("b", tp=2, tok_s=71), trial("c", tp=4, tok_s=70))
    found = one(diagnose(gather(trials=trials)), "TP_NEGATIVE_SCALING")
    assert "costs 13%" in found.claim
    assert "tp 2: 35.5" in found.arithmetic
    assert compared(trial("a", tp=1, tok_s=40), trial("b", tp=2, tok_s=72)) == []


def test_longest_acceptance_is_not_the_winner_and_broken_output_is_out() -> None:
    trials = (
        trial("cache on", tok_s=46, accept_len=2.4, bad_outputs=0.9),
        trial("cache off", tok_s=30, accept_len=3.5),
        trial("lazy", tok_s=42, accept_len=2.5),
    )
    found = one(diagnose(gather(trials=trials)), "ACCEPT_NOT_SPEED")
    assert "lazy" in found.next_action
    assert "cache off 117 ms" in found.arithmetic


def test_backend_that_matters_at_length_only() -> None:
    trials = (trial("a", short=50, long=30), trial("b", short=51, long=41))
    assert "37% faster" in one(diagnose(gather(trials=trials)), "ATTENTION_BACKEND").claim


def test_cold_and_lost_counts_are_told_from_real_slowdowns() -> None:
    cold = (
        trial("cold", tok_s=36, decode_tok_s=44, ttft_s=4.1),
        trial("warm", tok_s=43, decode_tok_s=44.3, ttft_s=0.6),
    )
    assert compared(*cold) == ["COLD_START"]
    lost = (
        trial("a", tok_s=21, latency_s=6.3, usage_tokens=900),
        trial("b", tok_s=144, latency_s=6.2, usage_tokens=900),
    )
    assert compared(*lost) == ["COUNT_MISMATCH"]
    assert compared(trial("a", tok_s=21, latency_s=40), trial("b", tok_s=144, latency_s=6.2)) == []


def test_cliff_in_one_of_two_sweeps_is_found_with_its_place() -> None:
    good = sweep([(1, 8, 90, 60), (4, 8, 30, 150), (8, 16, 40, 230)])
    bad = sweep([(1, 8, 100, 52), (4, 8, 32, 141), (8, 16, 150, 64)])
    found = one(diagnose(gather(sweeps=(("static", good), ("schedule", bad)))), "SWEEP_CLIFF")
    assert found.levels == (4, 8)
    assert "schedule only" in found.claim
    assert "C=5..7" in found.next_action


def test_sweeps_that_cross_are_chosen_by_load() -> None:
    plain = engine_sweep(cap=99, fixed_s=20, each_s=0.2, levels=(1, 8, 32))
    drafted = engine_sweep(cap=99, fixed_s=8, each_s=1.0, levels=(1, 8, 32))
    assert "SWEEPS_CROSS" in codes(diagnose(gather(sweeps=(("plain", plain), ("drafts", drafted)))))


def test_levels_with_other_lengths_do_not_compare() -> None:
    rows = [(1, 8, 80.0, 50.0), (4, 8, 30.0, 130.0), (8, 16, 15.0, 310.0)]
    assert one(findings(sweep(rows)), "LENGTH_MISMATCH").levels == (8, 1)


def test_numbers_are_written_as_people_do() -> None:
    assert [num(x) for x in (22.15, 0.0347, 1310, 9.0, 2.5)] == ["22.2", "0.0347", "1,310", "9", "2.5"]
    assert (percent(0.904), percent(0.064), percent(0.06)) == ("90%", "6.4%", "6%")
    assert (seconds(0.0523, 2), seconds(22.15, 2), seconds(2400)) == ("52 ms", "22 s", "40 min")

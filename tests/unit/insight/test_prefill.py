"""The compute ceiling of prefill, bytes of KV and state in the memory ceiling, and where drafts stop paying."""

from __future__ import annotations

import pytest

from insight_logs import diagnosed, digest
from insight_tools import codes, findings, one, sweep
from tokpit.domain.run import Level
from tokpit.insight.facts import Facts, parse_facts
from tokpit.insight.gather import gather
from tokpit.insight.gpu_peaks import PEAKS
from tokpit.insight.gpus import GPUS, lookup
from tokpit.insight.points import point_of
from tokpit.insight.prefill import compute
from tokpit.insight.roofline import roofline
from tokpit.insight.solver import reach_one


def facts(**given: object) -> Facts:
    return parse_facts({name: str(value) for name, value in given.items()})[0]


LONG = {"gpu": "RTX A6000", "tp": 2, "model": "Qwen/Qwen3.6-27B-FP8", "input_tokens": 8000}


def test_every_peak_belongs_to_a_part_of_the_table() -> None:
    assert set(PEAKS) <= set(GPUS)
    assert len(PEAKS) >= 40


def test_a_slice_of_a_gpu_has_its_share_of_the_multiprocessors() -> None:
    part = lookup("NVIDIA A100-SXM4-80GB MIG 3g.40gb")
    assert part is not None
    assert part.peak_tflops == pytest.approx(312 * 3 / 7)


def test_own_bandwidths_keep_the_peak_of_the_part() -> None:
    part = lookup("NVIDIA H100 80GB HBM3", {"H100": 3000})
    assert part is not None
    assert (part.bandwidth_gbps, part.peak_tflops) == (3000, 989)


@pytest.mark.parametrize(
    ("given", "params"),
    [
        ({"model": "Qwen/Qwen3.6-27B"}, 27),
        ({"model": "/models/Qwen3.6-35B-A3B-FP8"}, 3),
        ({"model": "m", "weights_gb": 54}, 27),
        ({"model": "m", "weights_gb": 27, "weight_bits": 8}, 27),
        ({"model": "Qwen3.6-27B", "params_b": 28.4}, 28.4),
        ({"model": "mixtral", "weights_gb": 93, "active_gb": 26}, 13),
    ],
)
def test_parameters_of_a_token(given: dict[str, object], params: float) -> None:
    ceiling = compute(facts(gpu="A100", **given))
    assert ceiling is not None
    assert ceiling.params_b == pytest.approx(params)


def test_the_ceiling_divides_operations_by_two_a_parameter() -> None:
    ceiling = compute(facts(**LONG))
    assert ceiling is not None
    assert ceiling.tps == pytest.approx(2 * 154.8e12 / 54e9)
    assert compute(facts(gpu="Tesla K80", params_b=7)) is None
    assert compute(facts(gpu="Tesla K80", params_b=7, peak_tflops=14)) is not None


@pytest.mark.parametrize(
    ("ttft", "code"),
    [
        (2.4, "TTFT_PREFILL_BOUND"),
        (5.5, "PREFILL_CEILING"),
        (14, "TTFT_FAR_ABOVE_PREFILL"),
        (0.9, "PREFILL_CEILING"),
        (0.3, "PREFILL_ABOVE_CEILING"),
    ],
)
def test_a_first_token_against_the_ceiling(ttft: float, code: str) -> None:
    found = one(findings(**LONG, ttft_s=ttft), code)
    assert "2 x 154.8 TFLOPS / (2 x 27 billion parameters) = 5,733 tok/s" in found.arithmetic
    assert "8,000 tokens / 5,733 = 1.4 s at least" in found.arithmetic


def test_the_first_level_of_a_sweep_gives_the_first_token() -> None:
    points = tuple(
        type(p)(**{**{n: getattr(p, n) for n in p.__struct_fields__}, "ttft_p50_s": 2.0 * p.concurrency})
        for p in sweep()
    )
    found = one(findings(points, **LONG), "TTFT_PREFILL_BOUND")
    assert found.evidence[0] == "level C=1: TTFT p50 2 s"


def test_prompt_tokens_from_the_prefix_cache_are_not_computed() -> None:
    found = one(findings(**LONG, ttft_s=1.4, prefix_queries=10_000, prefix_hits=5_000), "TTFT_PREFILL_BOUND")
    assert "4,000 tokens / 5,733 = 698 ms at least" in found.arithmetic


@pytest.mark.parametrize(
    "given",
    [{**LONG, "input_tokens": 200, "ttft_s": 4}, {**LONG, "ttft_s": 9, "concurrency": 16}, LONG],
    ids=["a short prompt", "many at once", "nothing measured"],
)
def test_without_one_long_prompt_alone_nothing_is_said(given: dict[str, object]) -> None:
    assert codes(findings(**given)) == []


def test_kv_and_state_are_bytes_of_a_step() -> None:
    given = {"weights_gb": 54, "gpu": "RTX A6000", "tp": 2, "kv_pool_gb": 13, "kv_tokens": 200_000}
    given |= {"stream_tokens": 40_000, "state_pool_gb": 3.5, "state_slots": 70}
    roof = roofline(facts(**given))
    assert roof is not None
    assert (roof.kv_gb, roof.state_gb) == (pytest.approx(2.6), pytest.approx(0.1))
    assert roof.step_s == pytest.approx(29.7 / 768)
    assert roof.words() == "(27 GB + 2.6 GB KV + 0.1 GB state) / 768 GB/s"


def test_pools_and_context_come_from_the_log() -> None:
    found = diagnosed(
        (
            "[2026-10-02 08:01:00 TP0] Mamba Cache is allocated. max_mamba_cache_size: 48, conv_state size: 0.10GB, "
            "ssm_state size: 2.20GB",
            "[2026-10-02 08:01:01 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 200000, K size: 6.00 GB, "
            "V size: 6.00 GB",
            "[2026-10-02 08:01:02 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 200000, K size: 0.40 GB, "
            "V size: 0.40 GB",
            "[2026-10-02 08:03:00] Decode batch, #running-req: 1, #full token: 40000, full token usage: 0.20, mamba "
            "num: 1, mamba usage: 0.02, cuda graph: True, gen throughput (token/s): 21.0, #queue-req: 0",
            "[2026-10-02 08:03:02] Decode batch, #running-req: 1, #full token: 40080, full token usage: 0.20, mamba "
            "num: 1, mamba usage: 0.02, cuda graph: True, gen throughput (token/s): 21.0, #queue-req: 0",
        ),
        weights_gb=54,
        gpu="RTX A6000",
        tp=2,
    )
    note = one(found, "ROOFLINE")
    assert "(27 GB + 2.6 GB KV + 0.1 GB state) / 768 GB/s" in note.arithmetic


PAYS = {"accept_len": 2.9, "draft_tokens": 3, "baseline_tps": 30, "spec_tps": 57.5}


def curve(alpha: float, beta: float) -> tuple[object, ...]:
    rows = [(c, 32, 32 * 400 * (alpha + beta * c) / c, c / (alpha + beta * c)) for c in (1, 2, 4, 8, 16, 32)]
    return sweep(rows)


def test_a_sweep_with_drafts_says_how_many_at_once_they_pay_for_at_least() -> None:
    found = one(findings(curve(0.0165, 0.0009), **PAYS), "SPEC_LIMIT")  # type: ignore[arg-type]
    # A step of m: 2.9 (16.5 + 0.9 m) ms, so 0.6525 ms a request and token; a plain one 33.33 ms in all.
    beta, plain = 0.0009 * 2.9 / 4, 1 / 30
    alpha = plain - beta
    expected = (1.9 * alpha - (2.9 * 0.0165 - alpha)) / (beta * 1.1)
    assert found.figures["pays_up_to"] == pytest.approx(expected)
    assert "not before about 65 requests at once" in found.claim


def test_a_sweep_without_drafts_says_the_same_of_the_same_server() -> None:
    beta = 0.0009 * 2.9 / 4
    found = one(findings(curve(1 / 30 - beta, beta), **PAYS), "SPEC_LIMIT")  # type: ignore[arg-type]
    assert found.figures["pays_up_to"] == pytest.approx(65.0, rel=0.02)


def test_below_the_cap_they_always_pay() -> None:
    found = one(findings(curve(0.0165, 0.0009), **PAYS, max_running_requests=40), "SPEC_LIMIT")  # type: ignore[arg-type]
    assert "No more than 40 run here, so they pay at any load." in found.claim


def test_arithmetic_of_the_gpu_says_when_they_stop_at_the_latest() -> None:
    found = one(findings(**PAYS, weights_gb=54, gpu="RTX A6000", tp=2, bandwidth_gbps=900), "SPEC_LIMIT")
    ridge = 27 / 900 * 2 * 154.8e12 / 54e9
    ratio = 2.9 * 30 / 57.5
    assert found.figures["stops_paying_at"] == pytest.approx(ridge * (2.9 - (ratio - 1)) / 4)


def test_drafts_that_do_not_pay_for_one_have_no_limit() -> None:
    found = findings(curve(0.0165, 0.0009), **{**PAYS, "spec_tps": 28})  # type: ignore[arg-type]
    assert "SPEC_LIMIT" not in codes(found)


def test_what_draft_tokens_keep_of_state_is_told_in_slots() -> None:
    pools = "conv_state size: 0.26GB, ssm_state size: 3.30GB intermediate_ssm_state_cache size: 13.10GB "
    lines = (
        f"[2026-10-02 08:01:00] Mamba Cache is allocated. max_mamba_cache_size: 79, {pools}"
        "intermediate_conv_window_cache size: 0.20GB ",
    )
    cost = one(diagnosed(lines, **PAYS), "SPEC_STEP_COST")
    assert "14.3 GB of intermediate states beside its 79 slots of 48.4 MB: the memory of 295 slots" in cost.arithmetic


def test_gains_carry_the_doubt_about_what_a_draft_token_costs() -> None:
    words = one(findings(**PAYS), "SPEC_STEP_COST").arithmetic
    assert "3: 1.92, " in words
    assert "4: 1.95 (1.95 to 2.17)" in words


def test_a_stored_level_brings_its_own_prompt_tokens() -> None:
    level = Level(
        concurrency=1, requests=8, ok=8, err=0, elapsed_s=80, output_tps=20, ttft_p50_s=2.0,
        result={"prompt_tokens": 64_000, "cached_tokens": 8_000},
    )  # fmt: skip
    found = one(findings((point_of(level),), gpu="RTX A6000", tp=2, model="Qwen3.6-27B"), "TTFT_PREFILL_BOUND")
    assert "7,000 tokens / 5,733" in found.arithmetic
    assert found.evidence[0] == "level C=1: TTFT p50 2 s of prompts of 7,000 tokens"


@pytest.mark.parametrize(
    ("lines", "each"),
    [
        (
            (
                "[2026-10-02 08:00:00] server_args=ServerArgs(model_path='/m/Qwen3.6-27B', tp_size=2, "
                "quantization='fp8')",
                "[2026-10-02 08:00:20 TP0] Init torch distributed ends. elapsed=1.0 s, mem usage=0.90 GB",
                "[2026-10-02 08:00:40 TP0] Load weight end. elapsed=36.1 s, type=A, quant=fp8, avail mem=80.03 GB, mem "
                "usage=13.60 GB.",
                "[2026-10-02 08:00:44 TP0] Load weight end. elapsed=2.1 s, type=ADraft, avail mem=79.03 GB, mem "
                "usage=0.90 GB.",
            ),
            14.6,
        ),
        (
            (
                "(APIServer pid=1) INFO 10-02 08:00:00 [utils.py:253] non-default args: {'model_tag': 'x/Qwen3.6-27B', "
                "'tensor_parallel_size': 2, 'quantization': 'fp8'}",
                "(Worker_TP0 pid=9) INFO 10-02 08:00:40 [gpu_model_runner.py:1] Model loading took 13.6 GiB memory and "
                "37.361728 seconds",
            ),
            14.6,
        ),
    ],
    ids=["sglang", "vllm"],
)
def test_weights_on_a_gpu_come_from_the_log(lines: tuple[str, ...], each: float) -> None:
    got = gather(logs=(digest(lines),)).facts
    assert got.weights_each_gb == pytest.approx(each, abs=0.01)
    assert got.weights_gb == pytest.approx(2 * each, abs=0.02)
    assert (got.weight_bits, got.tp) == (8, 2)
    assert got.model is not None
    assert got.model.endswith("Qwen3.6-27B")
    assert gather(facts(weights_gb=54), logs=(digest(lines),)).facts.weights_gb == 54


def test_a_mixture_of_experts_is_no_riddle() -> None:
    fast = {"weights_gb": 60, "gpu": "H100", "single_tps": 170}
    assert codes(findings(**fast)) == ["FASTER_THAN_MEMORY"]
    named = one(findings(**fast, model="Qwen3-30B-A3B"), "ROOFLINE")
    assert "reads 6 to 60 GB a step" in named.arithmetic
    assert "reads a part of its weights" in one(findings(**fast, experts=128), "ROOFLINE").arithmetic
    assert codes(findings(**{**fast, "single_tps": 900}, model="Qwen3-30B-A3B")) == ["FASTER_THAN_MEMORY"]
    gap = {"weights_gb": 60, "gpu": "RTX 4090", "single_tps": 40, "remembered_tps": 70}
    assert codes(findings(**gap))[0] == "RATE_ABOVE_CEILING"
    assert codes(findings(**gap, model="Qwen3-30B-A3B"))[0] == "GAP_UNEXPLAINED"
    assert "active_gb" in reach_one(facts(**gap, experts=64), 70).missing[0]

"""Servers and sweeps with nothing wrong: every finding here is a false alarm."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from insight_logs import access, decode, diagnosed, prefill, spec, stats
from insight_tools import engine_sweep, findings

_ARGS = (
    "[2026-10-02 08:00:00] server_args=ServerArgs(model_path='m', tp_size=2, max_running_requests=64, "
    "cuda_graph_max_bs=64, disable_radix_cache=False)"
)
_LIMITS = (
    "[2026-10-02 08:02:00] max_total_num_tokens=412000, chunked_prefill_size=8192, max_prefill_tokens=16384, "
    "max_running_requests=64, context_len=65536, available_gpu_mem=3.10 GB"
)


def one_stream_after_start() -> list[str]:
    lines = [_ARGS, _LIMITS, "[2026-10-02 08:02:40] The server is fired up and ready to roll!", prefill(60, 812)]
    return lines + [decode(61 + i, 1, 58 + i % 3, tokens=812 + 40 * i) for i in range(20)]


def busy_below_the_cap() -> list[str]:
    lines = [_ARGS, _LIMITS]
    for i in range(60):
        lines.append(prefill(2 * i, 300 + 17 * (i % 9), running=20 + i % 5, seqs=2))
        lines.append(decode(2 * i + 1, 20 + i % 7, 900 + 20 * (i % 5), usage=0.3))
    return lines


def many_short_prompts() -> list[str]:
    lines = []
    for i in range(20):
        lines += [prefill(2 * i + j / 10, 200 + 31 * j, running=40, queue=3, pending=900) for j in range(15)]
        lines.append(decode(2 * i + 1.8, 42, 1500, usage=0.4))
    return lines


def short_burst_with_a_queue() -> list[str]:
    lines = [_LIMITS, *(prefill(i, 8000, running=8 * i, queue=30 - 8 * i, seqs=8) for i in range(4))]
    lines.append(decode(5, 30, 800, queue=2))
    return lines + [decode(6 + i, 32, 1100, usage=0.4) for i in range(30)]


def idle_for_an_hour() -> list[str]:
    lines = [prefill(0, 500), *(decode(1 + i, 2, 90) for i in range(5)), prefill(3700, 640)]
    return lines + [decode(3701 + i, 1, 61) for i in range(5)]


def health_probes_only() -> list[str]:
    lines = [prefill(0, 500), *(decode(1 + i, 1, 60) for i in range(4))]
    return lines + [prefill(30 * i, 1) for i in range(1, 40)] + [access("/health")] * 20


def speculation_that_works() -> list[str]:
    return [decode(i, 4, 300 + i % 20, spec=(2.7 + 0.1 * (i % 4), 0.58)) for i in range(40)]


def speculation_with_a_tree() -> list[str]:
    return [decode(i, 2, 220, spec=(3.1, 0.07)) for i in range(20)]


def acceptance_that_holds_with_length() -> list[str]:
    return [decode(i, 1, 120, tokens=1000 + 900 * i, spec=(2.9 - 0.01 * i, 0.62)) for i in range(40)]


def hybrid_with_room() -> list[str]:
    return [decode(i, 6, 280, mamba=(24, 0.10), spec=(3.0, 0.67)) for i in range(30)]


def one_large_batch_without_graph() -> list[str]:
    lines = [decode(i, 32, 1500) for i in range(30)]
    return [*lines[:15], decode(15, 70, 1400, graph=False), *lines[16:]]


def two_retractions() -> list[str]:
    text = "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 900"
    lines = [decode(i, 40, 1500, usage=0.93) for i in range(40)]
    return [*lines[:10], f"[2026-10-02 08:20:10] {text}", *lines[10:30], f"[2026-10-02 08:20:30] {text}", *lines[30:]]


def prefix_cache_at_work() -> list[str]:
    lines = []
    for i in range(20):
        lines += [prefill(10 * i, 320, cached=3072), *(decode(10 * i + 1 + j, 1, 60) for j in range(4))]
    return lines


def long_prompts_one_by_one() -> list[str]:
    lines = []
    for i in range(6):
        lines += [prefill(30 * i + j, 8192, pending=8192 * (3 - j)) for j in range(4)]
        lines += [decode(30 * i + 5 + j, 1, 48, tokens=32768) for j in range(10)]
    return lines


def vllm_steady() -> list[str]:
    return [stats(10 * i, 12 + i % 3, 480 + 10 * (i % 4), kv=22.0) for i in range(40)]


def vllm_short_wait() -> list[str]:
    return [stats(10 * i, 64, 1900, waiting=5 if i == 7 else 0, kv=55.0) for i in range(30)]


def vllm_comes_and_goes() -> list[str]:
    return [
        stats(10 * i, *((3, 150.0) if i % 5 < 3 else (0, 0.0)), prompt=200.0 if i % 5 == 0 else 0.0) for i in range(50)
    ]


def vllm_speculation() -> list[str]:
    return [line for i in range(15) for line in (stats(10 * i, 4, 210), spec(10 * i, 1.81, 1150, 930))]


def vllm_prefill_between() -> list[str]:
    rates = [(820.0, 40.0), (310.0, 5200.0), (790.0, 60.0), (805.0, 30.0)]
    return [stats(10 * i, 16, rates[i % 4][0], prompt=rates[i % 4][1], kv=40.0) for i in range(24)]


def llama_slots() -> list[str]:
    lines = ["0.03.100.001 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'"]
    for task in range(6):
        head = f"0.{10 + task}.100.001 I slot print_timing: id  {task % 4} | task {task} | "
        lines.append(f"{head}draft acceptance = 0.71000 (  142 accepted /   200 generated)")
    return lines


def requests_that_clients_break_off() -> list[str]:
    lines = [decode(i, 3, 170) for i in range(10)]
    return [
        *lines,
        access("/v1/chat/completions"),
        access("/v1/chat/completions", 400),
        *[decode(11 + i, 3, 171) for i in range(9)],
    ]


def jit_before_it_is_ready() -> list[str]:
    return [
        "[2026-10-02 08:00:10] JIT compiling kernels for gdn",
        _LIMITS,
        *(decode(300 + i, 2, 110) for i in range(9)),
    ]


def restart_in_one_log() -> list[str]:
    return [
        *one_stream_after_start(),
        prefill(399, 700),
        *[decode(400 + i, 5, 240) for i in range(5)],
        *one_stream_after_start(),
    ]


_LOGS: tuple[Callable[[], list[str]], ...] = (
    one_stream_after_start,
    busy_below_the_cap,
    many_short_prompts,
    short_burst_with_a_queue,
    idle_for_an_hour,
    health_probes_only,
    speculation_that_works,
    speculation_with_a_tree,
    acceptance_that_holds_with_length,
    hybrid_with_room,
    one_large_batch_without_graph,
    two_retractions,
    prefix_cache_at_work,
    long_prompts_one_by_one,
    vllm_steady,
    vllm_short_wait,
    vllm_comes_and_goes,
    vllm_speculation,
    vllm_prefill_between,
    llama_slots,
    requests_that_clients_break_off,
    jit_before_it_is_ready,
    restart_in_one_log,
)


@pytest.mark.parametrize("lines", _LOGS, ids=lambda make: make.__name__)
def test_healthy_log_has_no_finding(lines: Callable[[], list[str]]) -> None:
    assert diagnosed(lines()) == ()


@pytest.mark.parametrize("seed", range(6))
def test_rising_sweep_with_noise_has_no_finding(seed: int) -> None:
    rng = random.Random(seed)
    levels = sorted(rng.sample((1, 2, 4, 8, 12, 16, 24, 32), 5))
    points = engine_sweep(
        cap=512, fixed_s=rng.uniform(5, 20), each_s=rng.uniform(0.01, 0.08), levels=levels, noise=0.02, seed=seed
    )
    assert findings(points, max_running_requests=512) == ()


def test_facts_without_a_problem_have_no_finding() -> None:
    assert (
        findings(
            max_running_requests=64,
            kv_tokens=400000,
            context_len=32768,
            accept_len=2.9,
            tp=2,
            hicache_total_gb=60,
            hicache_pools=1,
            mem_available_gb=200,
            sm_clock_mhz=1900,
            sm_clock_max_mhz=2100,
            temp_c=64,
            peak_tps=500,
            mean_tps=410,
            requested_output=512,
            total_output_tokens=512 * 40,
            requests=40,
            ok=40,
            client_tps=400,
            server_tps=405,
        )
        == ()
    )

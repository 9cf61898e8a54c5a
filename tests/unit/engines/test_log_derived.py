"""Derived quantities against numbers worked out by hand, and which engine a log is of."""

from __future__ import annotations

import pytest

from tokpit.engines.logkit import derived
from tokpit.engines.logkit.read import detect, grammar_of, read_log
from tokpit.errors import UsageError


def test_step_time_is_running_times_length_over_rate():
    assert derived.step_ms(4, 2.5, 200.0) == 50.0
    assert derived.step_ms(0, 2.5, 200.0) is None
    assert derived.step_ms(4, 2.5, 0.0) is None


def test_draft_tokens_follow_from_length_and_rate():
    assert derived.draft_tokens_per_step(2.8, 0.6) == pytest.approx(3.0)
    assert derived.draft_tokens_per_step(1.0, 0.0) is None
    assert derived.accept_rate(2.8, 3) == pytest.approx(0.6)


def test_the_cap_of_a_state_pool_is_a_floor_division():
    assert derived.request_cap(52, 5) == 10
    assert derived.request_cap(4, 5) == 0
    assert derived.slots_per_request(36, 9) == 4
    assert derived.slots_per_request(36, 0) is None


def test_length_is_one_more_than_the_sum_over_positions():
    assert derived.accept_len_of_positions((0.983, 0.949, 0.915, 0.881, 0.712)) == pytest.approx(5.44)
    assert derived.hit_rate(80, 20) == 0.2
    assert derived.hit_rate(0, 0) is None
    assert derived.tokens_per_step(330, 10, 100) == 3.2
    assert derived.tokens_per_step(330, 10, 0) is None


@pytest.mark.parametrize(
    ("engine", "lines"),
    [
        ("sglang", ["noise", "[2026-08-03 10:00:00 TP0] Load weight begin. avail mem=70.10 GB"]),
        ("sglang", ["web-1 | [2026-08-03 10:00:00] Decode batch, #running-req: 1, gen throughput (token/s): 3.00"]),
        ("vllm", ["(Worker pid=7) ", "INFO:     Application startup complete."]),
        ("vllm", ["INFO 08-03 10:00:00 [a.py:1] Loading weights took 1.50 seconds"]),
        ("vllm", ["(EngineCore_DP0 pid=9) ValueError: No available memory for the cache blocks."]),
        ("llamacpp", ["0.01.000.000 I srv  llama_server: listening on http://127.0.0.1:8080"]),
        (
            "llamacpp",
            ["ggml_cuda_init: found 1 CUDA devices", "main: server is listening on http://127.0.0.1:8080 - x"],
        ),
        (None, ["hello", "world"]),
    ],
)
def test_the_engine_of_a_log_is_told_from_its_first_lines(engine, lines):
    assert detect(lines) == engine


def test_a_log_is_read_with_its_own_grammar_and_newlines_are_no_part_of_lines():
    lines = ["[2026-08-03 10:00:00 TP0] Load weight begin. avail mem=70.10 GB\n", "Killed\n"]
    records = list(read_log(lines))
    assert [r.kind for r in records] == ["milestone.load_begin", "failure.killed"]
    assert records[0].lines == (lines[0].rstrip("\n"),)
    assert [r.kind for r in read_log(lines, "vllm")] == ["text", "failure.killed"]


def test_an_unknown_engine_name_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="nosuch"):
        grammar_of("nosuch")

"""Measurements that could not be believed, retold in figures: the verdict, its arithmetic, and neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from insight_logs import diagnosed, stats
from insight_tools import codes, findings, one

CASES: list[tuple[str, str, dict[str, Any], tuple[str, ...]]] = [
    ("peak under the mean", "CHUNKS_NOT_TOKENS", {"mean_tps": 398.2, "peak_tps": 104.0, "accept_len": 3.9},
     ("104", "398.2", "impossible", "0.26")),
    ("peak under the mean, nothing else known", "CHUNKS_NOT_TOKENS", {"mean_tps": 80, "peak_tps": 25}, ("3.2",)),
    ("gaps too long at C=1", "ITL_IS_PER_CHUNK", {"concurrency": 1, "mean_tps": 292.29, "itl_ms": 8.72},
     ("2.55 tokens a gap", "3.42 ms")),
    ("gaps too long at C=16", "ITL_IS_PER_CHUNK", {"concurrency": 16, "mean_tps": 1200, "itl_ms": 40},
     ("3 tokens a gap",)),
    ("ok and no token", "ZERO_TOKENS_SUSPECT", {"ok": 4, "requests": 4, "total_output_tokens": 0},
     ("4 of 4 ok", "not 0 tok/s")),
    ("warm cache", "WARM_PREFIX", {"prefix_queries": 131072, "prefix_hits": 118000, "prompt_kind": "random"},
     ("90%", "118,000 / 131,072 = 0.9")),
    ("barely warm", "WARM_PREFIX", {"prefix_queries": 50000, "prefix_hits": 1200, "prompt_kind": "random"}, ("2.4%",)),
    ("one prompt for all", "DUPLICATE_PROMPTS", {"unique_prompts": 1, "prompts": 1000},
     ("1 unique prompt of 1000", "0.001")),
    ("half the prompts", "DUPLICATE_PROMPTS", {"unique_prompts": 128, "prompts": 256}, ("128 unique prompts", "0.5")),
    ("no usage", "NO_USAGE", {"usage_reported": False}, ("estimated", "lower bound")),
    ("connection limit", "CLIENT_LIMIT",
     {"concurrency": 256, "client_limit": 100, "server_running": 100, "server_queued": 0}, ("100", "C=256")),
    ("connection limit of another size", "CLIENT_LIMIT",
     {"concurrency": 64, "client_limit": 20, "server_running": 20, "server_queued": 0}, ("20 connections",)),
    ("slow client", "CLIENT_BOUND", {"server_tps": 480, "client_tps": 44, "loop_lag_ms": 900, "client_cpu": 1.0},
     ("480", "44", "10.9", "late by 900 ms")),
    ("slow client by counts", "CLIENT_BOUND", {"server_tokens": 130000, "client_tokens": 100000}, ("1.3",)),
    ("one failure at a round time", "CLIENT_TIMEOUT", {"failure_elapsed_s": "300.0,0.002"}, ("1 failure", "300 s")),
    ("all failures at one time", "CLIENT_TIMEOUT",
     {"failure_elapsed_s": ",".join(["600.0"] * 11), "requests": 16}, ("11 failures of 16", "600 s")),
    ("an odd limit, again and again", "CLIENT_TIMEOUT", {"failure_elapsed_s": "45.0,45.1,45.0,44.9", "requests": 9},
     ("4 failures",)),
    ("a silent stream", "STREAM_STALLED", {"stream_silent_s": 4000}, ("4,000 s",)),
    ("shorter than its name", "LENGTH_MISMATCH", {"output_tokens": 7370, "requested_output": 8192},
     ("7,370 / 8,192 = 90%",)),
    ("one token each", "OUTPUT_TRUNCATED", {"total_output_tokens": 512, "ok": 512, "requested_output": 1024},
     ("1 tokens on average where 1,024", "wrong")),
    ("lost requests", "LOST_REQUESTS",
     {"client_in_flight": 2787, "client_completed": 1309, "server_running": 0, "server_queued": 0},
     ("2787", "1309 completed", "lost")),
    ("a rejecting server", "REJECTED", {"ok": 40, "rejected": 216}, ("216 of 256", "84%")),
    ("two in a hundred", "REJECTED", {"ok": 98, "err": 2}, ("2 of 100", "2%")),
]  # fmt: skip

NEIGHBOURS: list[tuple[str, str, dict[str, Any]]] = [
    ("a peak over the mean", "CHUNKS_NOT_TOKENS", {"mean_tps": 398, "peak_tps": 460, "accept_len": 3.9}),
    ("gaps that fit", "ITL_IS_PER_CHUNK", {"concurrency": 8, "mean_tps": 370, "itl_ms": 21.6}),
    ("a shared prefix that was meant", "WARM_PREFIX",
     {"prefix_queries": 10000, "prefix_hits": 8000, "prompt_kind": "shared"}),
    ("a template in the cache", "WARM_PREFIX", {"prefix_queries": 10000, "prefix_hits": 30, "prompt_kind": "random"}),
    ("all prompts different", "DUPLICATE_PROMPTS", {"unique_prompts": 1000, "prompts": 1000}),
    ("a queue at the server", "CLIENT_LIMIT", {"concurrency": 256, "server_running": 100, "server_queued": 156}),
    ("the server's own cap", "CLIENT_LIMIT",
     {"concurrency": 48, "server_running": 9, "server_queued": 0, "max_running_requests": 9}),
    ("counts that agree", "CLIENT_BOUND", {"server_tokens": 104000, "client_tokens": 100000}),
    ("failures at different times", "CLIENT_TIMEOUT", {"failure_elapsed_s": "3.1,44.2,187.5"}),
    ("failures at once", "CLIENT_TIMEOUT", {"failure_elapsed_s": "0.003,0.003,0.003,0.003"}),
    ("a stream that pauses", "STREAM_STALLED", {"stream_silent_s": 40}),
    ("lengths as asked", "LENGTH_MISMATCH", {"output_tokens": 1010, "requested_output": 1024}),
    ("an early stop is no wrong request", "OUTPUT_TRUNCATED", {"output_tokens": 300, "requested_output": 1024}),
    ("work at the server", "LOST_REQUESTS", {"client_in_flight": 9, "server_running": 9, "server_queued": 0}),
    ("one in a thousand", "REJECTED", {"ok": 999, "err": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "facts", "said"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_the_fault_is_named_with_its_arithmetic(code: str, facts: dict[str, Any], said: tuple[str, ...]) -> None:
    found = one(findings(**facts), code)
    whole = f"{found.claim} {found.arithmetic}"
    assert [words for words in said if words not in whole] == [], whole
    assert found.next_action


@pytest.mark.parametrize(("code", "facts"), [row[1:] for row in NEIGHBOURS], ids=[row[0] for row in NEIGHBOURS])
def test_its_neighbour_is_not(code: str, facts: dict[str, Any]) -> None:
    assert code not in codes(findings(**facts))


def test_kernels_compiled_during_a_measurement_make_it_a_cold_start() -> None:
    jit = (
        "(EngineCore pid=9) WARNING 10-02 08:20:05 [jit_monitor.py:44] Triton kernel JIT compilation during inference: "
        "chunk_scan_fwd_kernel. This causes a latency spike; consider extending warmup to cover this shape/config"
    )
    rates = (8.6, 17.0, 85.5, 76.5)
    lines = [stats(10 * i, 1, rate) for i, rate in enumerate(rates, 1)]
    found = one(diagnosed([lines[0], jit, *lines[1:]]), "COLD_START")
    assert "compiled while requests ran" in found.claim
    assert "Warm up each shape" in found.next_action
    assert "COLD_START" not in codes(diagnosed(lines))


def test_a_log_whose_running_count_sticks_is_the_clients_limit() -> None:
    stuck = [stats(10 * i, 100, 2000.0) for i in range(6)]
    assert "100 connections" in one(diagnosed(stuck, concurrency=256), "CLIENT_LIMIT").claim
    moving = [stats(10 * i, 60 + 8 * i, 2000.0) for i in range(6)]
    assert "CLIENT_LIMIT" not in codes(diagnosed(moving, concurrency=100))

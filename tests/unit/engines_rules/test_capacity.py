"""Capacity arithmetic: the sums that a person would do by hand."""

from __future__ import annotations

import pytest

from tokpit.engines.sglang import capacity as sglang
from tokpit.engines.vllm import capacity as vllm


@pytest.mark.parametrize(
    ("strategy", "version", "prefix_cache", "overlap", "slots"),
    [
        ("extra_buffer", "0.5.11", True, True, 5),
        ("extra_buffer", "0.5.11", True, False, 4),
        ("extra_buffer_lazy", "0.5.18", True, True, 4),
        ("no_buffer", "0.5.11", True, True, 3),
        ("extra_buffer", "0.5.11", False, True, 1),
        ("auto", "0.5.13", True, True, 3),
        (None, "0.5.13.post1", True, True, 3),
        ("auto", "0.5.14", True, True, 5),
        (None, "0.5.23", True, False, 3),
        (None, None, True, True, None),
        ("something_new", "0.5.23", True, True, None),
    ],
)
def test_slots_per_request_follow_strategy_overlap_and_release(
    strategy: str | None, version: str | None, prefix_cache: bool, overlap: bool, slots: int | None
) -> None:
    assert sglang.slots_per_request(strategy, version, prefix_cache=prefix_cache, overlap=overlap) == slots


@pytest.mark.parametrize(
    ("slots", "each", "configured", "cap"),
    [
        (48, 5, None, (9, "state slots")),
        (7, 5, None, (1, "state slots")),
        (47, 5, 32, (9, "state slots")),
        (48, 3, 8, (8, "configured")),
        (None, 5, None, (None, "unknown")),
        (4, 5, 48, (0, "state slots")),
    ],
)
def test_running_cap_is_the_smallest_term(
    slots: int | None, each: int, configured: int | None, cap: tuple[int | None, str]
) -> None:
    assert sglang.running_cap(configured=configured, state_slots=slots, per_request=each) == cap


def test_running_cap_knows_kv_tokens() -> None:
    assert sglang.running_cap(configured=48, kv_tokens=100_000, tokens_per_request=9_000) == (11, "kv tokens")
    assert vllm.running_cap(configured=1024, state_blocks=614) == (614, "state blocks")
    assert vllm.running_cap(kv_tokens=162_704, tokens_per_request=16_000) == (10, "kv tokens")


@pytest.mark.parametrize(
    ("version", "speculates", "topk", "spec_v2", "disabled", "on"),
    [
        ("0.5.11", False, None, None, False, True),
        ("0.5.11", False, None, None, True, False),
        ("0.5.9", True, 1, None, False, False),
        ("0.5.9", True, 1, True, False, True),
        ("0.5.4", True, 1, True, False, False),
        ("0.5.12", True, 1, None, False, True),
        ("0.5.12", True, 4, None, False, False),
        ("0.5.12", True, 1, False, False, False),
        ("0.5.20", True, 4, None, False, True),
        (None, True, 1, None, False, True),
    ],
)
def test_overlap_under_speculation_depends_on_the_release(
    version: str | None, speculates: bool, topk: int | None, spec_v2: bool | None, disabled: bool, on: bool
) -> None:
    found = sglang.overlap_on(version, disabled=disabled, speculates=speculates, topk=topk, spec_v2=spec_v2)
    assert found is on


@pytest.mark.parametrize(
    ("hybrid", "version", "ranks", "gb"),
    [
        (True, "0.5.11", 1, 300),
        (True, "0.5.16", 2, 600),
        (True, "0.5.16.post2", 1, 300),
        (True, "0.5.17", 1, 150),
        (True, "0.5.9", 1, 150),
        (False, "0.5.11", 4, 600),
        (None, "0.5.11", 1, 150),
        (True, None, 1, 300),
    ],
)
def test_host_cache_counts_ranks_and_pools(hybrid: bool | None, version: str | None, ranks: int, gb: int) -> None:
    assert sglang.hicache_host_bytes(150, ranks=ranks, hybrid=hybrid, version=version) == gb * 10**9


def test_largest_host_cache_leaves_the_reserve() -> None:
    assert sglang.largest_hicache_gb(205 * 10**9, hybrid=True, version="0.5.12") == 97
    assert sglang.largest_hicache_gb(60 * 10**9, ranks=4, version="0.5.3") == 12
    assert sglang.largest_hicache_gb(5 * 10**9) == 0


def test_allocation_lines_of_a_log_are_summed() -> None:
    lines = [
        "[2026-04-01 08:00:01] Allocating 150.00 GB host memory for hierarchical KV cache.",
        "[2026-04-01 08:00:02] Allocating 150.10 GB host memory for hierarchical Mamba cache (layout=layer_first).",
        "[2026-04-01 08:00:03] Load weight end.",
    ]
    assert sglang.hicache_allocated_gb(lines) == (300.1, 2)
    assert sglang.hicache_allocated_gb(
        ["Allocating kv hierarchical KV host pool: 877400 tokens, 0.45 GB host memory."]
    ) == (0.45, 1)
    assert sglang.hicache_allocated_gb(["nothing"]) == (0, 0)


@pytest.mark.parametrize(
    ("draft", "page", "interval"), [(8, 64, 64), (65, 64, 128), (12, 1, 12), (4, 16, 16), (0, 1, 1)]
)
def test_track_interval_is_rounded_up_to_pages(draft: int, page: int, interval: int) -> None:
    assert sglang.smallest_track_interval(draft, page) == interval


def test_draft_tokens_follow_steps_only_for_chains() -> None:
    assert sglang.draft_tokens_of(3, 1, 9) == 4
    assert sglang.draft_tokens_of(3, None, None) == 4
    assert sglang.draft_tokens_of(3, 4, 16) == 16
    assert sglang.draft_tokens_of(None, None, 8) == 8


def test_prefix_caching_of_hybrids_changed_its_default() -> None:
    assert vllm.prefix_cache_on(None, True, "0.25.1") is False
    assert vllm.prefix_cache_on(None, True, "0.28.0") is True
    assert vllm.prefix_cache_on(None, True, "0.27.0") is None
    assert vllm.prefix_cache_on(None, False, None) is True
    assert vllm.prefix_cache_on(False, True, "0.33.0") is False


def test_state_pages_grow_with_draft_tokens() -> None:
    assert vllm.state_pages_per_request(0) == 1
    assert vllm.state_pages_per_request(3) == 4
    assert vllm.state_pages_per_request(3, prefix_cache=True) == 5


def test_default_sequences_depend_on_the_card() -> None:
    assert vllm.default_max_num_seqs(81_559, "NVIDIA H100 80GB HBM3") == 1024
    assert vllm.default_max_num_seqs(81_920, "NVIDIA A100-SXM4-80GB") == 256
    assert vllm.default_max_num_seqs(24_564, "NVIDIA GeForce RTX 4090") == 256
    assert vllm.default_max_num_seqs(183_359, "NVIDIA B200") == 1024
    assert vllm.default_max_num_seqs(None) is None

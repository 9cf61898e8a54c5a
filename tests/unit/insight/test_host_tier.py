"""What the host tier of the prefix cache is worth, from metrics pages of both engines and from facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from insight_logs import prefill
from insight_tools import codes, findings, one
from tokpit.domain.finding import Finding
from tokpit.ops.diagnose.run import Sources, diagnose_files

COUNTED = {
    "tier_prompt_tokens": 2_000_000,
    "gpu_hit_tokens": 700_000,
    "host_hit_tokens": 460_000,
    "host_load_gb": 30,
    "host_load_s": 2.3,
    "host_cache_usage": 0.64,
    "host_state_usage": 0.11,
}


def sg(name: str, value: float, **labels: object) -> str:
    inner = ",".join(f'{key}="{text}"' for key, text in {"model_name": "m", **labels}.items())
    return f"sglang:{name}{{{inner}}} {value}"


def sglang_page(*, prompt: float, device: float, host: float, load_s: float = 2.0, dropped: float = 0.0) -> str:
    ranks = [
        sg(name, value, tp_rank=rank)
        for rank in (0, 1)
        for name, value in (
            ("num_running_reqs", 3),
            ("hicache_host_used_tokens", 390_000),
            ("hicache_host_total_tokens", 400_000),
            ("hicache_host_mamba_used_states", 22),
            ("hicache_host_mamba_total_states", 200),
            ("load_back_bytes_total", 15e9),
            ("load_back_duration_seconds_sum", load_s),
            ("load_back_duration_seconds_count", 400),
            ("hicache_backup_bytes_total", 40e9),
            ("hicache_backup_duration_seconds_sum", 4),
            ("evicted_tokens_total", 300_000),
        )
    ]
    tiers = [sg("cached_tokens_total", v, cache_source=s) for s, v in (("device", device), ("host", host)) if v]
    lost = (
        [sg("hicache_dropped_tokens_total", dropped, reason="host_pressure", pool="kv", tp_rank=0)] if dropped else []
    )
    return "\n".join([sg("prompt_tokens_total", prompt), *tiers, *lost, *ranks]) + "\n"


def diagnosed(folder: Path, *pages: str, log: str = "", **facts: object) -> tuple[Finding, ...]:
    paths = []
    for number, text in enumerate(pages):
        paths.append(folder / f"{number}.prom")
        paths[-1].write_text(text)
    logs = ()
    if log:
        (folder / "server.log").write_text(log)
        logs = (str(folder / "server.log"),)
    sources = Sources(metrics=tuple(map(str, paths)), logs=logs, facts=tuple((k, str(v)) for k, v in facts.items()))
    return diagnose_files(sources).findings


def test_time_saved_is_computing_the_hits_less_loading_them() -> None:
    found = one(findings(**COUNTED, prefill_tps=9200), "HOST_CACHE_PAYS")
    assert found.severity == "info"
    assert "23% of the prompt tokens (460,000)" in found.claim
    assert "460,000 / 9,200 tok/s (prefill rate) = 50 s, loading took 2.3 s" in found.arithmetic
    assert "saved 50 s - 2.3 s = 47.7 s" in found.arithmetic
    assert "23.9 ms for every 1,000 prompt tokens" in found.claim
    assert "of 2,000,000 prompt tokens: GPU 35% (700,000), host 23% (460,000), computed 42%" in found.evidence
    assert "30 GB host to GPU in 2.3 s = 13 GB/s" in found.evidence
    assert "host occupancy: KV 64%, state slots 11%" in found.evidence


def test_without_a_measured_rate_the_ceiling_of_computing_gives_the_least_that_is_saved() -> None:
    found = one(findings(**COUNTED, gpu="H100 PCIe", tp=2, params_b=32), "HOST_CACHE_PAYS")
    assert "saved at least 17.2 s" in found.claim  # 460,000 x 64e9 / (2 x 756e12) - 2.3


def test_a_ceiling_alone_never_says_that_it_costs() -> None:
    given = {**COUNTED, "host_load_s": 400}
    found = one(findings(**given, gpu="H100 PCIe", tp=2, params_b=32), "HOST_CACHE_PAYS")
    assert "saved" not in found.claim


def test_loading_that_takes_longer_than_computing_costs() -> None:
    found = one(findings(**{**COUNTED, "host_load_s": 90}, prefill_tps=9200), "HOST_CACHE_COSTS")
    assert found.severity == "warning"
    assert "loading them took 90 s where computing takes 50 s" in found.claim


def test_a_host_tier_that_gives_nothing_is_told_with_what_it_holds() -> None:
    given = {**COUNTED, "host_hit_tokens": 900, "evicted_tokens": 0, "hicache_gb": 150}
    found = one(findings(**given), "HOST_CACHE_UNUSED")
    assert "nothing ever had to leave the GPU's own cache" in found.claim
    assert "150 GB of host memory" in found.claim


@pytest.mark.parametrize(
    "given",
    [
        {"hicache_gb": 150, "host_cache_usage": 0.5},
        {"host_hit_tokens": 4000, "tier_prompt_tokens": 9000},
        {"gpu_hit_tokens": 40_000, "tier_prompt_tokens": 90_000},
    ],
    ids=["only occupancy", "a few prompts", "no host tier"],
)
def test_without_evidence_nothing_is_said(given: dict[str, float]) -> None:
    assert codes(findings(**given)) == []


def test_sglang_page_of_two_ranks(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, sglang_page(prompt=1e6, device=310_000, host=230_000), prefill_tps=8000)
    pays = one(found, "HOST_CACHE_PAYS")
    assert pays.figures["saved_s"] == pytest.approx(230_000 / 8000 - 2)
    assert "15 GB host to GPU in 2 s = 7.5 GB/s" in pays.evidence
    assert "host occupancy: KV 98%, state slots 11%" in pays.evidence


def test_of_two_pages_only_what_came_between_counts(tmp_path: Path) -> None:
    pages = [
        sglang_page(prompt=4e5, device=0, host=0, load_s=1),
        sglang_page(prompt=1e6, device=100_000, host=230_000),
    ]
    pays = one(diagnosed(tmp_path, *pages), "HOST_CACHE_PAYS")
    assert "of 600,000 prompt tokens: GPU 17% (100,000), host 38% (230,000), computed 45%" in pays.evidence


def test_a_restart_between_two_pages_does_not_make_negative_tokens(tmp_path: Path) -> None:
    pages = [sglang_page(prompt=4e6, device=1e6, host=1e6), sglang_page(prompt=1e6, device=310_000, host=230_000)]
    assert one(diagnosed(tmp_path, *pages), "HOST_CACHE_PAYS").figures["host_hit_rate"] == pytest.approx(0.23)


def test_what_is_lost_for_want_of_host_memory(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, sglang_page(prompt=1e6, device=310_000, host=230_000, dropped=120_000))
    small = one(found, "HOST_CACHE_TOO_SMALL")
    assert found[0] is small
    assert "120,000 lost / 300,000 evicted tokens = 40%" in small.arithmetic
    assert "The host cache is full (KV)" in small.claim


def test_the_log_gives_the_prefill_rate(tmp_path: Path) -> None:
    log = "\n".join(prefill(2 * i, 4000 + i) for i in range(8))
    found = diagnosed(tmp_path, sglang_page(prompt=1e6, device=310_000, host=230_000), log=log)
    assert "fast prefill batches of the log" in one(found, "HOST_CACHE_PAYS").arithmetic


VLLM = """vllm:num_requests_running{engine="0"} 3.0
vllm:prefix_cache_queries_total{engine="0"} 1000000.0
vllm:prefix_cache_hits_total{engine="0"} 400000.0
vllm:prompt_tokens_by_source_total{engine="0",source="local_compute"} 450000.0
vllm:prompt_tokens_by_source_total{engine="0",source="external_kv_transfer"} 150000.0
vllm:request_prefill_time_seconds_sum{engine="0"} 60.0
vllm:request_prefill_time_seconds_count{engine="0"} 300
"""
NEW = """vllm:prompt_tokens_cached_by_source_total{engine="0",source="device"} 400000.0
vllm:prompt_tokens_cached_by_source_total{engine="0",source="host"} 150000.0
vllm:kv_offload_load_bytes_total{engine="0"} 9.6e+09
vllm:kv_offload_load_time_total{engine="0"} 0.8
vllm:kv_offload_store_bytes_total{engine="0"} 2.0e+10
vllm:kv_offload_cpu_cache_usage_perc{engine="0"} 0.5
"""
OLD = """vllm:external_prefix_cache_hits_total{engine="0"} 150000.0
vllm:kv_offload_total_bytes_total{engine="0",transfer_type="CPU_to_GPU"} 9.6e+09
vllm:kv_offload_total_bytes_total{engine="0",transfer_type="GPU_to_CPU"} 2.0e+10
vllm:kv_offload_total_time_total{engine="0",transfer_type="CPU_to_GPU"} 0.8
"""


@pytest.mark.parametrize("more", [NEW, OLD], ids=["0.32", "0.16"])
def test_vllm_pages_of_two_ages(tmp_path: Path, more: str) -> None:
    pays = one(diagnosed(tmp_path, VLLM + more), "HOST_CACHE_PAYS")
    assert "of 1,000,000 prompt tokens: GPU 40% (400,000), host 15% (150,000)" in pays.evidence[0]
    assert "9.6 GB host to GPU in 800 ms = 12 GB/s" in pays.evidence
    assert "150,000 / 7,500 tok/s (prefill rate) = 20 s" in pays.arithmetic


def test_hits_of_another_connector_are_not_the_hosts(tmp_path: Path) -> None:
    page = VLLM + 'vllm:external_prefix_cache_hits_total{engine="0"} 150000.0\n'
    assert [f for f in diagnosed(tmp_path, page) if f.code.startswith("HOST_CACHE")] == []

"""What is said of servers that have not failed: stuck, slow, compiling, and what their host memory sums to."""

from __future__ import annotations

from failurelogs import DECODE, READY, by_grammar
from tokpit.domain.verdict import Verdict
from tokpit.engines.registry import engine
from tokpit.engines.verdictkit.aftermath import HostEvidence, questions, with_host


def found(name: str, log: str, silent_s: float | None = None) -> dict[str, Verdict]:
    return {finding.code: finding for finding in engine(name).findings(by_grammar(name, log), silent_s)}


JOINING = "(Worker_TP1 pid=61) INFO 04-01 08:00:09 [pynccl.py:113] vLLM is using nccl==2.28.9"
PCIE = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNODE\t0-31\nGPU1\tNODE\t X \t0-31\n"
NVLINK = PCIE.replace("NODE", "NV12")


def test_ranks_that_wait_for_each_other_over_pcie_suggest_peer_access() -> None:
    stuck = found("vllm", JOINING, 500.0)["STUCK_NCCL_INIT"]
    assert questions(stuck) == (("nvidia-smi", "topo", "-m"),)
    blocked = with_host(stuck, HostEvidence(topology=PCIE))
    assert blocked.code == "STUCK_P2P_IOMMU"
    assert blocked.fixes[0].env == {"NCCL_P2P_DISABLE": "1"}
    assert with_host(stuck, HostEvidence(topology=NVLINK)).code == "STUCK_NCCL_INIT"


def test_a_phase_within_its_usual_time_is_not_stuck() -> None:
    assert found("vllm", JOINING, 20.0) == {}
    assert found("sglang", READY + DECODE, 4000.0) == {}


def test_the_log_of_a_server_at_work_is_no_start_that_hangs() -> None:
    later = DECODE.replace("2026-04-01", "2026-04-09")
    assert found("sglang", "a line of a wrapper\n" + DECODE) == {}
    assert found("sglang", DECODE + later, 4000.0) == {}
    stats = (
        "INFO 04-{day:02d} 10:00:00 [loggers.py:259] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
        "throughput: 61.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%\n"
    )
    assert found("vllm", "".join(stats.format(day=day) for day in (1, 3, 5)), 900.0) == {}
    slot = "slot print_timing: id  0 | task 3 | n_gen =    512, tg =  62.01 t/s, tg_3s =  61.20 t/s\n"
    assert found("llamacpp", slot, 4000.0) == {}
    assert "STUCK_NCCL_INIT" in found("vllm", "".join(stats.format(day=day) for day in (1, 2)) + JOINING, 500.0)


def test_a_line_without_a_stamp_before_the_others_is_no_silence_since_the_beginning_of_time() -> None:
    begun = "[2026-04-01 08:00:10] Init torch distributed begin."
    assert found("sglang", "starting the container\n" + begun, 5.0) == {}
    assert "STUCK_NCCL_INIT" in found("sglang", "starting the container\n" + begun, 900.0)


def test_quick_shards_are_not_slow_and_a_bar_that_ended_says_nothing() -> None:
    quick = "Loading safetensors checkpoint shards:  10% Completed | 3/30 [00:03<00:27, 1.00s/it]"
    slow = "Loading safetensors checkpoint shards:  10% Completed | 3/30 [01:30<13:30, 30.00s/it]"
    assert found("sglang", quick) == {}
    assert "SLOW_WEIGHT_LOAD" in found("vllm", slow)
    ended = slow + "\n[2026-04-01 08:20:00 TP0] Load weight end. elapsed=900 s, avail mem=9 GB"
    assert found("sglang", ended, 1.0) == {}
    assert set(found("sglang", ended)) == {"START_UNFINISHED"}


def test_a_log_that_ends_within_a_start_says_where_and_what_would_be_too_long() -> None:
    network = "n1:9:9 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to enx"
    begun = "[2025-06-23 15:06:10 TP0] Init torch distributed begin.\n"
    ends = found("sglang", begun + network)["START_UNFINISHED"]
    assert "usually takes at most" in ends.sentence
    assert "to enx" in ends.sentence
    assert "NCCL_SOCKET_IFNAME" in ends.next_action
    assert not ends.fatal
    assert "START_UNFINISHED" in found("vllm", JOINING)
    assert found("sglang", begun + READY) == {}
    assert found("sglang", READY + DECODE) == {}


def test_compiling_for_most_of_a_start_is_told_with_its_share() -> None:
    log = (
        "[2026-04-01 08:00:00] Load weight end. elapsed=40.0 s, type=M, avail mem=9.10 GB\n"
        "[2026-04-01 08:00:10] DeepGEMM JIT Compiling for <GEMM_NT_F8F8BF16> M=16384 N=5120 K=17408\n"
        "[2026-04-01 08:05:10] Capture cuda graph begin. This can take up to several minutes. avail mem=8.00 GB\n"
    )
    compiled = found("sglang", log)["JIT_AT_START"]
    assert compiled.figures["took_s"] == 300.0
    assert "5 min 0 s" in compiled.sentence
    assert found("sglang", log.replace("08:05:10", "08:00:40"), 1.0) == {}


def test_pools_of_an_earlier_start_are_not_counted_again() -> None:
    start = (
        "[2026-04-01 08:00:00] server_args=ServerArgs(model_path='/w/m', tp_size=2)\n"
        "[2026-04-01 08:00:09 TP0] Allocating 20.00 GB host memory for hierarchical KV cache.\n"
        "[2026-04-01 08:00:09 TP1] Allocating 20.00 GB host memory for hierarchical KV cache.\n"
    )
    total = found("sglang", start + start)["HICACHE_PER_RANK"]
    assert (total.figures["total_gb"], total.figures["ranks"]) == (40.0, 2)
    assert total.arithmetic == "2 x 20.00 = 40.00 GB"


def test_one_pool_of_one_rank_is_nothing_to_tell() -> None:
    log = "[2026-04-01 08:00:09] Allocating 20.00 GB host memory for hierarchical KV cache."
    assert found("sglang", log, 1.0) == {}

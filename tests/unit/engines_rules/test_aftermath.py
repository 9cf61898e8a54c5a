"""What the host says after a failure sharpens the verdict: owners of ports and memory, the kernel's own words."""

from __future__ import annotations

from failurelogs import HIT, core_error, judge
from tokpit.domain.records import GpuSample
from tokpit.domain.verdict import Verdict
from tokpit.engines.verdictkit.aftermath import HostEvidence, questions, with_host


def told(name: str, log: str) -> Verdict:
    verdict = judge(name, log)
    assert verdict is not None
    return verdict


BIND = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8010): address already in use"


def test_the_owner_of_a_port_is_named() -> None:
    verdict = told("vllm", BIND)
    assert questions(verdict) == (("ss", "-tanpH", "sport = :8010"),)
    rows = 'LISTEN 0 2048 0.0.0.0:8010 0.0.0.0:* users:(("pt_main_thread",pid=611,fd=23))\n'
    sharper = with_host(verdict, HostEvidence(sockets=rows))
    assert (sharper.code, sharper.figures["pid"]) == ("PORT_IN_USE", 611)
    assert "pt_main_thread" in sharper.sentence


def test_time_wait_has_no_owner_and_nothing_to_stop() -> None:
    rows = "TIME-WAIT 0 0 10.1.0.5:8010 10.1.0.9:51234\nTIME-WAIT 0 0 10.1.0.5:8010 10.1.0.9:51240\n"
    sharper = with_host(told("vllm", "OSError: [Errno 98] Address already in use"), HostEvidence(sockets=rows))
    assert sharper.code == "PORT_TIME_WAIT"
    assert sharper.figures["port"] == 8010
    assert "nothing to stop" in sharper.next_action


def test_a_listener_outranks_time_wait() -> None:
    rows = "TIME-WAIT 0 0 10.1.0.5:8010 10.1.0.9:51234\nLISTEN 0 128 [::]:8010 [::]:*\n"
    sharper = with_host(told("vllm", BIND), HostEvidence(sockets=rows))
    assert sharper.code == "PORT_IN_USE"
    assert "another user" in sharper.sentence


def test_no_sockets_leave_the_verdict_alone() -> None:
    verdict = told("vllm", BIND)
    assert with_host(verdict, HostEvidence(sockets="")) == verdict
    assert with_host(verdict, HostEvidence()) == verdict


def test_the_kernel_confirms_its_kill_in_any_language() -> None:
    verdict = told("sglang", "[2026-04-01 08:00:01 TP0] Load weight begin.\n[x] Rank 0 scheduler died (exit code: -9)")
    kernel = (
        "[五 4月 3 08:00:01 2026] Out of memory: Killed process 5151 (sglang::schedul) total-vm:190000000kB, "
        "anon-rss:104857600kB"
    )
    sharper = with_host(verdict, HostEvidence(kernel_log=kernel))
    assert (sharper.figures["pid"], sharper.figures["rss_gib"]) == (5151, 100.0)
    assert "during weight load" in sharper.sentence
    assert kernel in sharper.evidence


def test_a_quiet_kernel_log_changes_nothing() -> None:
    verdict = told("sglang", "Rank 0 scheduler died (exit code: -9)")
    assert with_host(verdict, HostEvidence(kernel_log="[1.0] usb 1-1: new device\n")) == verdict


def test_workers_that_survive_a_failed_start_are_named() -> None:
    verdict = told("vllm", "(EngineCore pid=90) ERROR 04-01 08:00:09 [core.py:1195] EngineCore failed to start.")
    sharper = with_host(verdict, HostEvidence(gpu_processes="9101, 61222 MiB, VLLM::Worker_TP0\n9102, 60000 MiB, x\n"))
    assert sharper.code == "FAILED_BUT_HOLDING_GPU"
    assert sharper.figures == {"pid": 9101, "held_mib": 121222}
    assert "61222 + 60000 = 121222 MiB" in sharper.arithmetic


def test_an_orphan_explains_missing_kv_memory() -> None:
    verdict = told("vllm", core_error("ValueError: No available memory for the cache blocks. Try increasing"))
    sharper = with_host(verdict, HostEvidence(gpu_processes="77, 40000 MiB, VLLM::EngineCore\n"))
    assert sharper.code == "NO_KV_MEMORY"
    assert "77" in sharper.sentence


def test_unbalanced_is_either_size_or_occupant() -> None:
    verdict = told("sglang", HIT + "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other")
    mixed = with_host(
        verdict,
        HostEvidence(
            gpus=[GpuSample(0, "a", "x", mem_total_mib=16376.0), GpuSample(1, "b", "y", mem_total_mib=24576.0)]
        ),
    )
    alike = with_host(
        verdict,
        HostEvidence(
            gpus=[GpuSample(n, "a", "x", mem_total_mib=24576.0) for n in range(2)],
            gpu_processes="31, 9000 MiB, python\n",
        ),
    )
    assert "differ in size (16 and 24 GiB); no other process was found" in mixed.sentence
    assert alike.figures["pid"] == 31

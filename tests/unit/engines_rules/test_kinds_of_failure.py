"""Failures that any engine can meet, by kind: environment, model files, hub, GPU, ranks, operating system, exits."""

from __future__ import annotations

import pytest

from failurelogs import HIT, SIGQUIT, TRACEBACK, core_error, judge
from startfailures import KINDS


@pytest.mark.parametrize(("name", "code", "log"), KINDS, ids=[f"{k[0]}-{k[1]}-{i}" for i, k in enumerate(KINDS)])
def test_kind_is_told_from_its_literal_text(name: str, code: str, log: str) -> None:
    verdict = judge(name, log)
    assert verdict is not None
    assert verdict.code == code


def test_shared_memory_is_the_cause_and_the_nccl_error_its_consequence() -> None:
    verdict = judge(
        "sglang",
        "node3:31:40 [1] include/shm.h:48 NCCL WARN Error: failed to extend /dev/shm/nccl-Zq1 to 33030532 bytes\n"
        + HIT
        + "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:219, unhandled system error"
        + SIGQUIT,
    )
    assert verdict is not None
    assert verdict.code == "SHM_TOO_SMALL"


def test_the_rank_that_ran_out_of_memory_is_the_cause_and_its_peers_timeout_is_not() -> None:
    verdict = judge(
        "sglang",
        "[rank0]:[E401 08:00:02.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
        "[2026-04-01 08:00:03 TP1] Scheduler hit an exception: "
        + TRACEBACK
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 1 has a total capacity of 47.4 "
        "GiB of which 12.00 MiB is free.",
    )
    assert verdict is not None
    assert verdict.code.startswith("OOM_")
    assert verdict.figures["shortfall_mib"] == 52.0


def test_a_process_that_fills_the_gpu_is_named_before_any_advice() -> None:
    verdict = judge(
        "vllm",
        core_error(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of "
            "23.60 "
            "GiB of which 512.00 MiB is free. Process 4321 has 20.10 GiB memory in use. Including non-PyTorch memory"
        ),
    )
    assert verdict is not None
    assert verdict.figures["shortfall_mib"] == 1024.0
    assert verdict.next_action.startswith("Other processes hold memory on this GPU (pid 4321: 20.10 GiB)")


@pytest.mark.parametrize(
    ("exit_code", "signal", "code"),
    [
        (-9, None, "HOST_OOM_KILLED"),
        (137, None, "HOST_OOM_KILLED"),
        (None, "SIGKILL", "HOST_OOM_KILLED"),
        (139, None, "SEGFAULT"),
        (-6, None, "ABORTED"),
        (132, None, "ILLEGAL_INSTRUCTION"),
        (135, None, "SHM_TOO_SMALL"),
        (127, None, "COMMAND_NOT_FOUND"),
        (1, None, "EXITED"),
    ],
)
def test_an_exit_without_words_is_read_from_its_status(exit_code: int | None, signal: str | None, code: str) -> None:
    verdict = judge(
        "vllm", "(Worker pid=4) INFO 04-01 08:00:01 [x.py:1] Starting to load model /m...", exit_code, signal
    )
    assert verdict is not None
    assert verdict.code == code
    assert any("exit status" in text or "ended by" in text for text in verdict.evidence)


def test_words_outrank_the_exit_status() -> None:
    verdict = judge("sglang", HIT + "AssertionError: 20 is not divisible by 8" + SIGQUIT, -9)
    assert verdict is not None
    assert verdict.code == "TP_NOT_DIVISIBLE"
    assert verdict.figures["largest_tp"] == 4
    assert "exit status -9 = SIGKILL" in verdict.evidence


def test_three_crashes_of_one_kind_are_a_loop_and_two_different_ones_are_not() -> None:
    def start(error: str) -> str:
        return "[2026-04-01 08:00:01] server_args=ServerArgs(model_path='/m')\n" + HIT + error + SIGQUIT + "\n"

    wrong_device = "RuntimeError: Destination indices must be a CUDA tensor"
    loop = judge("sglang", start(wrong_device) * 3)
    mixed = judge("sglang", start(wrong_device) + start("AssertionError: 20 is not divisible by 8"))
    assert loop is not None
    assert mixed is not None
    assert (loop.code, loop.figures["restarts"], loop.figures["crashes"]) == ("CRASH_LOOP", 2, 3)
    assert mixed.code == "TP_NOT_DIVISIBLE"


def test_a_dump_of_megabytes_is_no_obstacle() -> None:
    dump = "[2026-04-01 08:00:01 TP0] Scheduler debug info: reqs=[Req(input_ids=[" + "7, " * 400_000 + "])]\n"
    verdict = judge("sglang", dump + "[2026-04-01 08:00:02 TP0] Watchdog timeout (self.watchdog_timeout=300)\nKilled")
    assert verdict is not None
    assert verdict.code == "WATCHDOG_KILLED"
    assert all(len(text) < 400 for text in verdict.evidence)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("slurmstepd: error: *** JOB 71 ON n1 CANCELLED AT 2026-11-30T11:40 DUE TO TIME LIMIT ***", "JOB_TIME_LIMIT"),
        ("slurmstepd-n1: error: *** STEP 71.0 ON n1 CANCELLED AT 2026-11-30T11:40 ***", "JOB_CANCELLED"),
        ("0: slurmstepd: error: *** STEP 71.0 ON n1 CANCELLED AT 2026-11-30T11:40 ***", "JOB_CANCELLED"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=71.batch.", "HOST_OOM_KILLED"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_what_a_queue_says_at_the_end_of_a_job_is_no_refused_command_line(name: str, line: str, code: str) -> None:
    verdict = judge(name, line)
    assert verdict is not None
    assert verdict.code == code
    # The reason why a rank failed is in front of it, and is the cause.
    first = judge(name, "OSError: [Errno 98] Address already in use\n" + line)
    assert first is not None
    assert first.code == "PORT_IN_USE"

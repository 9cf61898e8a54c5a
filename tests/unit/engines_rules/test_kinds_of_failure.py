"""Failures that any engine can meet, by kind: environment, model files, hub, GPU, ranks, operating system, exits."""

from __future__ import annotations

import pytest
from failurelogs import HIT, SIGQUIT, TRACEBACK, core_error, judge

KINDS = [
    ("vllm", "MODULE_MISSING", TRACEBACK + "ModuleNotFoundError: No module named 'flash_zeta'"),
    ("vllm", "ENGINE_NOT_INSTALLED", "/srv/py/bin/python: No module named vllm"),
    ("vllm", "ABI_MISMATCH", TRACEBACK + "ImportError: /srv/_C.abi3.so: undefined symbol: _ZN3c106detail14torch"),
    ("vllm", "ABI_MISMATCH", TRACEBACK + "ImportError: /lib/libc.so.6: version `GLIBC_2.38' not found"),
    ("vllm", "LIBRARY_MISSING", TRACEBACK + "ImportError: libnvrtc.so.13: cannot open shared object file: No such file"),
    ("vllm", "PACKAGE_MISMATCH", TRACEBACK + "ImportError: cannot import name 'Zeta' from 'transformers'"),
    ("vllm", "TRUST_REMOTE_CODE", TRACEBACK + "ValueError: The repository `a/b` contains custom code which must be run"),
    ("vllm", "HF_GATED", TRACEBACK + "OSError: You are trying to access a gated repo.\nMake sure to have access to it."),
    ("vllm", "HF_AUTH", TRACEBACK + "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://x"),
    ("vllm", "HF_UNREACHABLE", TRACEBACK + "OSError: We couldn't connect to 'https://huggingface.co' to load the files"),
    ("vllm", "WEIGHTS_CORRUPT", core_error("safetensors_rust.SafetensorError: Error while deserializing header")),
    ("vllm", "MODEL_INCOMPLETE", TRACEBACK + "OSError: /m does not appear to have a file named config.json. Checkout"),
    ("vllm", "TOKENIZER", TRACEBACK + "OSError: Can't load tokenizer for '/m'. If you were trying to load it from"),
    ("vllm", "QUANT_MISMATCH", TRACEBACK + "ValueError: Quantization method specified in the model config (awq) does not "
     "match the quantization method specified in the `quantization` argument (gptq)."),
    ("vllm", "QUANT_UNSUPPORTED_GPU", TRACEBACK + "ValueError: The quantization method fp8 is not supported for the "
     "current GPU. Minimum capability: 89. Current capability: 75."),
    ("vllm", "QUANT_TP", core_error("ValueError: The output_size of gate's and up's weight = 96 is not divisible by "
     "weight quantization block_n = 128.", "Worker_TP5 pid=9")),
    ("vllm", "DTYPE_UNSUPPORTED", TRACEBACK + "ValueError: Bfloat16 is only supported on GPUs with compute capability of "
     "at least 8.0. Your Tesla V100 GPU has compute capability 7.0."),
    ("vllm", "TP_NOT_DIVISIBLE", TRACEBACK + "pydantic_core._pydantic_core.ValidationError: 1 validation error for "
     "VllmConfig\n  Value error, Total number of attention heads (20) must be divisible by tensor parallel size (8)."),
    ("vllm", "CTX_TOO_LONG", TRACEBACK + "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig"
     "\n  Value error, User-specified max_model_len (99000) is greater than the derived max_model_len "
     "(max_position_embeddings=4096.0 or model_max_length=None in model's config.json)."),
    ("vllm", "NO_GPU", TRACEBACK + "RuntimeError: No CUDA GPUs are available"),
    ("vllm", "DRIVER_MISMATCH", "Failed to initialize NVML: Driver/library version mismatch"),
    ("vllm", "GPU_LOST", core_error("RuntimeError: CUDA error: GPU is lost. Reboot the system to recover this GPU")),
    ("vllm", "OFFLOAD_UNSUPPORTED", core_error("ValueError: CPU Offloading is currently only supported on CUDA-alike")),
    ("vllm", "SHM_TOO_SMALL", core_error("RuntimeError: Insufficient space in /dev/shm: need 64 GiB, have 16 GiB")),
    ("vllm", "BUILD_TOOL_MISSING", core_error("RuntimeError: Failed to find C compiler. Please specify via CC")),
    ("sglang", "DISK_FULL", TRACEBACK + "OSError: [Errno 28] No space left on device: '/home/u/.cache/hub/blob'"),
    ("sglang", "PERMISSION_DENIED", TRACEBACK + "PermissionError: [Errno 13] Permission denied: '/data/hub/lock'"),
    ("sglang", "READ_ONLY", TRACEBACK + "OSError: [Errno 30] Read-only file system: '/opt/cache'"),
    ("sglang", "TOO_MANY_FILES", TRACEBACK + "OSError: [Errno 24] Too many open files"),
    ("sglang", "PROCESS_LIMIT", TRACEBACK + "RuntimeError: can't start new thread"),
    ("sglang", "HOST_MEM", HIT + "RuntimeError: [enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate "
     "memory: you tried to allocate 999 bytes. Error code 12 (Cannot allocate memory)"),
    ("sglang", "SEGFAULT", "Fatal Python error: Segmentation fault" + SIGQUIT),
    ("sglang", "INTERNAL_PORT_IN_USE", HIT + "torch.distributed.DistNetworkError: The server socket has failed to listen "
     "on any local network address. port: 29777, useIpv6: false, code: -98, name: EADDRINUSE, message: address in use"),
    ("sglang", "NCCL_DUPLICATE_GPU", HIT + "torch.distributed.DistBackendError: NCCL error in: x.hpp:219, invalid usage\n"
     "Last error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 3b000"),
    ("sglang", "TP_EXCEEDS_GPUS", HIT + "RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors might be"),
    ("sglang", "KERNEL_ARCH_UNSUPPORTED", HIT + "RuntimeError: CUDA error: no kernel image is available for execution"),
    ("sglang", "MODEL_UNSUPPORTED", TRACEBACK + "KeyError: 'zeta'\n\nDuring handling of the above exception, another "
     "exception occurred:\n\n" + TRACEBACK + "ValueError: The checkpoint you are trying to load has model type `zeta` but "
     "Transformers does not recognize this architecture."),
    ("sglang", "GPU_ECC", HIT + "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("sglang", "COMMAND_NOT_FOUND", "bash: line 1: sglang: command not found"),
    ("sglang", "NO_STATE_MEMORY", HIT + "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state "
     "cache. Computed max_mamba_cache_size=-2"),
    ("sglang", "FLAG_CONFLICT", TRACEBACK + "ValueError: The arguments enable-hierarchical-cache and disable-radix-cache "
     "are mutually exclusive and cannot be used at the same time."),
    ("llamacpp", "WEIGHTS_CORRUPT", "llama_model_load: error loading model: tensor 'blk.1.ffn' data is not within the "
     "file bounds, model is corrupted or incomplete\nmain: exiting due to model loading error"),
    ("llamacpp", "FLAG_UNRECOGNIZED", "error: invalid argument: --zeta"),
]  # fmt: skip


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
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 23.60 "
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
    verdict = judge("vllm", "(Worker pid=4) INFO 04-01 08:00:01 [x.py:1] Starting to load model /m...", exit_code, signal)
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

"""Failures as they come from the field: other wordings, releases, prefixes and platforms of the known kinds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from failurelogs import HIT, TRACEBACK, core_error, judge


def each(front: str, log: str) -> str:
    return "\n".join(front + line for line in log.split("\n"))


def plain(error: str) -> str:
    return TRACEBACK + error


def crash(error: str) -> str:
    return HIT + error


FIELD: list[tuple[str, str, str]] = [
    # memory
    (
        "vllm",
        "CTX_TOO_LONG",
        each(
            "\x1b[36mvllm-1  |\x1b[0m ",
            plain(
                "ValueError: The model's max seq len (24576) is larger than the maximum number of tokens that can be "
                "stored in KV cache (11008). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`"
            ),
        ),
    ),
    (
        "vllm",
        "GPU_MEMORY_TAKEN",
        core_error(
            "ValueError: Free memory on device (9.6/47.4 GiB) on startup is less than desired GPU memory utilization "
            "(0.9, 42.6 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
        ),
    ),
    (
        "sglang",
        "UNBALANCED_GPUS",
        each(
            "2026-04-01T08:00:02.000000000Z ",
            crash(
                "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
                "pre_model_load_memory=46.2, local_gpu_memory=9.7, local_gpu_memory * 0.9=8.73"
            ),
        ),
    ),
    (
        "vllm",
        "OOM_GPU",
        core_error(
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.50 GiB. GPU 2 has a total capacity of "
            "191.98 GiB of which 816.00 MiB is free."
        ),
    ),
    (
        "llamacpp",
        "OOM_GPU",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9216.00 MiB on device 1: cudaMalloc failed: out of "
        "memory\nggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 9663676416",
    ),
    (
        "sglang",
        "HOST_OOM_KILLED",
        "Apr 01 08:00:02 node-3 systemd[1]: llm.service: A process of this unit has been killed by the OOM killer.\n"
        "Apr 01 08:00:03 node-3 systemd[1]: llm.service: Main process exited, code=killed, status=9/KILL\n"
        "Apr 01 08:00:03 node-3 systemd[1]: llm.service: Failed with result 'oom-kill'.",
    ),
    (
        "vllm",
        "HOST_OOM_KILLED",
        "Apr 01 08:00:03 n3 systemd[1]: llm.service: Main process exited, code=killed, status=9/KILL",
    ),
    ("vllm", "HOST_OOM_KILLED", "INFO 04-01 08:00:01 [x.py:1] loading\nllm-1 exited with code 137"),
    (
        "vllm",
        "SEGFAULT",
        "Apr 01 08:00:03 n3 systemd[1]: llm.service: Main process exited, code=dumped, status=11/SEGV",
    ),
    (
        "sglang",
        "HOST_OOM_KILLED",
        "[2026-04-01 08:00:02] Rank 0 scheduler is dead. Please check if there are relevant logs.\n"
        "[2026-04-01 08:00:03] Exit code: -9",
    ),
    # GPU, driver, ROCm
    (
        "vllm",
        "DRIVER_MISMATCH",
        plain(
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display "
            "driver / cuda driver combination"
        ),
    ),
    ("vllm", "FABRIC_MANAGER", plain("RuntimeError: Unexpected error. Error 802: system not yet initialized")),
    ("sglang", "DRIVER_TOO_OLD", plain("RuntimeError: CUDA driver version is insufficient for CUDA runtime version")),
    ("sglang", "KERNEL_ARCH_UNSUPPORTED", crash("RuntimeError: HIP error: invalid device function")),
    (
        "vllm",
        "KERNEL_ARCH_UNSUPPORTED",
        core_error("RuntimeError: hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"),
    ),
    (
        "llamacpp",
        "KERNEL_ARCH_UNSUPPORTED",
        "rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal seek for GPU arch : "
        "gfx1036",
    ),
    ("sglang", "NO_GPU", plain("RuntimeError: No HIP GPUs are available")),
    (
        "vllm",
        "NO_GPU",
        plain(
            "ValueError: Current node has no GPU available. current_node_resource={'CPU': 8}. The engine cannot start"
        ),
    ),
    (
        "sglang",
        "NO_GPU",
        "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object "
        "file: no such file or directory: unknown",
    ),
    (
        "sglang",
        "PTX_TOOLCHAIN",
        crash("RuntimeError: Triton Error [CUDA]: the provided PTX was compiled with an unsupported toolchain."),
    ),
    # ranks and transfer
    ("vllm", "NCCL_ERROR", core_error("RuntimeError: NCCL Error 3: internal error - please report this issue")),
    (
        "sglang",
        "P2P_UNAVAILABLE",
        crash(
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:3690, unhandled cuda error\n"
            "Cuda failure 'peer access is not supported between these two devices'"
        ),
    ),
    ("sglang", "KV_TRANSFER", crash("RuntimeError: Mooncake Transfer Engine initialization failed.")),
    (
        "sglang",
        "KV_TRANSFER",
        crash(
            "KVTransferError: KVTransferError(bootstrap_room=77): remote mooncake session 10.0.0.1:1234 is not alive"
        ),
    ),
    ("vllm", "KV_TRANSFER", core_error("nixl_cu12._bindings.nixlBackendError: NIXL_ERR_BACKEND")),
    (
        "sglang",
        "INTERNAL_PORT_IN_USE",
        crash(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
            "port: 29511, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
        ),
    ),
    # environment
    ("vllm", "WRONG_ARCHITECTURE", "exec /usr/local/bin/vllm: exec format error"),
    ("llamacpp", "WRONG_ARCHITECTURE", "bash: ./llama-server: cannot execute binary file: Exec format error"),
    ("sglang", "ABI_MISMATCH", plain("ImportError: \n[sgl_kernel] CRITICAL: Could not load any common_ops library!")),
    ("vllm", "ENGINE_NOT_INSTALLED", plain("ModuleNotFoundError: No module named 'vllm._C'")),
    ("vllm", "BUILD_TOOL_MISSING", core_error("RuntimeError: Failed to find C compiler. Please specify via CC")),
    (
        "sglang",
        "PORT_PERMISSION",
        "ERROR:    [Errno 13] error while attempting to bind on address ('::', 80): permission denied",
    ),
    # models and flags
    (
        "llamacpp",
        "MODEL_UNSUPPORTED",
        "0.00.512.100 E llama_model_load: error loading model: unknown model architecture: 'zeta9'\n"
        "0.00.513.000 E srv    load_model: failed to load model, '/m/z.gguf'",
    ),
    (
        "llamacpp",
        "FLAG_BAD_VALUE",
        'error while handling argument "--cache-type-k": Unsupported cache type: q9\n\nusage:',
    ),
    (
        "vllm",
        "FLAG_AMBIGUOUS",
        "vllm serve: error: ambiguous option: --max could match --max-model-len, --max-num-seqs",
    ),
    (
        "vllm",
        "TRUST_REMOTE_CODE",
        plain("ValueError: Loading /m requires you to execute the configuration file. Set `trust_remote_code=True`"),
    ),
]


@pytest.mark.parametrize(("name", "code", "log"), FIELD, ids=[f"{n}-{k[0]}-{k[1]}" for n, k in enumerate(FIELD)])
def test_a_failure_of_the_field_is_told_by_its_kind(name: str, code: str, log: str) -> None:
    verdict = judge(name, log)
    assert verdict is not None
    assert verdict.code == code
    assert verdict.sentence
    assert "?" not in verdict.sentence
    assert verdict.next_action
    assert verdict.evidence


HEALTHY: dict[str, tuple[str, str]] = {
    "a killed request is no killed server": ("sglang", "[2026-04-01 08:00:02] request 7 was killed by the client"),
    "a container that ended well": ("vllm", "llm-1 exited with code 0"),
    "a state that says no": ("vllm", '{"OOMKilled": false, "ExitCode": 0}'),
    "a transfer that works": ("sglang", "[2026-04-01 08:00:02] Mooncake transfer engine is ready"),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_the_same_words_of_a_server_that_lives_are_no_failure(name: str) -> None:
    engine, log = HEALTHY[name]
    assert judge(engine, log) is None


WAYS: dict[str, Callable[[str], str]] = {
    "compose": lambda log: each("llm-1  | ", log),
    "kubernetes": lambda log: each("[pod/llm-0/main] ", log),
    "the journal": lambda log: each("Apr 01 08:00:02 n3 llm[7]: ", log),
    "colour": lambda log: "\n".join(f"\x1b[31m{line}\x1b[0m" for line in log.split("\n")),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_stands_before_the_lines_changes_no_verdict(way: str) -> None:
    for name, code, log in FIELD:
        if log.startswith(("Apr ", "\x1b", "2026-", "llm-1")) or "\nllm-1" in log:
            continue
        verdict = judge(name, WAYS[way](log))
        assert verdict is not None, (name, code)
        assert verdict.code == code

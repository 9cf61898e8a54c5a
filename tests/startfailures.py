"""Starts that failed, retold: engine, log, and what a verdict must say; and texts of failures by kind."""

from __future__ import annotations

from failurelogs import HIT, READY, SIGQUIT, TRACEBACK, core_error

SGLANG = {
    "spec_without_buffers": (
        "[2026-04-01 08:00:01] server_args=ServerArgs(model_path='/weights/hybrid-35b', tp_size=2)\n"
        + TRACEBACK
        + "ValueError: Speculative decoding for Qwen3NextForCausalLM is not compatible with radix cache when using "
        "--mamba-scheduler-strategy no_buffer. To use radix cache with speculative decoding, please use "
        "--mamba-scheduler-strategy extra_buffer and set SGLANG_ENABLE_SPEC_V2=1.",
        "FLAG_SPEC_NEEDS_EXTRA_BUFFER",
        {"arch": "Qwen3NextForCausalLM"},
        "args",
    ),
    "strategy_on_plain_model": (
        READY + "[2026-04-01 08:00:09 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/srv/sgl/managers/scheduler.py", line 77, in loop\n'
        "    slot = batch.kv.mamba_ping_pong_track_buffer[row].item()\n"
        "TypeError: 'NoneType' object is not subscriptable",
        "FLAG_MAMBA_ON_NON_HYBRID",
        {},
        "ready",
    ),
    "track_interval": (
        "AssertionError: mamba_track_interval 6 must be greater than or equal to speculative_num_draft_tokens 12",
        "FLAG_TRACK_INTERVAL",
        {"interval": 6, "draft": 12, "smallest": 12},
        "args",
    ),
    "reserve_explains_more_free_than_asked": (
        "[2026-04-01 08:00:09 TP0] Allocating 60.00 GB host memory for hierarchical KV cache.\n"
        "ValueError: Not enough host memory available. Requesting 60.00 GB but only have 63.41 GB free. "
        "Please reduce the size of the hierarchical cache.",
        "HOST_MEM_RESERVE",
        {"asked_gb": 60.0, "free_gb": 63.41, "usable_gb": 53.41, "suggested_gb": 53},
        "memory",
    ),
    "reserve_already_taken_off": (
        HIT + "ValueError: Not enough host memory available. Requesting 150.00 GB but only have 92.31 GB free. "
        "Please reduce the size of the hierarchical cache." + SIGQUIT,
        "HOST_MEM_RESERVE",
        {"usable_gb": 92.31, "suggested_gb": 92},
        "memory",
    ),
    "gpu_oom_with_host_cache": (
        "[2026-04-01 08:00:01] server_args=ServerArgs(model_path='/m', enable_hierarchical_cache=True, "
        "mem_fraction_static=0.94)\n"
        + HIT
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 768.00 MiB. GPU 1 has a total capacity of "
        "79.11 GiB of which 601.50 MiB is free.",
        "OOM_HICACHE_HEADROOM",
        {"gpu": 1, "shortfall_mib": 166.5, "mem_fraction": 0.94},
        "args",
    ),
    "compiler_behind_the_memory_advice": (
        "[2026-04-01 08:00:08] Capture cuda graph begin. This can take up to several minutes. avail mem=9.10 GB\n"
        "Exception: Capture cuda graph failed: Internal Triton PTX codegen error:\n"
        "ptxas fatal   : Value 'sm_1\n03a' is not defined for option 'gpu-name'\n"
        "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
        "KERNEL_ARCH_UNSUPPORTED",
        {"arch": "sm_103"},
        "capture",
    ),
    "capture_that_really_is_memory": (
        HIT + "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 47.41 GiB of which 1.25 GiB is free.\nPossible solutions:\n1. set --mem-fraction-static",
        "OOM_GRAPH_CAPTURE",
        {"shortfall_mib": 768.0},
        "capture",
    ),
    "kernel_killed_the_scheduler": (
        "[2026-04-01 08:00:03 TP3] Load weight begin. avail mem=101.10 GB\n"
        "[2026-04-01 08:04:40 TP3] Rank 3 scheduler died (exit code: -9)",
        "HOST_OOM_KILLED",
        {"rank": 3, "status": -9},
        "load",
    ),
    "build_tool_missing": (
        TRACEBACK + "FileNotFoundError: [Errno 2] No such file or directory: '/opt/cuda/bin/nvcc'",
        "BUILD_TOOL_MISSING",
        {"tool": "nvcc"},
        "args",
    ),
    "mixed_backends_under_mtp": (
        READY + HIT + "AttributeError: 'HybridAttnBackend' object has no attribute "
        "'update_mamba_state_after_mtp_verify'" + SIGQUIT,
        "KNOWN_BUG_HICACHE_MTP",
        {},
        "ready",
    ),
    "restarted_by_a_supervisor": (
        "[TP1] Allocating 20.01 GB host memory for hierarchical KV cache.\n"
        "[TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        "RuntimeError: Destination indices must be a CUDA tensor\n"
        "[TP1] Allocating 20.01 GB host memory for hierarchical KV cache.",
        "CRASH_LOOP",
        {"restarts": 1, "cause": "KNOWN_BUG_HICACHE_HYBRID"},
        "memory",
    ),
    "gpus_not_equally_free": (
        HIT + "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "pre_model_load_memory=21.1, local_gpu_memory=23.4",
        "UNBALANCED_GPUS",
        {},
        "distributed",
    ),
    "underscored_flag_after_a_long_usage": (
        "usage: launch_server.py [-h] --model-path MODEL_PATH [--log-requests]\n"
        + "".join(f"                        [--option-{n} VALUE]\n" for n in range(300))
        + "launch_server.py: error: unrecognized arguments: --log_requests",
        "FLAG_UNRECOGNIZED",
        {"flag": "--log_requests", "nearest": "--log-requests"},
        "args",
    ),
    "port_taken_though_ready_was_printed": (
        "[2026-04-01 08:00:03] INFO:     Application startup complete.\n"
        "[2026-04-01 08:00:04] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30077): "
        "address already in use\n" + READY,
        "PORT_IN_USE",
        {"port": 30077},
        "http",
    ),
    "running_on_the_processor": (
        "Warning: No accelerator (CUDA, XPU, HPU) is available. - Falling back to CPU\nAuto-configed device: cpu\n",
        "RUNNING_ON_CPU",
        {},
        "args",
    ),
    "no_kv_memory": (
        "[2026-04-01 08:00:05] Load weight end. type=Qwen3ForCausalLM, avail mem=1.02 GB\n"
        + HIT
        + "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
        + SIGQUIT,
        "NO_KV_MEMORY",
        {},
        "memory",
    ),
    "context_beyond_the_model": (
        TRACEBACK + "ValueError: Warning: User-specified context_length (90000) is greater than the derived "
        "context_length (32768). This may lead to incorrect model outputs or CUDA errors.",
        "CTX_TOO_LONG",
        {"asked": 90000, "limit": 32768},
        "args",
    ),
    "watchdog": (
        "[2026-04-01 08:00:05 DP2 TP1] Pyspy failed to dump PID 88. Error: /bin/bash: line 1: py-spy: command not "
        "found\n"
        "[2026-04-01 08:00:05 DP2 TP1] Watchdog timeout (self.watchdog_timeout=240)\nKilled",
        "WATCHDOG_KILLED",
        {"timeout_s": 240, "process": "DP2 TP1"},
        "args",
    ),
}

VLLM = {
    "more_sequences_than_state_blocks": (
        "(Worker_TP0 pid=41) ERROR 04-01 08:00:04 [multiproc_executor.py:949] ValueError: max_num_seqs (512) exceeds "
        "available Mamba cache blocks (201). Each decode sequence requires one Mamba cache block.\n"
        "(EngineCore pid=40) RuntimeError: Worker failed with error 'max_num_seqs (512) exceeds available Mamba cache "
        "blocks (201). ...', please check the stack trace above for the root cause",
        "MAMBA_BLOCKS_LT_MAX_SEQS",
        {"max_num_seqs": 512, "blocks": 201},
        "memory",
    ),
    "nothing_left_for_the_cache": (
        core_error(
            "EngineCore failed to start.\nTraceback (most recent call last):\n"
            '  File "/srv/v/kv_cache_utils.py", line 699, in check\n'
            '    raise ValueError("No available memory for the cache blocks. "\n'
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine."
        ),
        "NO_KV_MEMORY",
        {},
        "memory",
    ),
    "context_does_not_fit": (
        "(EngineCore_DP0 pid=9) ValueError: To serve at least one request with the models's max seq len (131072), "
        "(18.0 GiB KV cache is needed, which is larger than the available KV cache memory (5.40 GiB). Based on the "
        "available memory, the estimated maximum model length is 39312. Try increasing",
        "CTX_TOO_LONG",
        {"fits": 39312, "needed_gib": 18.0, "available_gib": 5.4, "shortfall_gib": 12.6},
        "memory",
    ),
    "context_does_not_fit_and_no_estimate": (
        core_error(
            "ValueError: To serve at least one request with the model's max seq len (65536), (8.0 GiB KV cache is "
            "needed, "
            "which is larger than the available KV cache memory (2.0 GiB). Try increasing `gpu_memory_utilization`."
        ),
        "CTX_TOO_LONG",
        {"fits": 16384},
        "memory",
    ),
    "oom_while_capturing": (
        "(EngineCore pid=5) INFO 04-01 08:00:02 [kv_cache_utils.py:853] GPU KV cache size: 70,112 tokens\n"
        "Capturing CUDA graphs (decode, FULL):  40%|####      | 14/35 [00:02<00:03,  6.10it/s]\n"
        "(EngineCore pid=5) ERROR 04-01 08:00:09 [core.py:1195] torch.OutOfMemoryError: CUDA out of memory. Tried to "
        "allocate 210.00 MiB. GPU 0 has a total capacity of 31.36 GiB of which 88.75 MiB is free.",
        "OOM_GRAPH_CAPTURE",
        {"shortfall_mib": 121.25},
        "capture",
    ),
    "port_taken_after_startup_complete": (
        "INFO:     Started server process [811]\nINFO:     Application startup complete.\n"
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8010): address already in use\n"
        "INFO:     Application shutdown complete.",
        "PORT_IN_USE",
        {"port": 8010},
        "http",
    ),
    "internal_port": (
        "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:5603')",
        "INTERNAL_PORT_IN_USE",
        {"port": 5603, "addr": "tcp://127.0.0.1:5603"},
        "args",
    ),
    "driver_behind_the_build": (
        "(EngineCore pid=5) ERROR 04-01 08:00:09 [core.py:1202] RuntimeError: The NVIDIA driver on your system is too "
        "old (found version 12020). Please update your GPU driver by down\nloading and installing a new version",
        "DRIVER_TOO_OLD",
        {"found": 12020, "driver_cuda": "12.2"},
        "args",
    ),
    "directory_taken_for_a_hub_name": (
        TRACEBACK + "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
        "'namespace/repo_name': '/weights/tpyo/31b'. Use `repo_type` argument if needed.",
        "MODEL_PATH_MISSING",
        {"path": "/weights/tpyo/31b"},
        "args",
    ),
    "failed_and_nothing_else_said": (
        "(EngineCore pid=90) ERROR 04-01 08:00:09 [core.py:1195] EngineCore failed to start.",
        "FAILED_BUT_HOLDING_GPU",
        {},
        "args",
    ),
    "workers_silent": (
        "\n".join(
            f"(EngineCore_DP0 pid=6) INFO 04-01 08:0{n}:00 [shm_broadcast.py:466] No available shared memory broadcast "
            "block found in 60 seconds. This typically happens when some processes are hanging"
            for n in range(4)
        ),
        "WORKER_NOT_RESPONDING",
        {"repeats": 4, "silent_s": 240},
        "args",
    ),
    "worker_speaks_before_its_parents": (
        "(Worker_TP3 pid=71) ERROR 04-01 08:00:07 [multiproc_executor.py:772] ValueError: rope scaling of kind zeta "
        "is not implemented\n"
        "(EngineCore_DP0 pid=70) ERROR 04-01 08:00:08 [core.py:866] EngineCore failed to start.\n"
        "(EngineCore_DP0 pid=70) Exception: WorkerProc initialization failed due to an exception in a background "
        "process. See stack trace for root cause.\n"
        "(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {}",
        "ROOT_CAUSE_FIRST",
        {"process": "Worker_TP3", "exception": "ValueError"},
        "args",
    ),
    "somebody_else_holds_the_gpu": (
        core_error(
            "ValueError: Free memory on device cuda:0 (9.50/79.11 GiB) on startup is less than desired GPU memory "
            "utilization (0.92, 72.78 GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
            "processes."
        ),
        "GPU_MEMORY_TAKEN",
        {"held_gib": 69.61, "shortfall_gib": 63.28},
        "memory",
    ),
    "colon_before_the_toolkit": (
        "/bin/sh: 1: :/opt/cuda-13/bin/nvcc: not found\nninja: build stopped: subcommand failed.\n"
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 127.",
        "ENV_MALFORMED",
        {"value": ":/opt/cuda-13/bin/nvcc"},
        "args",
    ),
    "killed_from_outside": (
        "(APIServer pid=7) WARNING 04-01 08:00:06 [core_client.py:1] [shutdown] MPClient: engine core exited "
        "unexpectedly; starting cleanup\n"
        "(APIServer pid=7) ERROR 04-01 08:00:06 [async_llm.py:9] vllm.v1.engine.exceptions.EngineDeadError: EngineCore "
        "encountered an issue. See stack trace (above) for the root cause.",
        "ENGINE_CORE_GONE",
        {},
        "args",
    ),
}

LLAMACPP = {
    "kernels_newer_than_the_driver": (
        "2026-04-01T08:00:07+02:00 llm.server[16376]: /src/ggml-cuda.cu:88: CUDA error\n"
        "2026-04-01T08:00:07+02:00 llm.server[16376]: CUDA error: the provided PTX was compiled with an unsupported "
        "toolchain.\n"
        "2026-04-01T08:00:07+02:00 llm.server[16376]:   current device: 0, in function compute at ggml-cuda.cu:12",
        "PTX_TOOLCHAIN",
        {},
        "args",
    ),
    "port_taken": (
        "0.01.102.007 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8099",
        "PORT_IN_USE",
        {"port": 8099},
        "http",
    ),
    "no_such_file": (
        "gguf_init_from_file: failed to open GGUF file '/gguf/absent.gguf' (No such file or directory)\n"
        "llama_model_load: error loading model: llama_model_loader: failed to load model from /gguf/absent.gguf\n"
        "main: exiting due to model loading error",
        "MODEL_PATH_MISSING",
        {"path": "/gguf/absent.gguf"},
        "load",
    ),
    "weights_beyond_the_gpu": (
        "llama_model_loader: loaded meta data with 36 key-value pairs\n"
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 30111.50 MiB on device 1: cudaMalloc failed: out of "
        "memory\nllama_model_load: error loading model: unable to allocate CUDA1 buffer\n"
        "main: exiting due to model loading error",
        "OOM_LOADING",
        {"gpu": 1, "asked_mib": 30111.5},
        "load",
    ),
    "flag_was_removed": (
        "error: the argument has been removed. use --spec-draft-n-max instead",
        "FLAG_RENAMED",
        {"successor": "--spec-draft-n-max"},
        "args",
    ),
    "unknown_architecture": (
        "llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'zeta4'\n"
        "main: exiting due to model loading error",
        "MODEL_UNSUPPORTED",
        {"arch": "zeta4"},
        "load",
    ),
}

CASES = [
    (f"{name}-{label}", name, *case)
    for name, cases in (("sglang", SGLANG), ("vllm", VLLM), ("llamacpp", LLAMACPP))
    for label, case in cases.items()
]

KINDS = [
    ("vllm", "MODULE_MISSING", TRACEBACK + "ModuleNotFoundError: No module named 'flash_zeta'"),
    ("vllm", "ENGINE_NOT_INSTALLED", "/srv/py/bin/python: No module named vllm"),
    ("vllm", "ABI_MISMATCH", TRACEBACK + "ImportError: /srv/_C.abi3.so: undefined symbol: _ZN3c106detail14torch"),
    ("vllm", "ABI_MISMATCH", TRACEBACK + "ImportError: /lib/libc.so.6: version `GLIBC_2.38' not found"),
    (
        "vllm",
        "LIBRARY_MISSING",
        TRACEBACK + "ImportError: libnvrtc.so.13: cannot open shared object file: No such file",
    ),
    ("vllm", "PACKAGE_MISMATCH", TRACEBACK + "ImportError: cannot import name 'Zeta' from 'transformers'"),
    (
        "vllm",
        "TRUST_REMOTE_CODE",
        TRACEBACK + "ValueError: The repository `a/b` contains custom code which must be run",
    ),
    (
        "vllm",
        "HF_GATED",
        TRACEBACK + "OSError: You are trying to access a gated repo.\nMake sure to have access to it.",
    ),
    ("vllm", "HF_AUTH", TRACEBACK + "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://x"),
    (
        "vllm",
        "HF_UNREACHABLE",
        TRACEBACK + "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
    ),
    ("vllm", "WEIGHTS_CORRUPT", core_error("safetensors_rust.SafetensorError: Error while deserializing header")),
    ("vllm", "MODEL_INCOMPLETE", TRACEBACK + "OSError: /m does not appear to have a file named config.json. Checkout"),
    ("vllm", "TOKENIZER", TRACEBACK + "OSError: Can't load tokenizer for '/m'. If you were trying to load it from"),
    (
        "vllm",
        "QUANT_MISMATCH",
        TRACEBACK + "ValueError: Quantization method specified in the model config (awq) does "
        "not "
        "match the quantization method specified in the `quantization` argument (gptq).",
    ),
    (
        "vllm",
        "QUANT_UNSUPPORTED_GPU",
        TRACEBACK + "ValueError: The quantization method fp8 is not supported for the "
        "current GPU. Minimum capability: 89. Current capability: 75.",
    ),
    (
        "vllm",
        "QUANT_TP",
        core_error(
            "ValueError: The output_size of gate's and up's weight = 96 is not divisible by "
            "weight quantization block_n = 128.",
            "Worker_TP5 pid=9",
        ),
    ),
    (
        "vllm",
        "DTYPE_UNSUPPORTED",
        TRACEBACK + "ValueError: Bfloat16 is only supported on GPUs with compute "
        "capability of "
        "at least 8.0. Your Tesla V100 GPU has compute capability 7.0.",
    ),
    (
        "vllm",
        "TP_NOT_DIVISIBLE",
        TRACEBACK + "pydantic_core._pydantic_core.ValidationError: 1 validation error for "
        "VllmConfig\n  Value error, Total number of attention heads (20) must be divisible by tensor parallel size "
        "(8).",
    ),
    (
        "vllm",
        "CTX_TOO_LONG",
        TRACEBACK + "pydantic_core._pydantic_core.ValidationError: 1 validation error for "
        "ModelConfig"
        "\n  Value error, User-specified max_model_len (99000) is greater than the derived max_model_len "
        "(max_position_embeddings=4096.0 or model_max_length=None in model's config.json).",
    ),
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
    (
        "sglang",
        "HOST_MEM",
        HIT + "RuntimeError: [enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't "
        "allocate "
        "memory: you tried to allocate 999 bytes. Error code 12 (Cannot allocate memory)",
    ),
    ("sglang", "SEGFAULT", "Fatal Python error: Segmentation fault" + SIGQUIT),
    (
        "sglang",
        "INTERNAL_PORT_IN_USE",
        HIT + "torch.distributed.DistNetworkError: The server socket has failed to "
        "listen "
        "on any local network address. port: 29777, useIpv6: false, code: -98, name: EADDRINUSE, message: address in "
        "use",
    ),
    (
        "sglang",
        "NCCL_DUPLICATE_GPU",
        HIT + "torch.distributed.DistBackendError: NCCL error in: x.hpp:219, invalid "
        "usage\n"
        "Last error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 3b000",
    ),
    (
        "sglang",
        "TP_EXCEEDS_GPUS",
        HIT + "RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors might be",
    ),
    ("sglang", "KERNEL_ARCH_UNSUPPORTED", HIT + "RuntimeError: CUDA error: no kernel image is available for execution"),
    (
        "sglang",
        "MODEL_UNSUPPORTED",
        TRACEBACK + "KeyError: 'zeta'\n\nDuring handling of the above exception, another "
        "exception occurred:\n\n" + TRACEBACK + "ValueError: The checkpoint you are trying to load has model type "
        "`zeta` but "
        "Transformers does not recognize this architecture.",
    ),
    ("sglang", "GPU_ECC", HIT + "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("sglang", "COMMAND_NOT_FOUND", "bash: line 1: sglang: command not found"),
    (
        "sglang",
        "NO_STATE_MEMORY",
        HIT + "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state "
        "cache. Computed max_mamba_cache_size=-2",
    ),
    (
        "sglang",
        "FLAG_CONFLICT",
        TRACEBACK + "ValueError: The arguments enable-hierarchical-cache and "
        "disable-radix-cache "
        "are mutually exclusive and cannot be used at the same time.",
    ),
    (
        "llamacpp",
        "WEIGHTS_CORRUPT",
        "llama_model_load: error loading model: tensor 'blk.1.ffn' data is not within the "
        "file bounds, model is corrupted or incomplete\nmain: exiting due to model loading error",
    ),
    ("llamacpp", "FLAG_UNRECOGNIZED", "error: invalid argument: --zeta"),
    ("sglang", "NAME_RESOLUTION", TRACEBACK + "socket.gaierror: [Errno -2] Name or service not known"),
    ("vllm", "ENGINE_START_TIMEOUT", "TimeoutError: Timed out waiting for engine core processes to start. Waited 600s"),
    (
        "vllm",
        "TP_EXCEEDS_GPUS",
        core_error("ValueError: World size (8) is larger than the number of available GPUs (4)"),
    ),
    ("sglang", "HOST_OOM_KILLED", "Subprocess scheduler_0 (pid=42) crashed with exit code -9. Triggering SIGQUIT"),
    ("sglang", "ABORTED", "Subprocess scheduler_0 (pid=42) crashed with exit code -6. Triggering SIGQUIT"),
]

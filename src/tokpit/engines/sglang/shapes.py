"""SGLang's start-up and failure lines as shapes. Texts are the engine's own, releases 0.4.6 to 0.5.23."""

from __future__ import annotations

from tokpit.engines.logkit.table import Inside, Start, Table

_N = r"[-\d.]+"
_MEMORY = rf"(?:.*?mem usage=(?P<mem_usage_gb>{_N}?) GB)?"
_AVAIL = rf"(?:.*?avail mem=(?P<avail_mem_gb>{_N}?) GB)?"
_LATER_AVAIL = rf"(?=(?:.*?avail mem=(?P<avail_mem_gb>{_N}?) GB)?)"
_ELAPSED = rf"(?:.*?(?:elapsed=|Time elapsed: )(?P<elapsed_s>{_N}) s)?"

STARTS = (
    Start("milestone.dist_begin", "Init torch distributed begin"),
    Start("milestone.dist_end", "Init torch distributed ends.", _ELAPSED + _MEMORY),
    Start("milestone.dist_begin", "Init parallel begin"),  # the newest releases
    Start("milestone.dist_end", "Init parallel ends.", _ELAPSED + _MEMORY),
    Start("milestone.load_begin", "Load weight begin", _AVAIL),
    Start(
        "milestone.load_end",
        "Load weight end",
        rf"\.?(?: elapsed=(?P<elapsed_s>{_N}) s,)?(?: type=(?P<model_class>[^,\s]+))?{_LATER_AVAIL}{_MEMORY}",
    ),
    Start(
        "milestone.mamba_pool",
        "Mamba Cache is allocated.",
        rf"(?: max_mamba_cache_size: (?P<max_mamba_cache_size>\d+),)?(?: conv_state size: (?P<conv_state_gb>{_N}) ?GB)?"
        rf"(?:,? ssm_state size: (?P<ssm_state_gb>{_N}) ?GB)?"
        rf"(?:,? intermediate_ssm_state_cache size: (?P<intermediate_ssm_gb>{_N}) ?GB)?"
        rf"(?:,? intermediate_conv_window_cache size: (?P<intermediate_conv_gb>{_N}) ?GB)?",
    ),
    Start(
        "milestone.kv_post",
        "Post-capture KV sizing",
        r"(?:.*?dtype: (?P<dtype>[^,\s]+))?(?:.*?#tokens: (?P<kv_tokens>\d+))?"
        rf"(?:.*?KV size: (?P<kv_size_gb>{_N}) ?GB)?{_AVAIL}",
    ),
    Start("milestone.pool_end", "Memory pool end", _AVAIL),
    Start("milestone.capture_begin", "Capture cuda graph begin", _AVAIL),
    Start("milestone.capture_end", "Capture cuda graph end", rf"{_ELAPSED}{_LATER_AVAIL}{_MEMORY}"),
    Start("milestone.capture_begin", "Capture ", rf"(?P<capture_target>[\w -]+?) (?:CUDA )?graph begin{_AVAIL}"),
    Start(
        "milestone.capture_end",
        "Capture ",
        rf"(?P<capture_target>[\w -]+?) (?:CUDA )?graph end{_ELAPSED}{_LATER_AVAIL}{_MEMORY}",
    ),
    Start("milestone.hicache_kv", "Allocating ", rf"(?P<host_gb>{_N}) GB host memory for hierarchical KV cache"),
    Start(
        "milestone.hicache_kv",
        "Allocating ",
        rf"(?P<pool_label>.{{1,60}}?) hierarchical KV host pool: (?P<host_tokens>\d+) tokens, (?P<host_gb>{_N}) GB",
    ),
    Start(
        "milestone.hicache_mamba",
        "Allocating ",
        rf"(?P<host_gb>{_N}) GB host memory for hierarchical Mamba cache"
        r"(?: \((?:(?P<host_state_slots>\d+) state slots, )?layout=(?P<layout>\w+)\))?",
    ),
    Start(
        "milestone.hicache_autosize",
        "HiCache auto-sizing: ",
        rf"ratio (?P<ratio_before>{_N}) -> (?P<ratio_after>{_N}); (?P<host_gib_per_rank>{_N}) GiB host memory per rank "
        rf"\(fraction (?P<fraction>{_N}), (?P<ranks_on_host>\d+) ranks on this host\)"
        rf"(?:, host pools (?P<host_pools_gib>[\d.]+?) GiB)?",
    ),
    Start(
        "milestone.limits",
        "max_total_num_tokens=",
        r"(?P<max_total_num_tokens>\d+)(?:.*?chunked_prefill_size=(?P<chunked_prefill_size>-?\d+))?"
        r"(?:.*?max_prefill_tokens=(?P<max_prefill_tokens>\d+))?"
        r"(?:.*?max_running_requests=(?P<max_running_requests>\d+))?(?:.*?context_len=(?P<context_len>\d+))?"
        rf"(?:.*?available_(?P<device>\w+)_mem=(?P<avail_mem_gb>{_N}?) GB)?",
    ),
    Start(
        "milestone.mamba_cap",
        "max_running_requests is capped to ",
        r"(?P<max_running_requests>\d+) by the mamba state cache "
        r"\(max_mamba_cache_size=(?P<max_mamba_cache_size>\d+), (?P<slots_per_request>\d+) state slots? per request\)",
    ),
    Start(
        "milestone.cap_reduced",
        "max_running_requests was reduced from the requested ",
        r"(?P<requested_reqs>\d+) to (?P<max_running_requests>\d+)",
    ),
    Start(
        "milestone.startup_timing",
        "Engine startup timings (s):",
        rf"(?:.*?load_weight=(?P<load_weight_s>{_N}))?(?:.*?kv_cache_allocation=(?P<kv_cache_allocation_s>{_N}))?"
        rf"(?:.*?scheduler_e2e=(?P<scheduler_e2e_s>{_N}))?(?:.*?cuda_graph=\{{(?P<cuda_graph_text>[^}}]*)\}})?"
        rf"(?:.*?tokenizer_e2e=(?P<tokenizer_e2e_s>{_N}))?",
    ),
    Start("milestone.http_up", "Uvicorn running on ", r"(?P<url>\S+)"),
    Start("milestone.ready", "The server is fired up and ready to roll"),
    Start("milestone.shutdown", "SIGTERM received", r".*"),
    Start("failure.draining", "Gracefully exiting...", r" Remaining number of requests (?P<remaining_requests>\d+)"),
    Start("failure.killed", "Killed", r"\s*$"),
)

_RETRACT = (
    r"#retracted_reqs: (?P<retracted_reqs>\d+)(?:, #aborted_retracted_reqs: (?P<aborted_reqs>\d+))?"
    r"(?:, #new_tokens_gained: (?P<new_tokens_gained>\d+))?(?:, #mamba_num_gained: (?P<mamba_num_gained>\d+))?"
    r"(?:, #new_token_ratio: (?P<new_token_ratio_before>[\d.]+) -> (?P<new_token_ratio_after>[\d.]+))?"
)

INSIDES = (
    Inside(
        "milestone.kv_pool",
        " is allocated. ",
        r"^(?P<pool_name>[\w .()-]{1,60}?) is allocated\.(?: dtype: (?P<dtype>[^,\s]+),)? #tokens: (?P<kv_tokens>\d+)"
        rf"(?:, K size: (?P<k_size_gb>{_N}) ?GB)?(?:, V size: (?P<v_size_gb>{_N}) ?GB)?"
        rf"(?:, KV size: (?P<kv_size_gb>{_N}) ?GB)?",
    ),
    Inside("failure.retract", "#retracted_reqs: ", _RETRACT),
    Inside("failure.argparse", ": error: ", r"^(?!slurmstepd|srun:)[\w./ -]{1,120}: error: (?P<message>.*)"),
    Inside("failure.capture_fail", "Capture cuda graph failed", r"Capture cuda graph failed: ?(?P<message>.*)"),
    Inside(
        "failure.capture_fail",
        " graph failed: ",
        r"Capture (?P<capture_target>[\w -]{1,60}?) (?:CUDA )?graph failed: (?P<message>.*)",
    ),
    Inside(
        "failure.host_mem",
        "Not enough host memory available",
        r"Not enough host memory available\.(?: Requesting (?P<requested_gb>[\d.]+) GB but only have "
        r"(?P<free_gb>-?[\d.]+) GB free)?",
    ),
    Inside("failure.host_small", "The host memory should be larger than the device memory"),
    Inside(
        "failure.gpu_mem_mamba",
        "state cache",
        r"Not enough GPU memory for hybrid|Hybrid .{0,80}state cache is too small to serve",
    ),
    Inside(
        "failure.gpu_mem_kv",
        "mem-fraction-static",
        r"(?:Not enough memory\. Please try to increase --mem-fraction-static|Loaded weights leave no GPU memory)"
        r"(?:.*?mem.fraction.static=(?P<mem_fraction_static>[\d.]*\d))?",
    ),
    Inside(
        "failure.cuda_oom",
        "out of memory. Tried to allocate",
        r"out of memory\. Tried to allocate (?P<requested>[\d.]+ \w+)",
    ),
    Inside("failure.cuda_oom", "CUDA out of memory"),
    Inside("failure.cuda_oom", "HIP out of memory"),
    Inside("failure.cuda_oom", "CUDA error: out of memory"),
    Inside("failure.alloc_oom", "ut of memory", r"(?:Prefill|Decode) out of memory\.|even after retracting all"),
    Inside("failure.imbalance", "The memory capacity is unbalanced"),
    Inside("failure.port_bind", "error while attempting to bind on address"),
    Inside("failure.port_bind", "ddress already in use", r"\[Errno 98\]"),
    Inside("failure.port_wait", "in use", r"(?i)\bport (?P<port>\d+) is in use\. Waiting|Port is already in use"),
    Inside("failure.sched_crash", "Scheduler hit an exception"),
    Inside("failure.sched_crash", "hit an exception: Traceback"),
    Inside("failure.sigquit", "Received sigquit from a child process"),
    Inside("failure.sigquit", "SIGQUIT received"),
    Inside(
        "failure.sched_died",
        " scheduler d",
        r"Rank (?P<rank>\d+) scheduler died(?:.*?exit code: (?P<exit_code>-?\d+))?",
    ),
    Inside(
        "failure.sched_died", "is dead", r"Rank (?P<rank>\d+) scheduler is dead(?:.*?exit code: (?P<exit_code>-?\d+))?"
    ),
    Inside(
        "failure.subproc",
        "crashed with exit code",
        r"Subprocess (?P<process>\S+) \(pid=(?P<pid>\d+)\) crashed with exit code (?P<exit_code>-?\d+)",
    ),
    Inside(
        "failure.watchdog",
        "atchdog timeout (",
        r"(?:(?P<who>\w+) w|W)atchdog timeout \(self\.watchdog_timeout=(?P<timeout_s>\d+)[\d.]*"
        r"(?:, self\.soft=(?P<soft>\w+))?",
    ),
    Inside(
        "failure.health_fail",
        "Health check failed",
        r"Health check failed\.(?:.*?for last (?P<silent_s>\d+) seconds)?(?:.*?tic start time: (?P<tic_start>[\d:]+))?"
        r"(?:.*?last_heartbeat time: (?P<last_heartbeat>[\d:]+))?",
    ),
    Inside("failure.warmup_fail", "Initialization failed. warmup error", r"warmup error: ?(?P<message>.*)"),
    Inside("failure.nccl", "NCCL", r"DistBackendError|NCCL error|NCCL Error|NCCL communicator and retrieving"),
    Inside("failure.nccl", "Watchdog caught collective operation timeout"),
    Inside("failure.leak", "memory leak detected"),
    Inside("failure.queue_full", "The request queue is full"),
    Inside("failure.drop_host", "due to host memory pressure", r"write_back: .*dropped"),
    Inside(
        "failure.bad_config",
        "Error: ",
        r"^(?:[\w.]*\.)?(?:ValueError|AssertionError|NotImplementedError): (?P<message>"
        r"(?:The arguments? |Warning: User-specified |Speculative decoding|.{0,300}(?:--[a-z]|mutually exclusive"
        r"|not compatible|must be |should be |is not supported|greater than the derived|requires )).*)",
    ),
)

GATES = (
    "rror",
    "emory",
    "retract",
    "failed",
    "llocated",
    "in use",
    "xception",
    "igquit",
    "SIGQUIT",
    "scheduler d",
    "is dead",
    "exit code",
    "atchdog",
    "NCCL",
    "queue is full",
    "fraction",
    "state cache",
)

TABLE = Table(STARTS, INSIDES, GATES)

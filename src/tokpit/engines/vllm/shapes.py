"""vLLM's start-up and failure lines as shapes. Texts are the engine's own, releases 0.8.5 to 0.33."""

from __future__ import annotations

from tokpit.engines.logkit.table import Inside, Start, Table

_N = r"[\d.]+"
_TOOK = rf"(?P<elapsed_s>{_N}) s"

STARTS = (
    Start("milestone.version", "vLLM API server version ", r"(?P<engine_version>\S+)"),
    Start(
        "milestone.version", "vLLM server version ", r"(?P<engine_version>[^\s,]+)(?:, serving model (?P<model>\S+))?"
    ),
    Start("milestone.args", "non-default args: ", r"(?P<args_text>.*)"),
    Start("milestone.args", "args: Namespace(", r"(?P<args_text>.*)\)"),
    Start(
        "milestone.engine",
        "Initializing a V",
        r"(?P<engine_generation>\d) LLM engine \(v(?P<engine_version>[^)]+)\) with config: (?P<config_text>.*)",
    ),
    Start("milestone.dist", "vLLM is using nccl"),
    Start("milestone.dist", "world_size="),
    Start("milestone.dist", "rank ", r"\d+ in world size \d+"),
    Start("milestone.load_start", "Starting to load model ", r"(?P<model>.+?)(?:\.\.\.|$)"),
    Start("milestone.weights", "Loading weights took ", rf"(?P<elapsed_s>{_N}) seconds"),
    Start("milestone.drafter", "Loading drafter model"),
    Start(
        "milestone.model_mem",
        "Model loading took ",
        rf"(?P<model_gib>{_N}) GiB (?:memory )?and (?P<elapsed_s>{_N}) seconds",
    ),
    Start("milestone.compile_graph", "Compiling a graph for ", rf"(?P<compile_range>.+?) takes {_TOOK}"),
    Start(
        "milestone.compile_cached",
        "Directly load the compiled graph(s) for ",
        rf"(?P<compile_range>.+?) from the cache, took {_TOOK}",
    ),
    Start("milestone.compile_total", "torch.compile t", rf"(?:akes|ook) {_TOOK} in total"),
    Start("milestone.compile_begin", "Dynamo bytecode transform time: ", rf"{_TOOK}"),
    Start("milestone.kv_mem", "Available KV cache memory: ", rf"(?P<kv_gib>{_N}) GiB"),
    Start(
        "milestone.max_concurrency",
        "Maximum concurrency for ",
        rf"(?P<max_model_len>[\d,]+) tokens per request: (?P<max_concurrency>{_N})x",
    ),
    Start(
        "milestone.capture_done",
        "Graph capturing finished in ",
        rf"(?P<elapsed_s>\d+) secs, took (?P<graph_gib>{_N}) GiB",
    ),
    Start("milestone.engine_init", "init engine (", rf"[^)]*\) took (?P<elapsed_s>{_N}) s"),
    Start("milestone.listen", "Starting vLLM API server ", r"(?:(?P<api_server_index>\d+) )?on (?P<url>\S+)"),
    Start("milestone.listen", "Starting vLLM server on ", r"(?P<url>\S+)"),
    Start("milestone.http_up", "Uvicorn running on ", r"(?P<url>\S+)"),
    Start("milestone.server_process", "Started server process ", r"\[(?P<pid>\d+)\]"),
    Start("milestone.ready", "Application startup complete."),
    Start("milestone.shutdown", "[shutdown]", r" (?P<message>.*)"),
    Start("failure.killed", "Killed", r"\s*$"),
)

INSIDES = (
    Inside(
        "milestone.kv_size",
        " KV cache size: ",
        r"(?P<kv_device>[A-Z]\w*) KV cache size: (?P<kv_tokens>[\d,]*\d) tokens"
        rf"(?:, Maximum concurrency for (?P<max_model_len>[\d,]+) tokens per request: (?P<max_concurrency>{_N})x)?",
    ),
    Inside("milestone.version", "  version ", r"[▄█▀ ]+ version (?P<engine_version>\S+)"),
    Inside(
        "failure.low_free",
        "Free memory on device",
        rf"Free memory on device (?P<device>\S+) \((?P<free_gib>{_N})/(?P<total_gib>{_N}) GiB\) on startup is less "
        rf"than desired GPU memory utilization \((?P<utilization>{_N}), (?P<wanted_gib>{_N}) GiB\)",
    ),
    Inside("failure.argparse", ": error: ", r"^(?!slurmstepd|srun:)(?P<prog>[\w./ -]{1,120}): error: (?P<message>.*)"),
    Inside(
        "failure.mamba_blocks",
        "exceeds available Mamba cache blocks",
        r"max_num_seqs \((?P<max_num_seqs>\d+)\) exceeds available Mamba cache blocks \((?P<mamba_blocks>\d+)\)",
    ),
    Inside(
        "failure.oom",
        "out of memory. Tried to allocate",
        r"out of memory\. Tried to allocate (?P<requested>[\d.]+ \w+)",
    ),
    Inside("failure.oom", "CUDA out of memory"),
    Inside("failure.oom", "HIP out of memory"),
    Inside("failure.oom", "not enough GPU memory", r"Failed to load model - not enough GPU memory"),
    Inside("failure.no_kv", "No available memory for the cache blocks"),
    Inside(
        "failure.kv_too_small",
        "KV cache is needed",
        r"max seq len \((?P<max_model_len>\d+)\), \((?P<needed_gib>[\d.]+) GiB KV cache is needed"
        r"(?:.*?available KV cache memory \((?P<available_gib>-?[\d.]+) GiB\))?"
        r"(?:.*?estimated maximum model length is (?P<estimated_max_model_len>\d+))?",
    ),
    Inside(
        "failure.mml_gt_cfg",
        "greater than the derived max_model_len",
        r"User-specified max_model_len \((?P<max_model_len>\d+)\) is greater than the derived",
    ),
    Inside("failure.port", "ddress already in use", r"\[Errno 98\]|ZMQError"),
    Inside("failure.port", "error while attempting to bind on address"),
    Inside("failure.bad_path", "HFValidationError"),
    Inside("failure.engine_start", "EngineCore failed to start"),
    Inside(
        "failure.engine_init_fail",
        "Engine core initialization failed",
        r"Engine core initialization failed\.(?:.*?Failed core proc\(s\): (?P<failed_procs_text>.*))?",
    ),
    Inside(
        "failure.worker_dead",
        "died unexpectedly",
        r"(?:Worker proc )?(?P<worker>\S+) died unexpectedly(?: \(exit code: (?P<exit_code>-?\d+)\))?",
    ),
    Inside("failure.engine_fatal", "EngineCore encountered a fatal error"),
    Inside("failure.engine_dead", "EngineDeadError"),
    Inside("failure.engine_dead", "engine core exited unexpectedly"),
    Inside(
        "failure.shm_wait",
        "No available shared memory broadcast block found",
        r"No available shared memory broadcast block found in (?P<silent_s>\d+) seconds?",
    ),
    Inside("failure.ready_timeout", "Timed out waiting for engine"),
    Inside("failure.rpc_timeout", "RPC call to ", r"RPC call to (?P<method>\w+) timed out"),
    Inside(
        "failure.nccl",
        "ccl",
        r"ncclSystemError|ncclInternalError|ncclUnhandledCudaError|ncclRemoteError|DistBackendError",
    ),
    Inside("failure.nccl", "NCCL error"),
    Inside("failure.nccl", "Watchdog caught collective operation timeout"),
    Inside("failure.shm_space", "Insufficient space in ", r"Insufficient space in \S+"),
)

GATES = (
    "rror",
    "xception",
    "emory",
    "ache",
    "  version",
    "in use",
    "seq len",
    "max_model_len",
    "failed",
    "unexpectedly",
    "EngineDead",
    "atchdog",
    "RPC call",
    "ccl",
    "NCCL",
    "imed out",
    "nsufficient",
)

TABLE = Table(STARTS, INSIDES, GATES)

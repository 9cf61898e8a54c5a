"""Why a vLLM server failed: its signatures and what its log looks like. Texts are those of releases 0.8.5 to 0.33."""

from __future__ import annotations

import re

from tokpit.domain.verdict import Fix
from tokpit.engines.verdictkit.course import Dialect
from tokpit.engines.verdictkit.exits import by_exit, by_status
from tokpit.engines.verdictkit.flags import FLAGS
from tokpit.engines.verdictkit.shared_gpu import CPU_FALLBACK, GPU
from tokpit.engines.verdictkit.shared_hub import MODEL
from tokpit.engines.verdictkit.shared_nccl import INTERNAL_PORTS, RANKS
from tokpit.engines.verdictkit.shared_python import PYTHON
from tokpit.engines.verdictkit.shared_system import HTTP_PORT, SYSTEM
from tokpit.engines.verdictkit.signature import Rank, Signature, sig
from tokpit.engines.vllm import failure_notes as notes

CAPACITY: tuple[Signature, ...] = (
    sig(
        "MAMBA_BLOCKS_LT_MAX_SEQS",
        r"max_num_seqs \((?P<max_num_seqs>\d+)\) exceeds available Mamba cache blocks \((?P<blocks>\d+)\)",
        "max_num_seqs {max_num_seqs} is more than the {blocks} state blocks that fit.",
        "Start with --max-num-seqs {blocks}, or lower max-model-len, or raise gpu-memory-utilization.",
        arithmetic="{max_num_seqs} > {blocks}",
        phase="memory",
        refine=notes.state_blocks,
    ),
    sig(
        "CTX_TOO_LONG",
        r"To serve at least one request with the models?'s? max seq len \((?P<asked>\d+)\),? "
        r"?\(?(?P<needed_gib>[\d.]+) GiB KV cache is needed.*?available KV cache memory "
        r"\((?P<available_gib>[\d.]+) GiB\)(?:.*?estimated maximum model length is (?P<fits>\d+))?",
        "A context of {asked} tokens does not fit the KV memory.",
        phase="memory",
        refine=notes.context_fits,
    ),
    sig(
        "CTX_TOO_LONG",
        r"User-specified max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len "
        r"\((?:[\w.]+=)?(?P<limit>\d+)",
        "The context asked for ({asked}) is longer than the model's own ({limit}).",
        "Start with --max-model-len {limit}, or leave it out.",
        arithmetic="{asked} > {limit}",
        phase="args",
        refine=notes.context_limit,
    ),
    sig(
        "CTX_TOO_LONG",
        r"model's max seq len \((?P<asked>\d+)\) is larger than the maximum number of tokens that can be stored in "
        r"KV cache \((?P<fits>\d+)\)",
        "A context of {asked} tokens does not fit the KV cache of {fits} tokens.",
        "Start with --max-model-len {fits}.",
        arithmetic="{asked} > {fits}",
        phase="memory",
        refine=notes.context_fits,
    ),
    sig(
        "BATCHED_TOKENS_LT_CTX",
        r"max_num_batched_tokens \((?P<batched>\d+)\) is smaller than (?:max_model_len|max_num_seqs) "
        r"\((?P<least>\d+)\)",
        "max_num_batched_tokens {batched} is below {least}.",
        "Start with --max-num-batched-tokens {least} or more, or leave it out.",
        arithmetic="{batched} < {least}",
        phase="args",
    ),
    sig(
        "NO_KV_MEMORY",
        r"No available memory for the cache blocks",
        "After weights and graphs no GPU memory is left for the KV cache.",
        "First list other processes on these GPUs (an orphan of an earlier start holds memory); then raise "
        "gpu-memory-utilization, lower max-model-len, use more GPUs or a quantised checkpoint.",
        phase="memory",
    ),
    sig(
        "GPU_MEMORY_TAKEN",
        r"Free memory on device (?P<device>\S+ )?\((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\) on startup is "
        r"less than desired GPU memory utilization \((?P<utilization>[\d.]+), (?P<wanted_gib>[\d.]+) GiB\)",
        "Another process holds memory of this GPU.",
        phase="memory",
        refine=notes.memory_taken,
    ),
    sig(
        "GPU_MEMORY_TAKEN",
        r"Error in memory profiling\. Initial free memory (?P<before>[\d.]+)[^\n]*current free memory "
        r"(?P<after>[\d.]+)",
        "GPU memory changed under the profiling: another process came or went ({before} -> {after} GiB free).",
        "Wait until the other process has ended, then start again.",
        phase="memory",
    ),
    sig(
        "OFFLOAD_UNSUPPORTED",
        r"CPU Offloading is currently only supported on CUDA-alike",
        "KV offloading to host memory does not exist on this platform.",
        "Start without --kv-offloading-size.",
        phase="args",
        fixes=(Fix(label="no KV offload", settings={"kv_offload_gib": None}),),
    ),
)

BUGS: tuple[Signature, ...] = (
    sig(
        "KNOWN_BUG_PREFIX_MTP_CPU",
        r"precopy_mamba_align_fused_kernel",
        "Known fault: hybrid model, speculation and prefix caching together have no CPU kernel; it dies on the first "
        "request.",
        "Start with --no-enable-prefix-caching.",
        fixes=(Fix(label="prefix caching off", settings={"prefix_cache": False}),),
    ),
    sig(
        "BACKEND_UNSUPPORTED",
        r"Selected backend (?P<backend>\S+) is not valid|No valid attention backend|Unsupported attention backend",
        "The attention backend does not fit model or GPU.",
        "Leave the backend out, or choose one that the message lists.",
        phase="load",
    ),
)

DEATH: tuple[Signature, ...] = (
    sig(
        "PROCESS_DIED",
        r"Worker proc (?P<who>\S+) died unexpectedly \(exit code: (?P<status>-?\d+)\)",
        "{who} died with exit code {status}.",
        "Look above for its first error.",
        anywhere=True,
        rank=Rank.DEATH,
        refine=by_status,
        survives=True,
    ),
    sig(
        "WORKER_DIED",
        r"Worker proc (?P<who>\S+) died unexpectedly",
        "{who} died, and the log does not say of what.",
        "Ask the kernel (`dmesg`, `journalctl -k`) for the OOM killer, then look for GPU errors (Xid).",
        anywhere=True,
        rank=Rank.DEATH,
        refine=by_exit,
        survives=True,
    ),
    sig(
        "WORKER_NOT_RESPONDING",
        r"RPC call to (?P<call>\w+) timed out",
        "A worker did not answer {call} in time: a kernel or collective hangs.",
        "Look at GPU use and stacks of the workers; NCCL problems show with NCCL_DEBUG=INFO.",
        rank=Rank.CONSEQUENCE,
    ),
    sig(
        "ENGINE_START_TIMEOUT",
        r"Timed out waiting for engine(?:s| core processes)",
        "The engine processes did not come up in time.",
        "Look for the last milestone of each process; raise VLLM_ENGINE_READY_TIMEOUT_S for slow storage.",
        rank=Rank.CONSEQUENCE,
    ),
    sig(
        "FAILED_BUT_HOLDING_GPU",
        r"EngineCore failed to start\.?",
        "The engine core failed to start; its workers may still be alive and hold GPU memory.",
        "Look who holds GPU memory (`nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv`); stop the "
        "recorded process group, and start again once the memory is back.",
        anywhere=True,
        rank=Rank.DEATH,
        survives=True,
    ),
    sig(
        "ENGINE_CORE_GONE",
        r"(?:\[shutdown\] )?(?:\w+: )?engine core exited unexpectedly|EngineDeadError|EngineCore encountered (?:a "
        r"fatal error|an issue)|Engine "
        r"core proc \S+ died unexpectedly",
        "The engine core is gone without an error of its own: it was killed from outside.",
        "Ask the kernel for the OOM killer (`dmesg -T`, memory.events of the cgroup) and who sent a signal; look for "
        "orphaned VLLM:: processes.",
        anywhere=True,
        rank=Rank.DEATH,
        refine=by_exit,
        survives=True,
    ),
)

SILENT: tuple[Signature, ...] = (
    sig(
        "WORKER_NOT_RESPONDING",
        r"No available shared memory broadcast block found in (?P<silent_s>\d+) second",
        "Workers do not answer.",
        anywhere=True,
        fatal=False,
        rank=Rank.CONSEQUENCE,
        refine=notes.broadcast_wait,
    ),
)

SIGNATURES = (
    *FLAGS,
    *CAPACITY,
    *BUGS,
    *INTERNAL_PORTS,
    *HTTP_PORT,
    *GPU,
    *MODEL,
    *PYTHON,
    *RANKS,
    *SYSTEM,
    *DEATH,
    *SILENT,
    *CPU_FALLBACK,
)

DIALECT = Dialect(
    signatures=SIGNATURES,
    phases=tuple(
        (re.compile(pattern), phase)
        for pattern, phase in (
            (r"^world_size=|vLLM is using nccl|is assigned as DP rank", "distributed"),
            (
                r"^Starting to load model|^Loading (?:safetensors|pt) checkpoint|^Multi-thread loading|^Loading "
                r"drafter",
                "load",
            ),
            (
                r"^Loading weights took|^Model loading took|KV cache size:|^Available KV cache memory|"
                r"^torch\.compile t|^Dynamo bytecode",
                "memory",
            ),
            (r"^Capturing CUDA graph", "capture"),
            (
                r"^Graph capturing finished|^init engine \(profile|^Starting vLLM|^Started server process|^Waiting "
                r"for application startup",
                "http",
            ),
            (r"^Application startup complete", "ready"),
        )
    ),
    life=re.compile(r"^(?:Engine \d{3}: )?Avg prompt|\"POST /\S+ HTTP/[\d.]+\" 200|^Application startup complete"),
    boot=re.compile(r"^non-default args:|vLLM (?:API )?server version "),
    early=re.compile(r"^(?:Starting to load model|Model loading took|Available KV cache memory)"),
    death=re.compile(
        r"EngineCore failed to start|Engine core initialization failed|EngineCore encountered a fatal|"
        r"EngineDeadError|engine core exited unexpectedly|died unexpectedly|"
        r"WorkerProc initialization failed|^Killed$|Segmentation fault|^Aborted|: error: (?:unrec|argu|ambig)|"
        r"Application startup failed|Out of memory: Killed process"
    ),
    wrapper=re.compile(
        r"See root cause above|See stack trace|check the stack trace above|failed to start|WorkerProc initialization "
        r"failed|Worker failed with error|EngineDeadError|"
        r"^(?:\S*Error|Exception): Engine (?:core|process|loop)|output_handler failed|died unexpectedly|^(?:EOFError|"
        r"ConnectionResetError|BrokenPipeError)\b"
    ),
    facts=re.compile(r"['\"]?(?P<key>\w+)['\"]?\s*[=:]\s*(?P<value>'[^']*'|\"[^\"]*\"|[^,\s})]+)"),
    echo=re.compile(r"^non-default args:"),
)

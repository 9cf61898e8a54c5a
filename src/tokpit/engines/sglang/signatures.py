"""What SGLang prints when it fails, and the verdict it stands for (releases 0.4.6 to 0.5.23). One row, one failure."""

from __future__ import annotations

from tokpit.domain.verdict import Fix
from tokpit.engines.sglang import failure_notes as notes
from tokpit.engines.verdictkit.signature import Rank, Signature, sig

_RADIX_OFF = Fix(label="radix cache off", settings={"prefix_cache": False})

CONFIG: tuple[Signature, ...] = (
    sig(
        "FLAG_SPEC_NEEDS_EXTRA_BUFFER",
        r"Speculative decoding for (?P<arch>\w+) is not compatible with radix cache when using "
        r"--(?P<flag>mamba-[\w-]+) no_buffer",
        "Flag conflict: speculation, radix cache and the no_buffer state strategy exclude each other on the hybrid "
        "model {arch}.",
        "Either extra_buffer with SGLANG_ENABLE_SPEC_V2=1 (more state slots a request, so a lower running cap), or "
        "--disable-radix-cache (on ROCm only this).",
        phase="args",
        fixes=(
            Fix(
                label="extra_buffer + spec v2",
                settings={"mamba_strategy": "extra_buffer"},
                env={"SGLANG_ENABLE_SPEC_V2": "1"},
            ),
            _RADIX_OFF,
        ),
    ),
    sig(
        "FLAG_EXTRA_BUFFER_USELESS",
        r"extra_buffer[^\n]*(?:disable[-_ ]radix|radix cache is disabled)|disable[-_]radix[-_]cache[^\n]*extra_buffer",
        "extra_buffer has no use without the radix cache, and costs about 2 state slots a request.",
        "Use no_buffer, or take the flag out.",
        phase="args",
        fixes=(Fix(label="no_buffer", settings={"mamba_strategy": "no_buffer"}),),
    ),
    sig(
        "FLAG_EXTRA_BUFFER_UNSUPPORTED",
        r"extra_buffer(?:_lazy)? (?:requires|needs|is only supported)[^\n]*|extra_buffer[^\n]*(?:platform support|"
        r"not supported)",
        "This platform does not support the extra_buffer state strategy.",
        "Use no_buffer with the overlap scheduler off.",
        phase="args",
        fixes=(
            Fix(label="no_buffer", settings={"mamba_strategy": "no_buffer"}, raw_add=("--disable-overlap-schedule",)),
        ),
    ),
    sig(
        "FLAG_TRACK_INTERVAL",
        r"mamba_track_interval:? ?\(?(?P<interval>\d+)?\)?[^\n]*(?:greater than or equal to "
        r"speculative_num_draft_tokens:? ?\(?(?P<draft>\d+)?|(?:divisible by|multiple of) (?:the )?page_size:? "
        r"?\(?(?P<page>\d+)?)",
        "mamba_track_interval does not fit the draft length or the page size.",
        phase="args",
        refine=notes.track_interval,
    ),
    sig(
        "FLAG_SPEC_INCOMPLETE",
        r"'>' not supported between instances of 'NoneType' and 'int'",
        "Speculation was given incompletely: steps, topk and draft tokens belong together.",
        "Give all three, e.g. steps 3, topk 1, draft tokens 4.",
        within=r"server_args|spec|arg_groups",
        phase="args",
    ),
    sig(
        "FLAG_SPEC_INCOMPLETE",
        r"^AssertionError:?\s*$",
        "Speculation was given incompletely: steps, topk and draft tokens belong together.",
        "Give all three, e.g. steps 3, topk 1, draft tokens 4.",
        within=r"speculative_num_steps|speculative_eagle_topk|_handle_speculative",
        phase="args",
    ),
    sig(
        "FLAG_BAD_VALUE",
        r"Unknown speculative algorithm(?: name)?:? ?(?P<value>\S*)",
        "There is no speculative algorithm {value}; MTP heads run as NEXTN (EAGLE).",
        "Use NEXTN, EAGLE, EAGLE3, STANDALONE or NGRAM as this version lists.",
        phase="args",
    ),
    sig(
        "FLAG_CONFLICT",
        r"(?P<one>enable-hierarchical-cache) and (?P<other>disable-radix-cache) are mutually exclusive",
        "The host cache needs the radix cache: {one} and {other} exclude each other.",
        "Take one of them out.",
        phase="args",
        fixes=(
            Fix(label="hicache off", settings={"hicache": False}),
            Fix(label="radix cache on", settings={"prefix_cache": True}),
        ),
    ),
    sig(
        "FLAG_CONFLICT",
        r"speculative_eagle_topk ?> ?1[^\n]*page_size|topk > 1[^\n]*(?:page_size|trtllm)|not compatible with "
        r"[^\n]*topk",
        "Tree drafts (topk > 1) need page size 1, or an attention backend that can do both.",
        "Use topk 1, page size 1, or attention backend flashinfer or fa3.",
        phase="args",
        fixes=(Fix(label="topk 1", settings={"spec_topk": 1}),),
    ),
    sig(
        "FLAG_CONFLICT",
        r"[Pp]ipeline parallelism (?:is not compatible|does not support) [^\n]*speculative|pp_size[^\n]*speculative",
        "Speculation does not go with pipeline parallelism in this version.",
        "Take one of them out.",
        phase="args",
    ),
    sig(
        "FLAG_CONFLICT",
        r"chunked_prefill_size[^\n]*(?:divisible|multiple)[^\n]*page_size|no_buffer[^\n]*page_size|"
        r"int8[^\n]*mamba[^\n]*(?:hicache|hierarchical)",
        "Flags exclude each other: see the message.",
        "Change one of the settings that the message names.",
        phase="args",
    ),
    sig(
        "CTX_TOO_LONG",
        r"User-specified context_length \((?P<asked>\d+)\) is greater than the derived context_length "
        r"\((?P<limit>\d+)\)",
        "The context asked for ({asked}) is longer than the model's own ({limit}).",
        "Start with --context-length {limit}, or leave it out.",
        arithmetic="{asked} > {limit}",
        phase="args",
        refine=notes.context_limit,
    ),
)

MEMORY: tuple[Signature, ...] = (
    sig(
        "HOST_MEM_RESERVE",
        r"Not enough host memory available\. Requesting (?P<asked_gb>[\d.]+) GB but only have (?P<free_gb>[\d.]+) GB "
        r"free",
        "The host cache does not fit.",
        phase="memory",
        refine=notes.host_reserve,
    ),
    sig(
        "HICACHE_TOO_SMALL",
        r"host memory should be larger than the device memory",
        "The host cache is not larger than the device pool, and this version insists on it.",
        "Raise hicache size, or use a ratio above 1.",
        phase="memory",
        fixes=(Fix(label="ratio 2", settings={"hicache_ratio": 2.0, "hicache_gb": None}),),
    ),
    sig(
        "NO_STATE_MEMORY",
        r"Not enough GPU memory for hybrid|state cache is too small to serve any requests?|max_mamba_cache_size ?=? "
        r"?(?P<slots>-?\d+)[^\n]*(?:too small|not enough)",
        "No GPU memory is left for the recurrent-state cache.",
        "Lower the running requests or draft tokens, use bfloat16 state (--mamba-ssm-dtype bfloat16), or raise the "
        "memory fraction.",
        phase="memory",
        refine=notes.state_memory,
    ),
    sig(
        "NO_KV_MEMORY",
        r"Not enough memory\. Please try to increase --mem-fraction-static|Loaded weights leave no GPU memory for "
        r"the KV cache|max_total_num_tokens ?=? ?(?P<tokens>-\d+)",
        "After the weights no GPU memory is left for the KV cache.",
        phase="memory",
        refine=notes.no_kv,
    ),
    sig(
        "UNBALANCED_GPUS",
        r"memory capacity is unbalanced",
        "The GPUs have different free memory: another process occupies one, or the cards differ.",
        "List processes per GPU first: if the cards are alike, stop what occupies one; if they differ, choose equal "
        "cards.",
        phase="distributed",
    ),
    sig(
        "OOM_SERVING",
        r"(?:Prefill|Decode) out of memory\. Try to lower your batch size|Out of memory even after retracting all "
        r"other requests",
        "The KV pool is too small for the running requests.",
        "Lower the number of running requests or raise the memory fraction.",
        phase="ready",
    ),
)

BUGS: tuple[Signature, ...] = (
    sig(
        "KNOWN_BUG_HICACHE_MTP",
        r"'HybridAttnBackend' object has no attribute '(?P<missing>update_mamba_state_after_mtp_verify)'",
        "Known fault of this version: host cache with speculation and different attention backends for prefill and "
        "decode (releases 0.5.5 to 0.5.13 switch the decode backend by themselves).",
        "Use one attention backend for prefill and decode (or hicache io backend direct), or upgrade.",
        fixes=(
            Fix(label="io backend direct", settings={"hicache_io_backend": "direct"}),
            Fix(label="hicache off", settings={"hicache": False}),
        ),
    ),
    sig(
        "KNOWN_BUG_HICACHE_HYBRID",
        r"Destination indices must be a CUDA tensor",
        "Known fault: the host cache of a hybrid model has its indices on the wrong device.",
        "Start without the host cache, or upgrade.",
        fixes=(Fix(label="hicache off", settings={"hicache": False}),),
    ),
    sig(
        "KNOWN_BUG_HICACHE_HYBRID",
        r"^AssertionError",
        "Known fault: eviction of recurrent states fails with the host cache on.",
        "Start without the host cache, or upgrade.",
        within=r"evict_mamba",
        fixes=(Fix(label="hicache off", settings={"hicache": False}),),
    ),
    sig(
        "FLAG_MAMBA_ON_NON_HYBRID",
        r"'NoneType' object (?:is not subscriptable|has no attribute)",
        "A state (mamba) strategy was forced on a model without recurrent state: its buffers were never made.",
        "Use auto or no_buffer and start again.",
        within=r"mamba_ping_pong|mamba_track|mamba_pool",
        fixes=(Fix(label="strategy auto", settings={"mamba_strategy": "auto"}),),
    ),
    sig(
        "FLAG_MAMBA_ON_NON_HYBRID",
        r"'\w+' object has no attribute '(?:\w*mamba\w*|req_to_token_pool\.\w+)'",
        "A state (mamba) strategy was forced on a model without recurrent state.",
        "Use auto or no_buffer and start again.",
        within=r"extra_buffer|ping_pong",
        fixes=(Fix(label="strategy auto", settings={"mamba_strategy": "auto"}),),
    ),
)

DEATH: tuple[Signature, ...] = (
    sig(
        "PROCESS_DIED",
        r"Rank (?P<rank>\d+) scheduler (?:died|is dead)(?:[^\n]{0,200}?[Ee]xit code: (?P<status>-?\d+))?",
        "The scheduler of rank {rank} died.",
        "Look above for its first error.",
        anywhere=True,
        rank=Rank.DEATH,
        refine=notes.scheduler_died,
        survives=True,
    ),
    sig(
        "PROCESS_DIED",
        r"Subprocess (?P<who>\S+) \(pid=(?P<pid>\d+)\) crashed with exit code (?P<status>-?\d+)",
        "{who} (pid {pid}) crashed with exit code {status}.",
        "Look above for its first error.",
        anywhere=True,
        rank=Rank.DEATH,
        refine=notes.subprocess_died,
        survives=True,
    ),
    sig(
        "WATCHDOG_KILLED",
        r"(?:(?P<who>\w+) )?[Ww]atchdog timeout \((?:self\.)?watchdog_timeout=(?P<timeout_s>\d+)(?!.*soft=True)",
        "The watchdog stopped the server: no progress for {timeout_s} s.",
        "A rank or kernel hangs: take its stack with py-spy (install it) before the watchdog fires, or raise "
        "--watchdog-timeout.",
        anywhere=True,
        rank=Rank.DEATH,
        refine=notes.watchdog,
        survives=True,
    ),
    sig(
        "CAPTURE_FAILED",
        r"Capture cuda graph failed: (?P<why>[^\n]*)",
        "CUDA graph capture failed: {why}",
        "Read the text before 'Possible solutions'; memory advice applies only to an out-of-memory error.",
        phase="capture",
        rank=Rank.CONSEQUENCE,
    ),
)

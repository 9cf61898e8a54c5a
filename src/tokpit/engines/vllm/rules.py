"""Rules between vLLM's flags, and of flags against model and host. One rule, one function, one line in the registry."""

from __future__ import annotations

from tokpit.domain.verdict import RuleAnswer
from tokpit.engines.verdictkit.ask import Ask, Rule, answer, fix, gb
from tokpit.engines.verdictkit.host_rules import SHARED, port_is_free
from tokpit.engines.vllm.capacity import (
    default_max_num_seqs,
    offload_host_bytes,
    prefix_cache_on,
    state_pages_per_request,
)

DEFAULT_PORT = 8000
_METHOD_SINCE = {"dflash": "0.25", "eagle3": "0.10"}
_NO_OFFLOAD = fix("no KV offload", kv_offload_gib=None)


def port(ask: Ask) -> RuleAnswer | None:
    """vLLM binds its port before it loads, so a busy one fails at once."""
    return port_is_free(ask, DEFAULT_PORT)


def offload_platform(ask: Ask) -> RuleAnswer | None:
    """KV offload to host memory does not exist on the CPU."""
    if not ask.settings.kv_offload_gib or ask.host.platform != "cpu":
        return None
    return answer(
        "OFFLOAD_UNSUPPORTED", "error", "KV offload needs a GPU: vLLM refuses it on the CPU.", fixes=(_NO_OFFLOAD,)
    )


def offload_unit(ask: Ask) -> RuleAnswer | None:
    """A host cache named in GB becomes GiB of KV offload."""
    size = ask.settings.hicache_gb
    if not size:
        return None
    return answer(
        "OFFLOAD_UNIT",
        "info",
        f"A host cache of {size:g} GB is given to vLLM as {size * 1e9 / 2**30:.3f} GiB of KV offload, in total over "
        "ranks.",
        f"{size:g} x 1e9 bytes / 2**30",
    )


def offload_memory(ask: Ask) -> RuleAnswer | None:
    """The offload region is shared memory: GiB in total over ranks, reported to take 1.92 times as much."""
    size = ask.settings.kv_offload_gib
    if not size or ask.host.platform == "cpu":
        return None
    asked, reported = offload_host_bytes(size)
    sums = f"{size:g} GiB in total over ranks = {gb(asked)}; x 1.92 as reported = {gb(reported)}"
    available, shm = ask.memory_bytes, ask.host.shm_free_bytes
    if shm is not None and asked > shm:
        return answer(
            "SHM_TOO_SMALL",
            "error",
            f"KV offload needs {gb(asked)} of /dev/shm; {gb(shm)} are free there.",
            f"{sums} > {gb(shm)} free in /dev/shm",
            (fix(f"offload {shm // 2**30} GiB", kv_offload_gib=float(shm // 2**30)),)
            if shm >= 2**30
            else (_NO_OFFLOAD,),
        )
    if available is None or reported <= available:
        return None
    most = int(available / 1.92 // 2**30)
    return answer(
        "HOST_MEM_RESERVE",
        "error" if asked > available else "warning",
        f"KV offload of {size:g} GiB may take {gb(reported)} of host memory; {gb(available)} are available.",
        f"{sums} > {gb(available)}",
        (fix(f"offload {most} GiB", kv_offload_gib=float(most)),) if most >= 1 else (_NO_OFFLOAD,),
    )


def offload_on_hybrid(ask: Ask) -> RuleAnswer | None:
    """KV offload with prefix caching on hybrid models is reported to crash or to refuse."""
    caching = prefix_cache_on(ask.settings.prefix_cache, ask.hybrid, ask.version)
    if not ask.settings.kv_offload_gib or not ask.hybrid or caching is False:
        return None
    return answer(
        "KNOWN_RISK_OFFLOAD_HYBRID",
        "warning",
        "KV offload with prefix caching on a hybrid model is reported to crash or to refuse to start in several "
        "releases.",
        fixes=(_NO_OFFLOAD, fix("prefix caching off", prefix_cache=False)),
    )


def speculation_on_hybrid(ask: Ask) -> RuleAnswer | None:
    """Speculation adds state pages to each request: 1 + k, or 2 + k with prefix caching."""
    k = ask.settings.spec_steps or 0
    if not ask.hybrid or not ask.speculates or k < 1:
        return None
    caching = prefix_cache_on(ask.settings.prefix_cache, True, ask.version)
    off = fix("prefix caching off", prefix_cache=False)
    if caching is not False and ask.host.platform == "cpu":
        return answer(
            "KNOWN_BUG_PREFIX_MTP_CPU",
            "error",
            "On the CPU a hybrid model with speculation and prefix caching dies on its first request.",
            fixes=(off,),
        )
    with_cache, without = state_pages_per_request(k, prefix_cache=True), state_pages_per_request(k)
    pages = without if caching is False else with_cache
    return answer(
        "SPEC_SHRINKS_CONCURRENCY",
        "info",
        f"Each running request holds {pages} state pages instead of 1 without speculation: fewer run at once.",
        f"{'1' if caching is False else '2'} + {k} = {pages}"
        + ("" if caching is False else f"; without prefix caching 1 + {k} = {without}"),
        () if caching is False else (off,),
    )


def state_blocks(ask: Ask) -> RuleAnswer | None:
    """Since 0.21 vLLM refuses to start where max_num_seqs exceeds the state blocks; its default is high."""
    if not ask.hybrid or ask.since("0.21") is False or ask.host.platform == "cpu":
        return None
    blocks = ask.settings.state_slots
    smallest = min(ask.host.gpu_mem_mib, default=None)
    name = ask.host.gpu_names[0] if ask.host.gpu_names else ""
    seqs = ask.settings.max_running
    asked = seqs if seqs is not None else default_max_num_seqs(smallest, name)
    if blocks is not None and asked is not None and asked > blocks:
        return answer(
            "MAMBA_BLOCKS_LT_MAX_SEQS",
            "error",
            f"max_num_seqs {asked} is more than the {blocks} state blocks: vLLM refuses to start.",
            f"{asked} > {blocks}",
            (fix(f"max-num-seqs {blocks}", max_running=blocks),),
        )
    if seqs is None and asked is not None and asked > 256:
        return answer(
            "MAMBA_BLOCKS_LT_MAX_SEQS",
            "warning",
            f"max_num_seqs is {asked} by default on this GPU; if fewer state blocks fit, vLLM refuses to start.",
            fixes=(fix("max-num-seqs 256", max_running=256), fix("max-num-seqs 64", max_running=64)),
        )
    return None


def memory_is_free(ask: Ask) -> RuleAnswer | None:
    """At its start vLLM wants utilisation x total free on every GPU."""
    ranks = (ask.settings.tp or 1) * (ask.settings.pp or 1)
    total, free = ask.host.gpu_mem_mib[:ranks], ask.host.gpu_free_mib[:ranks]
    if not total or len(total) != len(free):
        return None
    share = ask.settings.mem_fraction or (0.9 if ask.since("0.21") is False else 0.92)
    worst = min(range(len(total)), key=lambda i: free[i] - share * total[i])
    wanted = share * total[worst]
    if free[worst] >= wanted:
        return None
    fits = int((free[worst] / total[worst] - 0.01) * 100) / 100
    return answer(
        "GPU_MEMORY_TAKEN",
        "error",
        f"GPU {worst} has {free[worst] / 1024:.1f} GiB free, and vLLM wants {wanted / 1024:.1f}: others hold memory.",
        f"{share:g} x {total[worst] / 1024:.1f} GiB = {wanted / 1024:.1f} GiB > {free[worst] / 1024:.1f} GiB free",
        (fix(f"utilization {fits:.2f}", mem_fraction=fits),) if fits > 0.1 else (),
    )


def fraction_in_range(ask: Ask) -> RuleAnswer | None:
    """gpu-memory-utilization is a share of the GPU; above 0.95 graph capture has little room."""
    share = ask.settings.mem_fraction
    if share is None or 0 < share <= 0.95:
        return None
    if share > 1 or share <= 0:
        return answer(
            "FLAG_BAD_VALUE",
            "error",
            f"gpu-memory-utilization {share:g} must lie between 0 and 1.",
            fixes=(fix("0.9", mem_fraction=0.9),),
        )
    return answer(
        "OOM_GRAPH_CAPTURE",
        "warning",
        f"gpu-memory-utilization {share:g} leaves little for graph capture.",
        f"1 - {share:g} = {1 - share:.2f} of the GPU",
        (fix("0.92", mem_fraction=0.92),),
    )


def batch_holds_sequences(ask: Ask) -> RuleAnswer | None:
    """A batch must have at least one token for each sequence."""
    tokens, seqs = ask.settings.chunked_prefill, ask.settings.max_running
    if tokens is None or seqs is None or tokens >= seqs or tokens < 0:
        return None
    return answer(
        "BATCHED_TOKENS_LT_CTX",
        "error",
        f"max_num_batched_tokens {tokens} is below max_num_seqs {seqs}.",
        f"{tokens} < {seqs}",
        (fix(f"batched tokens {max(2048, seqs)}", chunked_prefill=max(2048, seqs)),),
    )


def method_exists(ask: Ask) -> RuleAnswer | None:
    """The speculative method must exist in this release."""
    method = ask.settings.spec_method
    first = _METHOD_SINCE.get(method or "")
    if ask.speculates and first and ask.since(first) is False:
        return answer("FLAG_BAD_VALUE", "error", f"vLLM {ask.version} has no method {method}: it came with {first}.")
    if method in {"medusa", "mlp_speculator"} and ask.since("0.33"):
        return answer("FLAG_BAD_VALUE", "error", f"vLLM {ask.version} no longer has method {method}.")
    if ask.speculates and method == "mtp" and ask.model.mtp_layers == 0 and ask.settings.draft_model is None:
        return answer(
            "SPEC_NO_DRAFT_MODEL",
            "error",
            "The checkpoint has no MTP layers, so there is nothing to draft with.",
            "mtp layers in config.json: 0",
        )
    if ask.speculates and method in {"eagle", "eagle3", "draft", "dflash"} and ask.settings.draft_model is None:
        return answer("SPEC_NO_DRAFT_MODEL", "error", f"Method {method} needs a draft model.")
    return None


def steps_given(ask: Ask) -> RuleAnswer | None:
    """vLLM wants num_speculative_tokens with a method."""
    s = ask.settings
    if s.spec_method not in {"mtp", "ngram", "draft", "eagle", "eagle3"} or s.spec_steps is not None:
        return None
    severity = "warning" if s.spec_method == "mtp" else "error"
    return answer(
        "FLAG_SPEC_INCOMPLETE",
        severity,
        "Speculation needs a number of draft tokens.",
        fixes=(fix("3 draft tokens", spec_steps=3),),
    )


RULES: tuple[Rule, ...] = (
    *SHARED,
    port,
    offload_platform,
    offload_unit,
    offload_memory,
    offload_on_hybrid,
    speculation_on_hybrid,
    state_blocks,
    memory_is_free,
    fraction_in_range,
    batch_holds_sequences,
    method_exists,
    steps_given,
)

"""Two deployments of which one is slower for one stream: what differs, ranked by what it could explain."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence, Setup
from tokpit.insight.words import num, percent

_KNOWN: tuple[tuple[float, tuple[str, ...], str], ...] = (
    # weight, words in a setting's name, what it changes
    (1.0, ("model_path", "model", "model_tag"), "other weights"),
    (0.95, ("quantization", "load_format", "torch_dtype", "dtype"), "bytes read a step"),
    (
        0.9,
        (
            "speculative",
            "num_speculative",
            "spec_method",
            "spec_steps",
            "spec_topk",
            "spec_draft_tokens",
            "draft_model",
        ),
        "acceptance length and cost of a step",
    ),
    (
        0.85,
        ("tp_size", "tensor_parallel", "tp", "pp_size", "pipeline_parallel"),
        "bytes on each GPU, and communication",
    ),
    (0.8, ("cuda_graph", "enforce_eager", "compilation", "torch_compile"), "launches"),
    (0.75, ("engine",), "another engine"),
    (0.6, ("version",), "another release"),
    (
        0.55,
        ("max_running", "state_slots", "kv_tokens", "mem_fraction", "prefix_cache", "hicache", "hicache_gb"),
        "how many run at once, and what is kept of their prompts",
    ),
    (0.5, ("attention_backend", "sampling_backend", "moe", "gemm", "linear_attn"), "kernels"),
    (0.4, ("kv_cache_dtype", "kv_dtype"), "bytes of the context"),
    (0.3, ("custom_all_reduce", "nccl"), "communication"),
    (0.25, ("overlap", "schedule", "chunked", "mixed"), "scheduling"),
)
_NEVER = (
    *("port", "host", "log_", "seed", "served", "nccl_port", "dist_init", "api_key", "metrics", "parser", "template"),
    *("max_running", "max_num_seqs", "mem_fraction", "gpu_memory_utilization", "max_mamba", "hicache", "revision"),
    *("watchdog", "download", "tokenizer_worker", "trust_remote", "crash_dump", "max_queued", "device"),
)
_PLACE = frozenset({"port", "listen", "host", "served_name", "metrics", "reasoning_parser", "tool_parser"})
_MOST = 6


def rule(evidence: Evidence) -> Sequence[Finding]:
    """The last deployment against the fastest other one; quiet where it is not clearly slower."""
    rated = [s for s in evidence.setups if s.single_tps and s.settings]
    if len(rated) < 2:
        return ()
    now = rated[-1]
    before = max(rated[:-1], key=lambda s: s.single_tps or 0.0)
    slow, fast = now.single_tps or 0.0, before.single_tps or 0.0
    if slow > 0.87 * fast:
        return ()
    ranked = ranked_differences(before, now)
    if not ranked:
        return ()
    words = [f"{name}: {old} -> {new} ({what})" for _, name, old, new, what in ranked[:_MOST]]
    part = ""
    if before.accept_len and now.accept_len:
        steps = (slow / now.accept_len) / (fast / before.accept_len)
        part = (
            f"; acceptance length {num(before.accept_len)} -> {num(now.accept_len)} explains a factor of "
            f"{num(now.accept_len / before.accept_len)}, steps/s a factor of {num(steps)}"
        )
    return (
        Finding(
            code="GAP_CANDIDATES",
            severity="warning",
            claim=f"One stream makes {num(slow)} tok/s now and made {num(fast)} in {before.name}: "
            f"{len(ranked)} {'difference' if len(ranked) == 1 else 'differences'} could explain it, the likeliest "
            f"first: "
            f"{words[0]}.",
            arithmetic=f"{num(slow)} / {num(fast)} = {percent(slow / fast)}{part}",
            evidence=tuple(words),
            confidence="possible",
            next_action="Put the first one back alone and measure one stream; then the next.",
        ),
    )


def earlier(evidence: Evidence) -> Sequence[Finding]:
    """A server that is slower than it was or than somebody remembers: what changed since its earlier deployments."""
    told = [one for one in evidence.earlier if one.changes]
    if not told:
        return ()
    last = told[0]
    others = f" ({len(evidence.earlier)} earlier deployments are remembered)" if len(evidence.earlier) > 1 else ""
    return (
        Finding(
            code="CHANGED_SINCE",
            severity="warning",
            claim=f"Since {last.where} ({last.when}) {_count(len(last.changes))}, the likeliest cause of another speed "
            f"first: {'; '.join(last.changes[:3])}.{others}",
            evidence=tuple(f"{one.where}, {one.when}: {'; '.join(one.changes[:_MOST])}" for one in told[:4]),
            confidence="possible",
            next_action="Put the first one back alone and measure one stream. All of it: tokpit history HOST --diff.",
        ),
    )


def _count(changes: int) -> str:
    return "one thing changed" if changes == 1 else f"{changes} things changed"


def ranked_differences(before: Setup, now: Setup) -> list[tuple[float, str, str, str, str]]:
    """(weight, name, before, now, what it changes), the likeliest first, without settings that change no stream."""
    found = []
    for name in dict.fromkeys((*before.settings, *now.settings)):
        old, new = before.settings.get(name), now.settings.get(name)
        if before.whole and now.whole and name not in ("version", "driver", "kernel"):
            old, new = old or "not given", new or "not given"
        if old is None or new is None or old == new or any(word in name for word in _NEVER):
            continue
        weight, what = weigh(name)
        if weight > 0:
            found.append((weight, name, old, new, what))
    return sorted(found, key=lambda item: -item[0])


def weigh(name: str) -> tuple[float, str]:
    """How likely a setting of this name changes the speed of one stream (0..1), and by what; 0: a matter of place."""
    if name in _PLACE:
        return 0.0, "where the server is, not how fast"
    for weight, words, what in _KNOWN:
        if name in words or any(len(word) > 5 and word in name for word in words):
            return weight, what
    return 0.1, "effect not known"

"""Flags that became others: what the tables cannot say by themselves.

A rename takes the same values; where a newer flag only covers the same ground, it is advice.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokpit.engines.flagkit.tables import Catalog, FlagTable

_RENAMED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "SGLang": (
        ("--mamba-scheduler-strategy", "--mamba-radix-cache-strategy"),
        ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"),
        ("--cuda-graph-bs", "--cuda-graph-bs-decode"),
        ("--stream-output", "--incremental-streaming-output"),
        ("--speculative-dflash-draft-window-size", "--speculative-draft-window-size"),
        ("--nsa-prefill", "--nsa-prefill-backend", "--dsa-prefill-backend"),
        ("--nsa-decode", "--nsa-decode-backend", "--dsa-decode-backend"),
        ("--nsa-prefill-cp-mode", "--dsa-prefill-cp-mode"),
        ("--enable-prefill-context-parallel", "--enable-prefill-cp"),
        ("--enable-nsa-prefill-context-parallel", "--enable-dsa-prefill-context-parallel", "--enable-prefill-cp"),
        ("--enable-gdn-replayssm-spec", "--enable-linear-replayssm-spec"),
        ("--oltp-traces-endpoint", "--otlp-traces-endpoint"),
        ("--max-micro-batch-size", "--pp-max-micro-batch-size"),
        ("--kt-amx-weight-path", "--kt-weight-path"),
        ("--kt-amx-method", "--kt-method"),
    ),
    "vLLM": (
        ("--cuda-graph-sizes", "--cudagraph-capture-sizes"),
        ("--override-pooler-config", "--pooler-config"),
    ),
    "llama-server": (
        ("--draft", "--spec-draft-n-max"),
        ("--draft-n", "--spec-draft-n-max"),
        ("--draft-max", "--spec-draft-n-max"),
        ("--draft-min", "--spec-draft-n-min"),
        ("--draft-n-min", "--spec-draft-n-min"),
        ("--spec-ngram-size-n", "--spec-ngram-simple-size-n"),
        ("--spec-ngram-size-m", "--spec-ngram-simple-size-m"),
        ("--spec-ngram-min-hits", "--spec-ngram-simple-min-hits"),
    ),
}
_ADVICE: Mapping[str, str] = {
    "--disable-piecewise-cuda-graph": "--cuda-graph-backend-prefill",
    "--enable-piecewise-cuda-graph": "--cuda-graph-backend-prefill",
    "--enable-ep-moe": "--ep-size",
    "--enable-deepep-moe": "--moe-a2a-backend",
    "--enable-flashinfer-moe": "--moe-runner-backend",
    "--enable-flashinfer-cutlass-moe": "--moe-runner-backend",
    "--enable-flashinfer-trtllm-moe": "--moe-runner-backend",
    "--enable-flashinfer-cutedsl-moe": "--moe-runner-backend",
    "--enable-flashinfer-mxfp4-moe": "--moe-runner-backend",
    "--enable-triton-kernel-moe": "--moe-runner-backend",
    "--enable-flashinfer-mla": "--attention-backend",
    "--enable-flashmla": "--attention-backend",
    "--enable-reasoning": "--reasoning-parser",
    "--rope-scaling": "--hf-overrides",
    "--rope-theta": "--hf-overrides",
    "--task": "--runner",
    "--guided-decoding-backend": "--structured-outputs-config",
    "--guided-decoding-disable-fallback": "--structured-outputs-config",
    "--guided-decoding-disable-any-whitespace": "--structured-outputs-config",
    "--guided-decoding-disable-additional-properties": "--structured-outputs-config",
    "--eplb-window-size": "--eplb-config",
    "--eplb-step-interval": "--eplb-config",
    "--eplb-log-balancedness": "--eplb-config",
    "--num-redundant-experts": "--eplb-config",
    "--disable-log-requests": "--enable-log-requests",
    "--prefill-cp-mode": "--cp-strategy",
    "--nsa-prefill-cp-mode": "--cp-strategy",
    "--dsa-prefill-cp-mode": "--cp-strategy",
    "--hybrid-kvcache-ratio": "--swa-full-tokens-ratio",
}
_DEPRECATED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "SGLang": {
        # flag: (a flag that is there only since the deprecation, successor)
        "--disable-cuda-graph": ("--cuda-graph-backend-decode", "--cuda-graph-backend-decode"),
        "--enable-dp-attention": ("--attn-dp-size", "--attn-dp-size"),
        "--mamba-scheduler-strategy": ("--mamba-radix-cache-strategy", "--mamba-radix-cache-strategy"),
        "--cuda-graph-max-bs": ("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs-decode"),
        "--cuda-graph-bs": ("--cuda-graph-bs-decode", "--cuda-graph-bs-decode"),
    },
}
"""Only what is known to warn or to fail; the successor may be empty."""


def other_name(title: str, option: str, table: FlagTable, catalog: Catalog) -> str | None:
    """What this version calls a flag of another version: an option of the same destination, or a known rename."""
    for chain in _RENAMED.get(title, ()):
        if option in chain:
            found = next((name for name in reversed(chain) if name != option and table.exact(name)), None)
            if found:
                return found
    spec = catalog.last_spec(option)
    if spec is None:
        return None
    for name in spec.flags:
        if name != option and table.exact(name) and not name.startswith("--no-"):
            return name
    same = next((row for row in table.rows if row.dest == spec.dest and row.type == spec.type), None)
    return same.flags[0] if same is not None and same.flags[0].startswith("-") else None


def advice(option: str, table: FlagTable) -> str | None:
    """A flag to look at instead of a removed one that has no successor with the same meaning."""
    found = _ADVICE.get(option)
    return found if found and table.exact(found) else None


def deprecated(title: str, option: str, table: FlagTable) -> str | None:
    """The successor of a flag that this version takes with a warning; empty: none; None: not deprecated."""
    known = _DEPRECATED.get(title, {}).get(option)
    if known is None:
        return None
    since, successor = known
    return successor if table.exact(since) else None


def stub(title: str, option: str, table: FlagTable) -> str | None:
    """The successor of a flag that is still listed but only refuses the start (llama-server's removed draft flags)."""
    if title != "llama-server":
        return None
    chain = next((chain for chain in _RENAMED[title] if option in chain[:-1]), ())
    return chain[-1] if chain and table.exact(chain[-1]) else None

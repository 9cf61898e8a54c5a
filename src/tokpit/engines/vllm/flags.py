"""vLLM: canonical settings to and from flags."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

import msgspec

from tokpit.domain.settings import Settings
from tokpit.engines.flagkit.canon import Map, Rule, refuse, settings
from tokpit.engines.flagkit.dialect import Dialect
from tokpit.engines.flagkit.tables import Pick, catalog
from tokpit.engines.vllm import speculation
from tokpit.engines.vllm.renames import RENAMES
from tokpit.errors import UsageError

DIALECT = Dialect(underscores=True, dotted=True, binary_capitals=True, positional=True)

_RULES = (
    Rule(setting="model", options=("--model",)),
    Rule(setting="served_name", options=("--served-model-name",)),
    Rule(setting="listen", options=("--host",)),
    Rule(setting="port", options=("--port",), kind="int"),
    Rule(setting="tp", options=("--tensor-parallel-size",), kind="int"),
    Rule(setting="dp", options=("--data-parallel-size",), kind="int"),
    Rule(setting="pp", options=("--pipeline-parallel-size",), kind="int"),
    Rule(setting="context_len", options=("--max-model-len",), kind="int"),
    Rule(setting="max_running", options=("--max-num-seqs",), kind="int"),
    Rule(setting="mem_fraction", options=("--gpu-memory-utilization", "--device-memory-utilization"), kind="float"),
    Rule(setting="dtype", options=("--dtype",)),
    Rule(setting="kv_dtype", options=("--kv-cache-dtype",)),
    Rule(setting="quantization", options=("--quantization",)),
    Rule(setting="page_size", options=("--block-size",), kind="int"),
    Rule(setting="prefix_cache", options=("--enable-prefix-caching",), kind="both"),
    Rule(setting="chunked_prefill", options=("--max-num-batched-tokens",), kind="int"),
    Rule(setting="kv_offload_gib", options=("--kv-offloading-size",), kind="float"),
    Rule(setting="reasoning_parser", options=("--reasoning-parser",)),
    Rule(setting="tool_parser", options=("--tool-call-parser",)),
)
MAP = Map("vLLM", _RULES, DIALECT, partial(catalog, "vllm"), RENAMES)

_REFUSED = {
    "kv_tokens": "set kv_cache memory by mem_fraction or --kv-cache-memory-bytes",
    "hicache_ratio": "set kv_offload_gib: GiB in total over ranks",
    "hicache_write_policy": "vLLM's KV offload has no write policy",
    "hicache_io_backend": "vLLM's KV offload has no such choice",
    "mamba_strategy": "see --mamba-cache-mode",
    "state_slots": "vLLM keeps recurrent states in the KV cache's own blocks",
    "mamba_ratio": "vLLM keeps recurrent states in the KV cache's own blocks",
}


def from_flags(flags: Sequence[str], version: str | None) -> Settings:
    """See `Engine.from_flags`. Keys of the speculative JSON without a canonical name stay in `raw` as that JSON."""
    words = MAP.words(flags, version)
    given, rest = MAP.take(words)
    odd = tuple(
        token
        for name, option in (
            ("chunked_prefill", "--max-num-batched-tokens"),
            ("kv_offload_gib", "--kv-offloading-size"),
        )
        if isinstance(value := given.get(name), (int, float)) and value <= 0
        for token in (option, str(given.pop(name)))
    )  # canonically 0 and -1 mean "off", which these flags cannot say
    config, others = speculation.fold(rest)
    spec, left = speculation.canonical(config, version)
    found = settings({**given, **spec}, others if config else rest)
    if left:
        odd = (*odd, speculation.FLAG, json.dumps(left))
    return msgspec.structs.replace(found, raw=(*found.raw, *odd))


def to_flags(wanted: Settings, version: str | None) -> tuple[str, ...]:
    """See `Engine.to_flags`: the model as first free word, as `vllm serve` wants it (`command` adapts it).

    `spec_steps=0` means no speculation. `hicache_gb` (1e9 bytes) becomes KV offload in GiB (2**30 bytes), which vLLM
    counts in total over ranks.
    """
    given = wanted.given()
    if given.get("hicache") is False or given.get("hicache_gb") == 0:
        for name in ("hicache", "hicache_gb", "hicache_ratio", "hicache_write_policy", "hicache_io_backend"):
            given.pop(name, None)
    refuse(MAP.title, given, _REFUSED)
    if given.get("metrics") is False:
        raise UsageError("vLLM always serves /metrics", hint="--disable-log-stats would stop its log statistics too")
    table = MAP.catalog().at(version)
    _offload(given, table)
    chunk = given.get("chunked_prefill")
    if isinstance(chunk, int) and chunk < 0:
        raise UsageError("chunked_prefill=-1 is SGLang's; vLLM takes a number of tokens", hint="leave it out")
    model = given.pop("model", None)
    config, raw = _speculation(given, wanted.raw, table)
    spec = [speculation.FLAG, json.dumps(config)] if config else []
    return (*([str(model)] if model else []), *MAP.give(given, table), *spec, *raw)


def _speculation(
    given: dict[str, object], raw: Sequence[str], table: Pick
) -> tuple[dict[str, object], tuple[str, ...]]:
    """One speculative configuration of settings and raw flags, and the raw flags without it."""
    if given.get("spec_steps") is None and given.get("spec_method") is None and given.get("draft_model") is None:
        return {}, tuple(raw)
    words = MAP.words(raw, table.wanted)
    rest, others = speculation.fold(words)
    return speculation.config_of(given, rest, table), tuple(token for word in others for token in word.tokens)


def _offload(given: dict[str, object], table: Pick) -> None:
    size = given.pop("hicache_gb", None)
    asked = given.pop("hicache", None)
    if given.get("kv_offload_gib") == 0:
        given.pop("kv_offload_gib")
    if isinstance(size, (int, float)) and given.get("kv_offload_gib") is None:
        given["kv_offload_gib"] = gib_of_gb(size)
    elif asked and given.get("kv_offload_gib") is None:
        raise UsageError("vLLM's KV offload needs a size", hint="set kv_offload_gib")
    if given.get("kv_offload_gib") is not None:
        MAP.option("kv_offload_gib", table)


def gib_of_gb(size_gb: float) -> float:
    """GB (1e9 bytes) in GiB (2**30 bytes), to three decimals."""
    return round(size_gb * 1e9 / 2**30, 3)

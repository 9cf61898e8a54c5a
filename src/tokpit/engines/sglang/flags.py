"""SGLang: canonical settings to and from flags. Renames follow the version's own flag table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from tokpit.domain.settings import Settings
from tokpit.engines.flagkit.canon import Map, Rule, refuse, settings
from tokpit.engines.flagkit.dialect import Dialect, Word
from tokpit.engines.flagkit.tables import Pick, catalog
from tokpit.engines.sglang.renames import RENAMES
from tokpit.errors import UsageError

DIALECT = Dialect(positional=True)

_RULES = (
    Rule(setting="model", options=("--model-path", "--model")),
    Rule(setting="served_name", options=("--served-model-name",)),
    Rule(setting="listen", options=("--host",)),
    Rule(setting="port", options=("--port",), kind="int"),
    Rule(setting="tp", options=("--tp-size", "--tensor-parallel-size"), kind="int"),
    Rule(setting="dp", options=("--dp-size", "--data-parallel-size"), kind="int"),
    Rule(setting="pp", options=("--pp-size", "--pipeline-parallel-size"), kind="int"),
    Rule(setting="context_len", options=("--context-length",), kind="int"),
    Rule(setting="max_running", options=("--max-running-requests",), kind="int"),
    Rule(setting="mem_fraction", options=("--mem-fraction-static",), kind="float"),
    Rule(setting="kv_tokens", options=("--max-total-tokens",), kind="int"),
    Rule(setting="dtype", options=("--dtype",)),
    Rule(setting="kv_dtype", options=("--kv-cache-dtype",)),
    Rule(setting="quantization", options=("--quantization",)),
    Rule(setting="page_size", options=("--page-size",), kind="int"),
    Rule(setting="prefix_cache", options=("--disable-radix-cache",), kind="off"),
    Rule(setting="chunked_prefill", options=("--chunked-prefill-size",), kind="int"),
    Rule(setting="spec_method", options=("--speculative-algorithm",)),
    Rule(setting="spec_steps", options=("--speculative-num-steps",), kind="int"),
    Rule(setting="spec_topk", options=("--speculative-eagle-topk",), kind="int"),
    Rule(setting="spec_draft_tokens", options=("--speculative-num-draft-tokens",), kind="int"),
    Rule(setting="draft_model", options=("--speculative-draft-model-path", "--speculative-draft-model")),
    Rule(setting="hicache", options=("--enable-hierarchical-cache", "--enable-hicache"), kind="on"),
    Rule(setting="hicache_gb", options=("--hicache-size",), kind="int"),
    Rule(setting="hicache_ratio", options=("--hicache-ratio",), kind="float"),
    Rule(setting="hicache_write_policy", options=("--hicache-write-policy",)),
    Rule(setting="hicache_io_backend", options=("--hicache-io-backend",)),
    Rule(setting="mamba_strategy", options=("--mamba-radix-cache-strategy", "--mamba-scheduler-strategy")),
    Rule(setting="state_slots", options=("--max-mamba-cache-size",), kind="int"),
    Rule(setting="mamba_ratio", options=("--mamba-full-memory-ratio",), kind="float"),
    Rule(setting="reasoning_parser", options=("--reasoning-parser",)),
    Rule(setting="tool_parser", options=("--tool-call-parser",)),
    Rule(setting="metrics", options=("--enable-metrics",), kind="on"),
)
MAP = Map("SGLang", _RULES, DIALECT, partial(catalog, "sglang"), RENAMES)

_WORDS = {
    "mtp": "NEXTN",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "ngram": "NGRAM",
    "draft": "STANDALONE",
    "dflash": "DFLASH",
}
_METHODS = {word: method for method, word in _WORDS.items()}
_CHAINED = ("mtp", "eagle", "eagle3", "draft")
_SPEC = ("spec_method", "spec_steps", "spec_topk", "spec_draft_tokens", "draft_model")
_HOST_CACHE = ("hicache", "hicache_gb", "hicache_ratio", "hicache_write_policy", "hicache_io_backend")


def from_flags(flags: Sequence[str], version: str | None) -> Settings:
    """See `Engine.from_flags`. A host cache that is sized but not switched on reads as `hicache=False`."""
    given, rest = MAP.take(MAP.words(flags, version))
    raw_tail: tuple[str, ...] = ()
    if given.get("hicache_gb") == 0:
        del given["hicache_gb"]  # 0 is "by ratio" on the command line, the default; canonical 0 is "no host cache"
    if given.get("spec_steps") == 0:
        del given["spec_steps"]
        raw_tail = ("--speculative-num-steps", "0")
    if any(given.get(name) is not None for name in _HOST_CACHE[1:]) and given.get("hicache") is None:
        given["hicache"] = False
    method, size = given.get("spec_method"), given.get("hicache_gb")
    if isinstance(method, str):
        given["spec_method"] = _METHODS.get(method.upper(), method)
    if given.get("spec_method") == "dflash" and given.get("spec_draft_tokens") is None:
        rest = _block_size(given, rest)
    if isinstance(size, int):
        given["hicache_gb"] = float(size)
    found = settings(given, rest)
    return msgspec.structs.replace(found, raw=found.raw + raw_tail) if raw_tail else found


_BLOCK = "--speculative-dflash-block-size"


def _block_size(given: dict[str, object], rest: list[Word]) -> list[Word]:
    """Take the block size out of `rest`: it is the number of draft tokens under another name (`_handle_dflash`)."""
    for word in rest:
        if word.spec is not None and _BLOCK in word.spec.flags and len(word.values) == 1 and word.values[0].isdecimal():
            given["spec_draft_tokens"] = int(word.values[0])
            return [other for other in rest if other is not word]
    return rest


def to_flags(wanted: Settings, version: str | None) -> tuple[str, ...]:
    """See `Engine.to_flags`. `spec_steps=0` means no speculation, `hicache_gb=0` no host cache."""
    refuse(
        MAP.title,
        wanted.given(),
        {"kv_offload_gib": "set hicache_gb: GB (1e9 bytes) per rank, not GiB in total"},
    )
    table = MAP.catalog().at(version)
    given = wanted.given()
    _speculation(given, table)
    _host_cache(given)
    return (*MAP.give(given, table), *wanted.raw)


def _host_cache(given: dict[str, object]) -> None:
    size = given.get("hicache_gb")
    if size == 0:
        for name in _HOST_CACHE:
            given.pop(name, None)
        return
    if isinstance(size, float):
        if not size.is_integer():
            raise UsageError(f"SGLang takes whole GB for the host cache, not {size:g}", hint="round hicache_gb")
        given["hicache_gb"] = int(size)
    if given.get("hicache") is None and any(given.get(name) is not None for name in _HOST_CACHE[1:]):
        given["hicache"] = True


def _speculation(given: dict[str, object], table: Pick) -> None:
    """Complete what the engine needs: steps, top-k and draft tokens together, or it dies comparing None to a number."""
    if given.get("spec_steps") == 0:
        for name in _SPEC:
            given.pop(name, None)
        return
    method, steps = given.get("spec_method"), given.get("spec_steps")
    if not isinstance(method, str):
        return
    if method in _CHAINED and isinstance(steps, int):
        topk = given.setdefault("spec_topk", 1)
        if topk == 1:
            given["spec_draft_tokens"] = steps + 1  # a chain; the engine itself corrects any other number to this one
        elif given.get("spec_draft_tokens") is None:
            raise UsageError(
                f"spec_topk={topk} drafts a tree, whose size SGLang must be told", hint="set spec_draft_tokens too"
            )
    elif method in ("dflash", "ngram") and isinstance(steps, int) and given.get("spec_draft_tokens") is None:
        given["spec_draft_tokens"] = steps + 1  # they draft in one block: its size is steps + the verified token
        del given["spec_steps"]
    word = _WORDS.get(method, method)
    spec = table.exact("--speculative-algorithm")
    if spec is not None and spec.choices and word not in spec.choices:
        raise UsageError(
            f"SGLang {table.wanted or table.sampled} has no speculative algorithm {word}",
            hint=f"it has {', '.join(map(str, spec.choices))}",
        )
    given["spec_method"] = word

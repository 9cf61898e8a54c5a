"""llama-server: canonical settings to and from flags. Newer builds renamed the draft flags."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from tokpit.domain.settings import Settings
from tokpit.engines import version as versions
from tokpit.engines.flagkit.canon import Map, Rule, refuse, settings
from tokpit.engines.flagkit.dialect import Dialect
from tokpit.engines.flagkit.tables import catalog
from tokpit.engines.llamacpp.renames import RENAMES
from tokpit.errors import UsageError

DIALECT = Dialect(argparse=False, underscores=True)

_RULES = (
    Rule(setting="model", options=("--model", "-m")),
    Rule(setting="served_name", options=("--alias", "-a")),
    Rule(setting="listen", options=("--host",)),
    Rule(setting="port", options=("--port",), kind="int"),
    Rule(setting="context_len", options=("--ctx-size", "-c"), kind="int"),
    Rule(setting="max_running", options=("--parallel", "-np"), kind="int"),
    Rule(setting="chunked_prefill", options=("--batch-size", "-b"), kind="int"),
    Rule(setting="prefix_cache", options=("--cache-prompt",), kind="both"),
    Rule(setting="spec_method", options=("--spec-type",)),
    Rule(setting="spec_steps", options=("--spec-draft-n-max",), kind="int"),
    Rule(setting="draft_model", options=("--spec-draft-model", "--model-draft", "-md")),
    Rule(setting="metrics", options=("--metrics",), kind="on"),
)
MAP = Map("llama-server", _RULES, DIALECT, partial(catalog, "llamacpp"), RENAMES)

_WORDS = {
    "mtp": "draft-mtp",
    "dflash": "draft-dflash",
    "eagle3": "draft-eagle3",
    "draft": "draft-simple",
    "ngram": "ngram-simple",
}
_METHODS = {word: method for method, word in _WORDS.items()}
_OLD_STEPS = ("--draft-max", "--draft", "--draft-n")
_NEW_DRAFT_FLAGS = "b8950"
"""About the build (late April 2026) that turned `--draft-max` into `--spec-draft-n-max`; the old name then fails."""
_KV = ("-ctk", "-ctv")

_REFUSED = {
    "tp": "see --split-mode and --tensor-split",
    "dp": "llama-server is one process",
    "pp": "see --split-mode",
    "mem_fraction": "see --fit and --n-gpu-layers",
    "kv_tokens": "the KV cache holds context_len tokens",
    "dtype": "the model file fixes it",
    "quantization": "the model file fixes it",
    "page_size": "llama-server's KV cache has no pages",
    "spec_topk": "llama-server drafts a chain",
    "hicache_ratio": "see --cache-ram (MiB)",
    "hicache_write_policy": "see --cache-ram (MiB)",
    "hicache_io_backend": "see --cache-ram (MiB)",
    "hicache_gb": "see --cache-ram (MiB)",
    "kv_offload_gib": "see --cache-ram (MiB)",
    "mamba_strategy": "llama-server keeps one state a slot",
    "state_slots": "llama-server keeps one state a slot",
    "mamba_ratio": "llama-server keeps one state a slot",
    "reasoning_parser": "see --reasoning-format",
    "tool_parser": "see --jinja",
}


def from_flags(flags: Sequence[str], version: str | None) -> Settings:
    """See `Engine.from_flags`. Key and value types of the KV cache are one setting where they are the same."""
    words = MAP.words(flags, version)
    given, rest = MAP.take(words)
    kinds = {_short(word.spec.flags): word.values[0] for word in rest if word.spec and word.values}
    if kinds.get("-ctk") is not None and kinds.get("-ctk") == kinds.get("-ctv"):
        given["kv_dtype"] = kinds["-ctk"]
        rest = [word for word in rest if not (word.spec and _short(word.spec.flags) in _KV)]
    for word in list(rest):
        if word.spec and word.spec.flags[0] in _OLD_STEPS and len(word.values) == 1 and word.values[0].isdigit():
            given["spec_steps"] = int(word.values[0])
            rest.remove(word)
    method = given.get("spec_method")
    if isinstance(method, str):
        given["spec_method"] = _METHODS.get(method, method)
    found = settings(given, rest)
    if found.spec_steps == 0:
        return msgspec.structs.replace(found, spec_steps=None, raw=(*found.raw, _steps_flag(version), "0"))
    return found


def _short(options: Sequence[str]) -> str:
    return next((option for option in options if option in _KV), "")


def _steps_flag(version: str | None) -> str:
    wanted, new = versions.parse(version), versions.parse(_NEW_DRAFT_FLAGS)
    old = wanted is not None and new is not None and wanted.target() < new
    return _OLD_STEPS[0] if old else "--spec-draft-n-max"


def to_flags(wanted: Settings, version: str | None) -> tuple[str, ...]:
    """See `Engine.to_flags`. `context_len` is the whole KV cache, which llama-server splits over its slots."""
    given = wanted.given()
    if given.get("hicache") is False or given.get("hicache_gb") == 0:
        for name in ("hicache", "hicache_gb", "hicache_ratio", "hicache_write_policy", "hicache_io_backend"):
            given.pop(name, None)
    for name in ("tp", "dp", "pp", "spec_topk"):
        if given.get(name) == 1:
            del given[name]
    refuse(MAP.title, given, _REFUSED)
    steps, tokens = given.pop("spec_steps", None), given.pop("spec_draft_tokens", None)
    if steps == 0:
        for name in ("spec_method", "draft_model"):
            given.pop(name, None)
        steps = None
    elif steps is None and isinstance(tokens, int):
        steps = tokens - 1
    method = given.get("spec_method")
    old = _steps_flag(version) == _OLD_STEPS[0]
    if isinstance(method, str):
        given["spec_method"] = _WORDS.get(method, method)
        if old and method != "draft":
            raise UsageError(f"llama-server {version} drafts with a draft model only", hint="a newer build has MTP")
        if old:
            del given["spec_method"]
    table = MAP.catalog().at(version)
    kv = given.pop("kv_dtype", None)
    out = MAP.give(given, table)
    if old and "--spec-draft-model" in out:
        out[out.index("--spec-draft-model")] = "--model-draft"
    if steps is not None:
        out += [_steps_flag(version), str(steps)]
    if kv is not None:
        out += ["--cache-type-k", str(kv), "--cache-type-v", str(kv)]
    return (*out, *wanted.raw)

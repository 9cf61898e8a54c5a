"""Kinds of flag values: one short word for the many ways in which engines declare types, and readers for each.

Kinds: `bool` (takes no value), `int`, `float`, `str`, `lower` (text, case and dashes do not matter), `json`,
`human` (integer with suffix), `human-auto` (the same, or `auto` = -1), `opaque` (the engine decides).
"""

from __future__ import annotations

import math
import re

_EXACT = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "str": "str",
    "nullable_str": "str",
    "<lambda>": "lower",
    "human_readable_int": "human",
    "human_readable_int_or_auto": "human-auto",
    "loads": "json",
    "json.loads": "json",
    "parse_dataclass": "json",
    "union_dict_and_str": "json",
    "json_list_type": "json",
    "parse_cuda_graph_config_arg": "json",
    "check_port": "int",
    "_optional_type": "opaque",
    "_parse_type": "opaque",
    "optional_type": "opaque",
    "parse_type": "opaque",
    "None": "str",
}
_KINDS = frozenset(_EXACT.values())
_WRAPPED = re.compile(r"^(?:typing\.)?(?:Optional|SkipValidation|list|List|set|Set|Sequence)\[(.*)\]$")
_SUFFIXED = re.compile(r"^(\d+(?:\.\d+)?)([kKmMgGtT]i?)$")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def kind_of(declared: str | None, nargs: object = None) -> str:
    """The kind of a declared type: converter name (`_optional_type`) or annotation (`Optional[int]`, `int | None`)."""
    if nargs == 0:
        return "bool"
    text = (declared or "None").strip()
    if text in _KINDS:
        return text
    while True:
        before = text
        text = re.sub(r"\s*\|\s*None\b|\bNone\s*\|\s*", "", text).strip()
        if wrapped := _WRAPPED.match(text):
            text = wrapped[1].strip()
        if text == before:
            break
    if text in _EXACT:
        return _EXACT[text]
    if text.startswith(("dict", "Dict")) or "Config" in text:
        return "json"
    return "str"


def human_int(text: str, *, binary_capitals: bool) -> int | None:
    """An integer with suffix, or None. vLLM: `k` 1000, `K` 1024 (`binary_capitals`); SGLang: `k` `M` 1000s, `Ki` 1024s.

    Decimals only with the thousands suffixes, as both engines have it.
    """
    text = text.strip()
    found = _SUFFIXED.match(text)
    if found is None:
        try:
            return int(text)
        except ValueError:
            return None
    number, suffix = found.groups()
    binary = suffix[0].upper() if suffix.endswith("i") else suffix
    is_binary = suffix.endswith("i") if not binary_capitals else suffix in _BINARY
    if is_binary:
        return int(number) * _BINARY[binary] if "." not in number else None
    if suffix.endswith("i") or (not binary_capitals and suffix not in ("k", "M", "G", "T")):
        return None
    whole, _, fraction = number.partition(".")
    scale = _DECIMAL[suffix.lower()]
    return int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)


def to_float(text: str) -> float | None:
    """A finite decimal number, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None

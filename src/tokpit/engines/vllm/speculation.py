"""vLLM's speculative configuration: JSON, dotted keys and the short flags, folded into one dictionary and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tokpit.engines.flagkit.dialect import Word
from tokpit.engines.flagkit.kinds import human_int
from tokpit.engines.flagkit.tables import Pick
from tokpit.engines.version import at_least
from tokpit.errors import UsageError

FLAG = "--speculative-config"
_SHORT = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}
_WORDS = {"draft": "draft_model"}
_METHODS = {word: method for method, word in _WORDS.items()}
_FIRST = {"eagle3": "0.9.2", "mtp": "0.10.0", "dflash": "0.25.0"}
"""First version known to take the method."""
_ONE_MTP = "0.12.0"
"""Known since then: the engine itself rewrites every model family's `*_mtp` to `mtp`."""


def fold(words: Iterable[Word]) -> tuple[dict[str, Any], list[Word]]:
    """The speculative configuration that these words add up to, and the words that are none of it.

    As the engine does it: dotted keys make one JSON that replaces an earlier whole one; the short flags add to it.
    Words whose value is no JSON object stay.
    """
    whole: dict[str, Any] = {}
    dotted: dict[str, Any] = {}
    short: dict[str, Any] = {}
    rest: list[Word] = []
    for word in words:
        flags = word.spec.flags if word.spec is not None else ()
        value = word.values[0] if len(word.values) == 1 else None
        key = next((_SHORT[flag] for flag in flags if flag in _SHORT), None)
        if FLAG in flags and value is not None and word.keys:
            merge(dotted, word.keys, value_of(value, append=word.append))
        elif FLAG in flags and value is not None and (loaded := load_object(value)) is not None:
            whole = loaded
        elif key is not None and value is not None and not word.keys:
            number = human_int(value, binary_capitals=True) if key == "num_speculative_tokens" else value
            short[key] = value if number is None else number
        else:
            rest.append(word)
    return {**(dotted or whole), **short}, rest


def load_object(text: str) -> dict[str, Any] | None:
    """A JSON object, or None."""
    try:
        loaded = json.loads(text)
    except ValueError:
        return None
    return loaded if isinstance(loaded, dict) else None


def value_of(text: str, *, append: bool) -> Any:
    """The value of a dotted key: JSON, an integer with suffix, or the text; a list of texts for `key+`."""
    if append:
        return text.split(",")
    try:
        return json.loads(text)
    except ValueError:
        number = human_int(text, binary_capitals=True)
        return text if number is None else number


def merge(into: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    """Set a nested key; lists grow, everything else is replaced."""
    for key in keys[:-1]:
        inner = into.get(key)
        if not isinstance(inner, dict):
            inner = into[key] = {}
        into = inner
    last = keys[-1]
    if isinstance(value, list) and isinstance(into.get(last), list):
        into[last] = into[last] + value
    elif isinstance(value, dict) and isinstance(into.get(last), dict):
        for key, item in value.items():
            merge(into[last], (key,), item)
    else:
        into[last] = value


def canonical(config: Mapping[str, Any], version: str | None) -> tuple[dict[str, object], dict[str, Any]]:
    """Canonical settings in a speculative configuration, and the keys that have no canonical name."""
    given: dict[str, object] = {}
    rest = dict(config)
    method, model, steps = rest.get("method"), rest.get("model"), rest.get("num_speculative_tokens")
    if isinstance(method, str) and method:
        given["spec_method"] = _method(method, version)
        del rest["method"]
    if isinstance(model, str) and model:
        given["draft_model"] = model
        del rest["model"]
    if isinstance(steps, int) and not isinstance(steps, bool) and steps > 0:
        given["spec_steps"] = steps
        del rest["num_speculative_tokens"]
    return given, rest


def _method(word: str, version: str | None) -> str:
    if word in _METHODS:
        return _METHODS[word]
    if at_least(version, _ONE_MTP):
        return "mtp" if word.endswith("_mtp") else word
    return "mtp" if word == "deepseek_mtp" else word


def config_of(given: Mapping[str, object], rest: Mapping[str, Any], table: Pick) -> dict[str, Any]:
    """The speculative configuration for settings, over the keys in `rest`. Empty: no speculation.

    Raises UsageError for what this version or engine cannot take.
    """
    steps, method = given.get("spec_steps"), given.get("spec_method")
    if steps == 0:
        return {}
    tokens = given.get("spec_draft_tokens")
    if given.get("spec_topk") not in (None, 1):
        raise UsageError("vLLM drafts a chain, not a tree", hint="set spec_topk to 1 or leave it out")
    if steps is None and isinstance(tokens, int):
        steps = tokens - 1  # counted with the verified token elsewhere, without it here
    config: dict[str, Any] = {}
    if isinstance(method, str):
        config["method"] = _word(method, table)
    if given.get("draft_model") is not None:
        config["model"] = given["draft_model"]
    if steps is not None:
        config["num_speculative_tokens"] = steps
    return {**config, **{key: value for key, value in rest.items() if key not in config}}


def _word(method: str, table: Pick) -> str:
    version = table.wanted or table.sampled
    first = _FIRST.get(method)
    if first is not None and not at_least(version, first):
        raise UsageError(f"vLLM {version} has no speculative method {method}", hint=f"vLLM {first} and later have it")
    if method == "mtp" and not at_least(version, _ONE_MTP):
        return "deepseek_mtp"
    return _WORDS.get(method, method)

"""The settings an engine prints of itself at its start: SGLang's `server_args=`, vLLM's `non-default args:`."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping

import msgspec

from tokpit.domain.settings import Settings
from tokpit.engines.flagkit.tables import catalog
from tokpit.engines.registry import engines

_LONGEST = 400_000
_LITERALS = (str, int, float, bool, type(None), list, tuple, dict)


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """What was printed. `resolved`: all values, those that the engine chose included, not only those that were given.

    The settings of a resolved echo hold no flags without a canonical name: most of these are the engine's own doing.
    """

    engine: str
    settings: Settings
    resolved: bool
    values: Mapping[str, object] = {}


def read_echo(line: str) -> Echo | None:
    """The settings in a log line; None where it prints none or its form is not understood."""
    line = line[:_LONGEST]
    for engine in engines():
        for head, resolved in engine.traces.echoes:
            match = re.search(head, line)
            if match is None:
                continue
            values = _values(line[match.end() :].strip())
            if not values:
                return None
            flags = _flags(engine.name, values, resolved=resolved)
            settings = engine.from_flags(flags, None)
            if resolved:
                settings = msgspec.structs.replace(settings, raw=())
            return Echo(engine=engine.name, settings=settings, resolved=resolved, values=values)
    return None


def _values(text: str) -> dict[str, object]:
    """Fields of `(a=1, b='x')`, `{'a': 1}` or JSON; fields whose value is no literal are left out."""
    text = _closed(text)
    if text.startswith("{"):
        try:
            page = json.loads(text)
            return page if isinstance(page, dict) else {}
        except ValueError:
            pass
    # Printed objects such as <Enum.X: 'x'> are no Python; a name in their place is, and is left out below.
    text = re.sub(r"<[^<>\n]{1,200}>", "_", text)
    try:
        tree = ast.parse(("_" if text.startswith("(") else "") + text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return {}
    pairs: list[tuple[object, ast.expr]] = []
    if isinstance(tree, ast.Call):
        pairs = [(keyword.arg, keyword.value) for keyword in tree.keywords]
    elif isinstance(tree, ast.Dict):
        pairs = [
            (key.value, value)
            for key, value in zip(tree.keys, tree.values, strict=True)
            if isinstance(key, ast.Constant)
        ]
    found: dict[str, object] = {}
    for name, node in pairs:
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(name, str) and isinstance(value, _LITERALS):
            found[name] = value
    return found


def _closed(text: str) -> str:
    """The text up to the bracket that closes the first one; quotes are minded."""
    depth, quote, escaped = 0, "", False
    for at, char in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                return text[: at + 1]
    return text


def _flags(name: str, values: Mapping[str, object], *, resolved: bool) -> list[str]:
    specs = {spec.dest: spec for spec in catalog(name).at(None).rows}
    flags: list[str] = []
    for key, value in values.items():
        spec = specs.get(key)
        if value is None or key in {"subparser", "dispatch_function", "config", "headless"}:
            continue
        if resolved and (value is False or value in ([], (), {}) or (spec is not None and value == spec.default)):
            continue
        if key == "model_tag":
            key = "model"
        option = "--" + key.replace("_", "-")
        if spec is not None and spec.flags and spec.flags[0].startswith("-"):
            option = next((flag for flag in spec.flags if flag.startswith("--")), option)
        if value is True:
            flags.append(option)
        elif value is False:
            flags.append("--no-" + option[2:])
        elif isinstance(value, dict):
            flags += [option, json.dumps(value)]
        elif isinstance(value, list | tuple):
            flags += [option, *map(str, value)]
        else:
            flags += [option, str(value)]
    return flags

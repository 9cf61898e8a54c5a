"""The engines tokpit knows: one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import cast

from tokpit.engines.base import Engine, Recognised
from tokpit.errors import UsageError

_MODULES: Mapping[str, str] = {
    "sglang": "tokpit.engines.sglang",
    "vllm": "tokpit.engines.vllm",
    "llamacpp": "tokpit.engines.llamacpp",
}


def names() -> tuple[str, ...]:
    """Registered engine names, in the order in which they are tried."""
    return tuple(_MODULES)


def engine(name: str) -> Engine:
    """The engine of that name. Raises UsageError with the known names."""
    if name not in _MODULES:
        raise UsageError(f"unknown engine {name!r}", hint=f"known engines: {', '.join(_MODULES)}")
    return cast(Engine, import_module(_MODULES[name]).ENGINE)


def engines() -> tuple[Engine, ...]:
    """All registered engines, in the order in which they are tried."""
    return tuple(map(engine, _MODULES))


def titles() -> dict[str, str]:
    """Title by registered name."""
    return {known.name: known.title for known in engines()}


def listed(word: str = "or") -> str:
    """The titles in a sentence: `A, B or C`."""
    *first, last = titles().values()
    return f"{', '.join(first)} {word} {last}" if first else last


def env_prefixes() -> tuple[str, ...]:
    """How the environment variables begin that change the ways of an engine."""
    return tuple(prefix for known in engines() for prefix in known.env_prefixes)


def of_metrics(text: str) -> str:
    """The engine whose metrics page this is, by its names; the first registered where none says so."""
    for known in engines():
        if any(prefix in text for prefix in known.traces.metrics):
            return known.name
    return names()[0]


def recognise(argv: Sequence[str]) -> Recognised | None:
    """The engine whose main process this command line is, if any."""
    for name in _MODULES:
        found = engine(name).recognise(argv)
        if found is not None:
            return found
    return None

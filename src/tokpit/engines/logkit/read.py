"""Reading a whole log: which engine wrote it, and its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import chain, islice
from typing import cast

from tokpit.domain.records import LogRecord
from tokpit.engines.base import Grammar

_ENGINES = ("sglang", "vllm", "llamacpp")
_LOOK = 400
"""Lines looked at to tell whose log it is."""


def grammar_of(engine: str) -> Grammar:
    """A fresh grammar of an engine by its registered name. Raises KeyError for an unknown name."""
    if engine not in _ENGINES:
        raise KeyError(engine)
    return cast(Grammar, import_module(f"tokpit.engines.{engine}.grammar").new())


def detect(lines: Iterable[str]) -> str | None:
    """The engine whose grammar knows most of these lines; None where none knows any. The first wins a tie."""
    held = list(lines)
    scores = {name: _known(name, held) for name in _ENGINES}
    best = max(_ENGINES, key=lambda name: scores[name])
    return best if scores[best] else None


def _known(engine: str, lines: Iterable[str]) -> int:
    grammar = grammar_of(engine)
    records = [record for line in lines for record in grammar.feed(line)] + list(grammar.flush())
    # Bars and access lines look alike in all engines. Failures may, so they only decide where nothing else does.
    score = sum(
        (30 if record.kind.startswith(_OWN) else 0)
        + (10 if any(name in record.fields for name in _HEADED[engine]) else 0)
        + (1 if record.kind.startswith("failure.") and record.kind != "failure.exception" else 0)
        for record in records
    )
    hints = sum(1 for record in records if _HINTS[engine] in record.text[:300])
    return score + 20 * min(hints, 3)


_OWN = ("decode_", "prefill_", "stats", "spec", "slot_", "milestone.", "prompt_t", "gen_t", "draft_", "iteration")
_HEADED = {"sglang": ("ts",), "vllm": ("source", "process"), "llamacpp": ("t",)}
_HINTS = {"sglang": "launch_server", "vllm": "vllm", "llamacpp": "ggml"}


def read_log(lines: Iterable[str], engine: str | None = None) -> Iterator[LogRecord]:
    """The records of a log. `lines` may end in newlines; `engine` None: told from the first lines.

    A log that no grammar knows is read as text. Raises KeyError for an unknown engine name.
    """
    source = iter(lines)
    head = [line.rstrip("\n") for line in islice(source, _LOOK)] if engine is None else []
    grammar = grammar_of(engine or detect(head) or _ENGINES[0])
    for line in chain(head, (line.rstrip("\n") for line in source)):
        yield from grammar.feed(line)
    yield from grammar.flush()

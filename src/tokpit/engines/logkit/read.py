"""Reading a whole log: which engine wrote it, and its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from tokpit.domain.records import LogRecord
from tokpit.engines import registry
from tokpit.engines.base import Grammar

_LOOK = 400
"""Lines looked at to tell whose log it is."""
_LOOK_ON = 5000
"""As many where the first ones say nothing."""


def grammar_of(engine: str) -> Grammar:
    """A fresh grammar of an engine by its registered name. Raises UsageError for an unknown name."""
    return registry.engine(engine).grammar()


def detect(lines: Iterable[str]) -> str | None:
    """The engine whose marks these lines bear and whose grammar knows them best; None where neither says anything.

    The first registered wins a tie.
    """
    held = list(lines)
    scores = {name: _weight(name, held) for name in registry.names()}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] else None


_SHARED = ("text", "access", "progress.", "failure.exception")
"""Kinds that look alike in all engines."""


def _weight(engine: str, lines: Sequence[str]) -> int:
    knowledge = registry.engine(engine)
    grammar = knowledge.grammar()
    records = [record for line in lines for record in grammar.feed(line)] + list(grammar.flush())
    # Failures of the runtime below read alike in all engines: they only decide where nothing else does.
    known = sum(
        1 if record.kind.startswith("failure.") else 30 for record in records if not record.kind.startswith(_SHARED)
    )
    return known + sum(map(knowledge.log_weight, lines))


def read_log(lines: Iterable[str], engine: str | None = None) -> Iterator[LogRecord]:
    """The records of a log. `lines` may end in newlines; `engine` None: told from the lines.

    A log that no engine has marked is read as the first registered engine would. Raises UsageError for an unknown
    engine name.
    """
    source = (line.rstrip("\n") for line in lines)
    head: list[str] = []
    if engine is None:
        engine, head = told(source)
    grammar = grammar_of(engine or registry.names()[0])
    for line in chain(head, source):
        yield from grammar.feed(line)
    yield from grammar.flush()


def told(source: Iterator[str]) -> tuple[str | None, list[str]]:
    """The engine that a log's first lines tell (None: none), and the lines that were taken from `source` for it."""
    head = list(islice(source, _LOOK))
    engine = detect(head)
    if engine is None and len(head) == _LOOK:
        more = list(islice(source, _LOOK_ON - _LOOK))
        engine = detect(more)
        head += more
    return engine, head

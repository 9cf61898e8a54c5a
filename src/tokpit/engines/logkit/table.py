"""Tables of line shapes: which regular expression names which kind, tried cheaply."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tokpit.domain.records import Value
from tokpit.engines.logkit.values import Convert, converter

_KEY = 4
"""Messages are dispatched on their first characters, so that an unknown line costs one dictionary look-up."""


class Start(NamedTuple):
    """A shape that begins with a literal text; the named groups of `regex` (matched after it) are fields."""

    kind: str
    start: str
    regex: str = ""


class Inside(NamedTuple):
    """A shape found anywhere in a message that contains `need`; `regex` (default: the literal) carries fields."""

    kind: str
    need: str
    regex: str = ""


class _Rule(NamedTuple):
    kind: str
    literal: str
    search: re.Pattern[str]
    groups: tuple[tuple[str, Convert], ...]


class Found(NamedTuple):
    """The kind of a message, and the fields that it carries."""

    kind: str
    fields: dict[str, Value]


def _rule(kind: str, literal: str, pattern: str) -> _Rule:
    compiled = re.compile(pattern)
    return _Rule(kind, literal, compiled, tuple((name, converter(name)) for name in compiled.groupindex))


def _found(rule: _Rule, match: re.Match[str]) -> Found:
    fields: dict[str, Value] = {}
    for name, convert in rule.groups:
        text = match.group(name)
        if text is not None:
            fields[name] = convert(text)
    return Found(rule.kind, fields)


class Table:
    """All shapes of an engine, most specific first. A message costs linear time whatever it holds."""

    def __init__(self, starts: Sequence[Start], insides: Sequence[Inside], gates: Sequence[str]) -> None:
        """`gates`: short texts, one of which is in every literal of `insides`, so that few are looked for.

        Raises ValueError for a literal that no gate would let through.
        """
        unseen = [shape.need for shape in insides if not any(gate in shape.need for gate in gates)]
        if unseen:
            raise ValueError(f"no gate lets through {unseen}")
        self._gates = tuple(gates)
        self._starts: dict[str, list[_Rule]] = {}
        for shape in starts:
            rule = _rule(shape.kind, shape.start, re.escape(shape.start) + shape.regex)
            self._starts.setdefault(shape.start[:_KEY], []).append(rule)
        self._insides = tuple(_rule(s.kind, s.need, s.regex or re.escape(s.need)) for s in insides)

    def dull(self, message: str) -> bool:
        """Whether no shape can fit, decided cheaply; a message that is not dull may still be unknown."""
        if message[:_KEY] in self._starts:
            return False
        for gate in self._gates:  # noqa: SIM110 - a generator costs more than the searches
            if gate in message:
                return False
        return True

    def find(self, message: str) -> Found | None:
        """The first shape that fits, None for an unknown message."""
        for rule in self._starts.get(message[:_KEY], ()):
            match = rule.search.match(message)
            if match is not None:
                return _found(rule, match)
        return self.find_inside(message)

    def find_inside(self, message: str) -> Found | None:
        """The first shape found anywhere in the message: failures, mostly."""
        for gate in self._gates:
            if gate in message:
                break
        else:
            return None
        for rule in self._insides:
            if rule.literal in message:
                match = rule.search.search(message)
                if match is not None:
                    return _found(rule, match)
        return None

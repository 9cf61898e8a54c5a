"""Statistics lines, fast: once a line has been read pair by pair, its layout is one regular expression.

A server prints the same keys in the same order all its life, so nearly every line after the first matches the layout
that was learned last. Anything else is read pair by pair again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tokpit.domain.records import Value

_MOST = 16
_MOST_TEXTS = 4096


def percent(text: str) -> float:
    """`97.8` -> 0.978."""
    return round(float(text) / 100, 8)


def is_true(text: str) -> bool:
    """`True` is true."""
    return text == "True"


def floats(text: str) -> tuple[float, ...]:
    """`0.9, 0.8` -> (0.9, 0.8)."""
    return tuple(map(float, text.split(", ")))


_GROUPS: dict[Callable[[str], Value], str] = {
    int: r"(\d{1,17})",
    float: r"([\d.]+)",
    percent: r"([\d.]+)",
    is_true: r"(True|False)",
    floats: r"([\d.]+(?:, [\d.]+)*)",
}


class _Memo(dict[str, Value]):
    """Texts already converted: usages and rates take few values, and looking one up is cheaper than converting it."""

    def __init__(self, convert: Callable[[str], Value]) -> None:
        super().__init__()
        self._convert = convert

    def __missing__(self, text: str) -> Value:
        value = self._convert(text)
        if len(self) < _MOST_TEXTS:
            self[text] = value
        return value


_MEMOS: dict[Callable[[str], Value], Callable[[str], Value]] = {
    convert: _Memo(convert).__getitem__ for convert in (int, float, percent)
}
_VARIED = ("tps", "tokens", "tokens_used", "bytes")
"""Ends of names whose values seldom repeat."""


class Part(NamedTuple):
    """A literal text, then the text of a field (none where `name` is empty)."""

    literal: str
    name: str = ""
    convert: Callable[[str], Value] = int


class _Layout(NamedTuple):
    kind: str
    match: Callable[..., re.Match[str] | None]
    names: tuple[str, ...]
    converters: tuple[Callable[[str], Value], ...]
    constants: list[Value]


class Layouts:
    """The layouts learned so far, the newest and most used first."""

    def __init__(self) -> None:
        self._known: list[_Layout] = []

    def learn(self, kind: str, parts: Sequence[Part], constants: dict[str, Value]) -> None:
        """Remember a layout. `constants` are fields with the same value in every line of it."""
        pattern = "".join(re.escape(part.literal) + (_GROUPS[part.convert] if part.name else "") for part in parts)
        named = [part for part in parts if part.name]
        layout = _Layout(
            kind,
            re.compile(pattern + "[ ,.]*$").match,
            (*(part.name for part in named), *constants),
            tuple(
                part.convert if part.name.endswith(_VARIED) else _MEMOS.get(part.convert, part.convert)
                for part in named
            ),
            list(constants.values()),
        )
        self._known.insert(0, layout)
        del self._known[_MOST:]

    def read(self, text: str, start: int, fields: dict[str, Value]) -> str | None:
        """Kind of the line from `start` on, with its fields added to `fields`; None if no layout fits."""
        for layout in self._known:
            match = layout.match(text, start)
            if match is None:
                continue
            # The lengths are those of one pattern: checking them again would cost more than the conversion.
            try:
                values = [c(v) for c, v in zip(layout.converters, match.groups())]  # noqa: B905
            except ValueError:  # 1.2.3
                return None
            fields.update(zip(layout.names, values + layout.constants))  # noqa: B905
            if layout is not self._known[0] and layout is not self._known[1]:
                self._known.remove(layout)
                self._known.insert(0, layout)
            return layout.kind
        return None

"""A report as data: what it says, in an order, before anybody knows in which format. Texts are plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


class Curve(msgspec.Struct, frozen=True):
    """One line of a chart. `half`: half width of each point's interval, where it is known."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    half: Sequence[float | None] = ()
    faint: bool = False
    """The one to compare with, drawn dashed and grey."""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Curves over common axes; `marks` are labelled vertical lines."""

    title: str
    unit: str
    x_label: str
    curves: Sequence[Curve]
    marks: Sequence[tuple[float, str]] = ()
    time: bool = False
    """x is seconds; else it is a concurrency, or another count."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of text; columns in `right` hold numbers. None is shown as a dash."""

    head: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    right: frozenset[int] = frozenset()
    note: str = ""


class Paragraph(msgspec.Struct, frozen=True):
    """A sentence or a few; `tone`: `good`, `bad`, `warn` or empty."""

    text: str
    tone: str = ""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, whole."""

    severity: str
    code: str
    claim: str
    arithmetic: Sequence[str] = ()
    evidence: Sequence[str] = ()
    next_action: str = ""
    confidence: str = ""


class Code(msgspec.Struct, frozen=True):
    """Text that keeps its spaces: a command line."""

    text: str


class Points(msgspec.Struct, frozen=True):
    """Short lines under one another."""

    items: Sequence[str]


Block = Chart | Table | Paragraph | Claim | Code | Points


class Section(msgspec.Struct, frozen=True):
    """Blocks under a heading."""

    title: str
    blocks: Sequence[Block]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A whole report. `data` is what the machine-readable formats give."""

    title: str
    subtitle: str = ""
    facts: Sequence[tuple[str, str]] = ()
    sections: Sequence[Section] = ()
    footer: str = ""
    data: Any = None
    rows: tuple[dict[str, Any], ...] = ()
    """The report's table for CSV: a row a level, finding or figure, all with the same keys."""

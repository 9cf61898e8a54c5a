"""Remote text is only text: the helpers through which every word from a host reaches the screen.

A row is a list of spans, `(text, style name)`; style names are resolved by `palette.Palette`. Nothing here knows
markup, so a bracket in a log line is a bracket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.content import Content
from textual.filter import LineFilter
from textual.strip import Strip

from tokpit.domain.text import sanitize
from tokpit.ui.palette import ON_CURSOR, Palette

_JOINERS = dict.fromkeys((0x200D, 0xFE0E, 0xFE0F))
PICKED = "◆"
"""Marks what is picked, on every screen."""
Span = tuple[str, str]
Row = Sequence[Span]


def safe(text: object) -> str:
    """One line of text that any terminal can print: no escapes, no controls, tabs widened.

    Joiners and variation selectors go: terminals disagree on the width of what they join.
    """
    clean = sanitize(str(text).replace("\n", " "))
    if not clean.isascii():
        clean = clean.translate(_JOINERS)
    return clean.expandtabs(4) if "\t" in clean else clean


def content(text: object) -> Content:
    """`text` for widgets that would otherwise read markup in it; newlines stay."""
    return Content("\n".join(safe(line) for line in str(text).split("\n")))


def width_of(text: str) -> int:
    """Terminal cells that `text` takes."""
    return len(text) if text.isascii() else cell_len(text)


def crop(text: str, width: int) -> str:
    """`text` in at most `width` cells; an ellipsis shows that something is missing."""
    if width_of(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    return set_cell_size(text, width - 1).rstrip() + "…"


def fit(text: str, width: int, *, right: bool = False) -> str:
    """`text` in exactly `width` cells, cropped or padded."""
    text = crop(text, width)
    pad = " " * (width - width_of(text))
    return pad + text if right else text + pad


def row_width(row: Iterable[Span]) -> int:
    """Cells that a row takes."""
    return sum(width_of(text) for text, _ in row)


def crop_row(row: Row, width: int) -> list[Span]:
    """The row in at most `width` cells; an ellipsis shows that something is missing."""
    kept: list[Span] = []
    left = width
    for text, style in row:
        cells = width_of(text)
        if cells > left:
            if left > 0:
                kept.append((crop(text, left), style))
            elif kept and text.strip():
                last, worn = kept[-1]
                kept[-1] = (crop(last + text, width_of(last)), worn)
            return kept
        kept.append((text, style))
        left -= cells
    return kept


def two_sided(left: Row, right: Row, width: int, *, fill: str = " ", fill_style: str = "fg") -> list[Span]:
    """A row with a left and a right part, which never touch; the left part gives way."""
    right = crop_row(right, width)
    room = width - row_width(right)
    left = crop_row(left, max(0, room - 1) if right else room)
    gap = room - row_width(left)
    return [*left, (fill * gap, fill_style), *right]


def fitting(parts: Iterable[Row], width: int, *, gap: int = 2) -> tuple[list[Span], int]:
    """As many whole parts as fit, with gaps between, and how many were left out: half a figure says nothing."""
    row: list[Span] = []
    left_out = 0
    for part in parts:
        between: list[Span] = [(" " * gap, "fg")] if row else []
        if row_width(row) + row_width(between) + row_width(part) > width:
            left_out += 1
        else:
            row += [*between, *part]
    return row, left_out


def wrap(text: str, width: int, *, indent: str = "") -> list[str]:
    """`text` in lines of at most `width` cells, cut at spaces where there are any."""
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        candidate = f"{current} {word}" if current else word
        if width_of(candidate) <= width:
            current = candidate
            continue
        if current:
            lines.append(current)
        current = indent + word if lines else word
        if width_of(current) > width:
            *whole, current = chop_cells(word, max(1, width - width_of(indent)))
            lines += [indent + part if lines or n else part for n, part in enumerate(whole)]
            current = indent + current
    return [*lines, current] if current or not lines else lines


def wrap_row(row: Row, width: int) -> list[list[Span]]:
    """A sentence of several styles in rows of at most `width` cells, cut at spaces; words keep their styles."""
    lines: list[list[Span]] = [[]]
    for text, style in row:
        for n, word in enumerate(text.split(" ")):
            space = " " if n and lines[-1] else ""
            if lines[-1] and row_width(lines[-1]) + width_of(space + word) > width:
                lines.append([])
                space = ""
            pieces = wrap(word, width) if word else [""]
            if space + pieces[0]:
                lines[-1].append((space + pieces[0], style))
            lines += [[(piece, style)] for piece in pieces[1:]]
    return lines


def under_cursor(row: Row, width: int) -> list[Span]:
    """The whole row on the cursor's ground, so that the eye finds its end; words keep their colour."""
    marked = [(text, style if style == "cursor" else f"{style}{ON_CURSOR}") for text, style in row]
    return [*marked, (" " * max(0, width - row_width(row)), "cursor")]


class Line(Strip):
    """A strip that is never kept in its own cache: rings live until the collector finds them, a frame's at once."""

    __slots__ = ()

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        """Itself, where nothing is cut; else as strips are."""
        cuts = list(cuts)
        return [self] if cuts == [self.cell_length] else super().divide(cuts)

    def apply_filter(self, filter: LineFilter, background: Color) -> Strip:  # noqa: A002 - Textual's own name
        """As strips are, but a line again."""
        cached = self._filter_cache.get((filter, background))
        if cached is None:
            cached = Line(filter.apply(self._segments, background), self.cell_length)
            self._filter_cache[(filter, background)] = cached
        return cached


def to_strip(row: Row, width: int, palette: Palette) -> Strip:
    """The row as exactly `width` cells on the palette's background."""
    segments = []
    left = width
    for text, style in row:
        if left <= 0:
            break
        cells = width_of(text)
        if cells > left:
            text, cells = set_cell_size(text, left), left
        segments.append(Segment(text, palette[style]))
        left -= cells
    if left > 0:
        segments.append(Segment(" " * left, palette["fg"]))
    return Line(segments, width)

"""The base of every live panel: a framed block of rows, drawn line by line, redrawn only when its topics changed."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual import events
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from tokpit.store.live import LiveStore
from tokpit.ui.palette import Palette
from tokpit.ui.text import Row, Span, crop_row, row_width, to_strip

BOX_MIN = (12, 4)
"""Width and height from which a panel can have a box."""
COMPACT = (90, 30)
"""Terminals narrower or lower than this have title rules instead of boxes."""


class Panel(Widget):
    """Subclasses give `heading`, `body` and `topics`. A low panel has a title rule instead of a box."""

    DEFAULT_CSS = "Panel { height: 1fr; width: 1fr; }"
    framed = True
    min_interval_s = 0.0
    """Least time between two redraws caused by the store."""
    ages = True
    """Shows ages: redrawn once a second even when nothing came."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._painted: list[Row] = []
        self._strips: list[Strip] = []
        """Of these rows."""
        self._drawn_for: tuple[object, ...] = ()
        """What the rows depend on beside what they show; empty: they are to be drawn anew."""
        self._seen: dict[str, int] = {}
        self._drawn_at = 0.0

    # What subclasses give ------------------------------------------------------------------

    def topics(self) -> Sequence[str]:
        """Store topics on which this panel depends."""
        return ()

    def heading(self, width: int) -> tuple[Row, Row]:
        """Left and right part of the title line."""
        return [], []

    def body(self, width: int, height: int) -> Sequence[Row]:
        """At most `height` rows of at most `width` cells."""
        return []

    # Redrawing -----------------------------------------------------------------------------

    def pull(self, store: LiveStore, now: float) -> bool:
        """Redraw if a topic has changed (or a second has passed, for ages); whether it was redrawn."""
        since = now - self._drawn_at
        if since < self.min_interval_s:
            return False
        versions = {topic: store.version(topic) for topic in self.topics()}
        if versions == self._seen and not (self.ages and since >= 1.0):
            return False
        self._seen = versions
        self._drawn_at = now
        self.redraw()
        return True

    def redraw(self) -> None:
        """Draw anew at the next frame; rows that are as before are not painted again."""
        if not (self._drawn_for and self.display and self.is_attached) or self._drawn_for != self._drawing_for():
            self._drawn_for = ()
            self.refresh()
            return
        changed = [Region(0, y, self.size.width, 1) for y in self._draw()]
        if changed:
            self.refresh(*changed)

    def notify_style_update(self) -> None:
        """The theme or the focus has changed."""
        self._drawn_for = ()
        super().notify_style_update()

    def on_resize(self, event: events.Resize) -> None:
        """Everything depends on the size."""
        self._drawn_for = ()

    @property
    def palette(self) -> Palette:
        """The palette of the running theme."""
        found = getattr(self.app, "palette", None)
        return found if isinstance(found, Palette) else Palette({})

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def inner_size(self) -> Size:
        """Cells of the body at the present size."""
        width, height = self.size
        if not self.framed:
            return Size(width, height)
        if self._boxed:
            return Size(max(0, width - 4), max(0, height - 2))
        return Size(max(0, width - 2), max(0, height - 1))

    @property
    def roomy(self) -> bool:
        """Whether the terminal is large enough for boxes."""
        return self.app.size.width >= COMPACT[0] and self.app.size.height >= COMPACT[1]

    @property
    def _boxed(self) -> bool:
        return self.framed and self.roomy and self.size.width >= BOX_MIN[0] and self.size.height >= BOX_MIN[1]

    def _drawing_for(self) -> tuple[object, ...]:
        return self.size, self.app.size, id(self.palette), self.has_focus

    def _draw(self) -> list[int]:
        """Bring rows and strips up to date; the numbers of those that changed."""
        before = self._painted if self._drawn_for == (key := self._drawing_for()) else []
        rows, width, palette = self.rows(), self.size.width, self.palette
        changed = [y for y, row in enumerate(rows) if y >= len(before) or row != before[y]]
        strips = self._strips[: len(rows)] if before else []
        for y in changed:
            strips[y : y + 1] = [to_strip(rows[y], width, palette)]
        changed += range(len(rows), len(before))
        self._painted, self._strips, self._drawn_for = rows, strips, key
        return changed

    def render_line(self, y: int) -> Strip:
        """One line of the panel."""
        if self._drawn_for != self._drawing_for():
            self._draw()
        if y < len(self._strips):
            return self._strips[y]
        return to_strip([], self.size.width, self.palette)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of a part, ready for the screen: panels have no border, padding or tint that Textual would add."""
        filters, background = self.get_line_filters(), self.background_colors[1]
        strips = []
        for y in crop.line_range:
            strip = self.render_line(y)
            for one in filters:
                strip = strip.apply_filter(one, background)
            strips.append(strip if crop.width == self.size.width else strip.crop(*crop.column_span))
        return strips

    def rows(self) -> list[Row]:
        """The whole panel as rows: frame, title, body. Tests read the screen through this too."""
        width = self.size.width
        inner = self.inner_size()
        body = [crop_row(row, inner.width) for row in list(self.body(inner.width, inner.height))[: inner.height]]
        if not self.framed:
            return list(body)
        body += [[] for _ in range(inner.height - len(body))]
        line = "focus" if self.has_focus else "border"
        if not self._boxed:
            return [self._title_row(width, "─", "─", line), *([(" ", "fg"), *row] for row in body)]
        framed: list[Row] = [self._title_row(width, "╭", "╮", line)]
        for row in body:
            pad = " " * (inner.width - row_width(row))
            framed.append([("│", line), (" ", "fg"), *row, (pad + " ", "fg"), ("│", line)])
        framed.append([("╰" + "─" * (width - 2) + "╯", line)])
        return framed

    def _title_row(self, width: int, first: str, last: str, line: str) -> Row:
        sign = "▸" if self.has_focus else "─"  # the colour of the line says the same
        start, end = (first + sign + " ", " ─" + last) if self._boxed else (sign + " ", " ")
        room = width - len(start) - len(end) - 2
        left, right = self.heading(room)
        right = crop_row(right, max(0, room - min(room // 3, row_width(left))))
        left = crop_row(left, room - row_width(right))
        spans: list[Span] = [(start, line), *left, (" ", line)] if left else [(start + "─", line)]
        tail: list[Span] = [(" ", line), *right, (end, line)] if right else [("─" + end.replace(" ", "─"), line)]
        fill = width - row_width(spans) - row_width(tail)
        return [*spans, ("─" * max(0, fill), line), *tail]


def lines_text(rows: Sequence[Row]) -> list[str]:
    """Rows as plain text."""
    return ["".join(text for text, _ in row) for row in rows]

"""The log panel: follow, hold still, filter, search; every row drawn from the model, none kept as a widget."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from tokpit.store.live import LiveStore
from tokpit.ui.actions import key_of, keycap
from tokpit.ui.text import Row, Span, crop, safe, wrap, wrap_row
from tokpit.ui.view import View
from tokpit.ui.widgets.log_model import LEVELS, LogLine, LogModel
from tokpit.ui.widgets.log_older import OlderReader
from tokpit.ui.widgets.panel import Panel

_HEAD = re.compile(
    r"^(?:\[[^\]]{4,60}\]|\([^)]{3,60}\)(?: \w+ [\d:.-]+ [\d:.]+)?|\w+ \d\d-\d\d [\d:.]+(?: \[[^\]]+\])?)\s?"
)
_DATE = re.compile(r"^(\W?(?:\([^)]{3,60}\) )?(?:[A-Z]+ )?)(?:\d{4}-)?\d\d-\d\d[ T](?=\d\d:\d\d)")
"""The day in a line's head; the hour behind it stays."""
_NUMBER = re.compile(r"(?<![\w.:/])-?\d+(?:\.\d+)?%?(?![.:/]?\w)")
_LEVEL_STYLE = {"error": "log-error", "warning": "log-warning", "debug": "log-debug"}
_SHOWN = {"all": "everything", "warning": "warnings and errors", "error": "errors only"}
MAX_CELLS = 4000
DATED = 100
"""Rows of fewer cells leave out the day: what the line says needs the room."""
NARROW = 64
"""A title of fewer cells has room for a note, or for where the view is."""


class LogView(Panel, can_focus=True):
    """Rows of the selected server's log."""

    class Opened(Message):
        """The marked row was clicked."""

    ages = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home,g", "top", show=False),
        Binding("end,G", "follow", show=False),
        Binding("left", "sideways(-16)", show=False),
        Binding("right", "sideways(16)", show=False),
    ]

    def __init__(self, view: View) -> None:
        super().__init__(id="log")
        self.view = view
        self.model = LogModel()
        self.left = 0
        self.min_interval_s = 0.12
        self.note = ""
        self.older = OlderReader(self)

    def topics(self) -> Sequence[str]:
        """The log."""
        return self.view.topics("log")

    def pull(self, store: LiveStore, now: float) -> bool:
        """Also while time is held: how many new lines there are is told."""
        return super().pull(self.view.session.store, now)

    def heading(self, width: int) -> tuple[Row, Row]:
        """What the view is doing: following, held (how many new below), filtered, searching."""
        self._feed()
        model = self.model
        left: list[Span] = [("log", "title")]
        if self.note and width < NARROW:
            return [*left, (f"  {self.note}", "warn")], []
        if model.level == "quiet":
            if model.polls:
                left.append((f"  {model.polls} poll{'s' if model.polls != 1 else ''} hidden", "dim"))
        else:
            left.append((f"  {_SHOWN[model.level]}", "dim" if model.level == "all" else "warn"))
        if model.kept is not None:
            left += [("  only " if not model.inverse else "  without ", "warn"),
                     (crop(safe(model.kept.pattern), 24), "accent")]  # fmt: skip
        if model.pattern is not None:
            left += [("  /", "dim"), (crop(safe(model.pattern.pattern), 24), "accent")]
        if self.note:
            left.append((f"  {self.note}", "warn"))
        if not model.rows:
            return left, []
        doing: Span = ("following", "good") if model.follow else ("paused", "warn")
        new: Span = (f"  {model.unseen} new" if model.unseen and not model.follow else "", "warn")
        if self.note:
            return left, [doing, new]
        _, shown = model.window(self.inner_size().height)
        where = f"{shown[-1].number} " if shown and shown[-1].number > 0 else ""  # what came before the watch has none
        if model.older_start is not None and width >= NARROW:
            where += f"from byte {model.older_start:,} on  ".replace(",", " ")
        return left, [(where, "dim"), doing, new]

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The rows on screen."""
        self._feed()
        if not self.model.rows:
            return self._empty(width)
        top, shown = self.model.window(height)
        return [self._row(line, top + n, width) for n, line in enumerate(shown)]

    def _empty(self, width: int) -> Sequence[Row]:
        server = self.view.server
        if server is None:
            return []
        if server.log.seen:
            if self.model.kept is not None:
                return _sentence(
                    width, "the filter leaves no line; ", keycap(self.app, "cockpit.filter"), " changes it"
                )
            if self.model.level == "quiet":
                return _sentence(width, "nothing but polls so far; ", keycap(self.app, "cockpit.level"), " shows them")
            return _sentence(
                width, "no line of this level; ", keycap(self.app, "cockpit.level"), " goes on to the next"
            )
        note = server.facts.get("log_note")
        if not note and server.info.log_path is None:
            note = "this server's log was not found: it writes to a terminal or a pipe"
        if note:
            return [[(text, "dim")] for text in wrap(safe(note), width)]
        return [[("waiting for ", "dim"), (safe(server.info.log_path), "fg")]]

    def _row(self, line: LogLine, index: int, width: int) -> Row:
        whole = line.text if width >= DATED else _DATE.sub(r"\1", line.text, count=1)
        text = whole[self.left : self.left + min(width, MAX_CELLS)]
        base = _LEVEL_STYLE.get(line.level, "log-event" if line.kind.startswith("milestone") else "fg")
        spans: list[Span] = []
        start = 0
        if self.left == 0 and (head := _HEAD.match(text)):
            start = head.end()
            spans.append((text[:start], base if line.level == "error" else "log-time"))
        if base == "fg" and line.kind != "text":
            spans += _numbers(text[start:], line.figures)
        else:
            spans.append((text[start:], base))
        if self.model.pattern is not None and self.model.pattern.search(text):
            spans = _mark(spans, self.model.pattern)
        if index == self.model.hit:
            spans = [("▶", "match"), *_drop(spans, 1)]
        return spans

    def _feed(self) -> None:
        server = self.view.server
        self.model.feed(server.log if server else None)

    # Acting --------------------------------------------------------------------------------

    @property
    def height(self) -> int:
        """Rows in view."""
        return max(1, self.inner_size().height)

    def action_scroll(self, step: int) -> None:
        """Line by line; above the oldest row, older ones are read from the host's disk."""
        self.model.scroll(step, self.height)
        self.redraw()
        if step < 0 and self.model.top == 0:
            self.older.read(step)

    def action_page(self, step: int) -> None:
        """Page by page."""
        self.action_scroll(step * max(1, self.height - 1))

    def action_top(self) -> None:
        """The oldest row held."""
        self.action_scroll(-len(self.model.rows))

    def action_follow(self) -> None:
        """The end, and stay there."""
        self.older.cancel()
        self.note = ""
        self.model.resume()
        self.redraw()

    def action_sideways(self, step: int) -> None:
        """Long lines: move right or left."""
        self.left = max(0, min(MAX_CELLS, self.left + step))
        self.redraw()

    def go_to(self, t: float) -> None:
        """The last line that had come by `t`, on the host's clock."""
        server = self.view.server
        self._feed()
        line = server.log.line_at(t) if server is not None else None
        self.model.go_to(line if line is not None else 0, self.height)
        self.redraw()

    def chosen_text(self) -> str:
        """The marked row, or all rows in view."""
        if self.marked is not None:
            return self.model.rows[self.marked].text
        return "\n".join(line.text for line in self.model.window(self.height)[1])

    @property
    def marked(self) -> int | None:
        """The marked row, where it is in view."""
        top, shown = self.model.window(self.height)
        hit = self.model.hit
        return hit if hit is not None and top <= hit < top + len(shown) else None

    def chosen_record(self) -> list[LogLine]:
        """All rows of the record of the marked row, else of the last row in view; none of an empty log."""
        top, shown = self.model.window(self.height)
        first = last = self.marked if self.marked is not None else top + len(shown) - 1
        rows = self.model.rows
        while first > 0 and rows[first].continues:
            first -= 1
        while last + 1 < len(rows) and rows[last + 1].continues:
            last += 1
        return rows[first : last + 1]

    def on_click(self, event: events.Click) -> None:
        """Mark the row and hold the log still at it; a second click shows all of it."""
        top, shown = self.model.window(self.height)
        row = event.y - 1
        if not 0 <= row < len(shown):
            return
        again = self.model.hit == top + row
        self.model.pause(self.height)
        self.model.hit = top + row
        self.redraw()
        if again:
            self.post_message(self.Opened())

    def next_level(self) -> None:
        """All but polls, everything, warnings and errors, errors."""
        self._feed()
        self.model.set_level(LEVELS[(LEVELS.index(self.model.level) + 1) % len(LEVELS)])
        self.redraw()

    def search(self, text: str) -> None:
        """Set the pattern and go to the newest match above."""
        self.note = self.model.search(text)
        if text:
            self.find(-1)
        else:
            self.left = 0
        self.redraw()

    def filter(self, text: str) -> None:
        """Show only rows that match, or only the others."""
        self._feed()
        self.note = self.model.filter(text)
        self.redraw()

    def find(self, step: int) -> None:
        """Next or previous match; without a search the next or previous error."""
        self._feed()
        found, model = self.model.find(step, self.height), self.model
        on = f"; {key_of(self.app, 'cockpit.older')} reads the file" if self.older.possible and model.more_above else ""
        if not found:
            what = "no error" if model.pattern is None else "no match"
            self.note = f"{what} in memory{on}" if on else f"{what} in the log"
        else:
            self.note = "" if not model.around else "on from the begin" if step > 0 else f"on from the end{on}"
            self._into_view()
        self.redraw()

    def _into_view(self) -> None:
        """Move sideways only where the match would be out of sight."""
        model, width = self.model, max(1, self.inner_size().width)
        found = model.pattern.search(model.rows[model.hit].text) if model.pattern and model.hit is not None else None
        if found is not None and not self.left <= found.start() < self.left + width - 1:
            self.left = 0 if found.start() < width - 1 else min(MAX_CELLS, found.start() - width // 3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Three lines."""
        event.stop()
        self.action_scroll(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Three lines."""
        event.stop()
        self.action_scroll(3)


def _sentence(width: int, before: str, key: Span, after: str) -> list[Row]:
    return list(wrap_row([(before, "dim"), key, (after, "dim")], width))


def _numbers(text: str, figures: frozenset[float]) -> list[Span]:
    """The text with those numbers marked that were read from it."""
    spans: list[Span] = []
    at = 0
    for found in _NUMBER.finditer(text):
        value = float(found.group().rstrip("%"))
        if value not in figures and not (found.group().endswith("%") and round(value / 100, 9) in figures):
            continue
        spans += [(text[at : found.start()], "fg"), (found.group(), "log-number")]
        at = found.end()
    return [*spans, (text[at:], "fg")]


def _mark(spans: Sequence[Span], pattern: re.Pattern[str]) -> list[Span]:
    whole = "".join(text for text, _ in spans)
    ranges = [m.span() for m in pattern.finditer(whole) if m.end() > m.start()]
    marked: list[Span] = []
    at = 0
    for text, style in spans:
        cursor = 0
        for start, end in ranges:
            low, high = max(start - at, cursor), min(end - at, len(text))
            if low < high:
                marked += [(text[cursor:low], style), (text[low:high], "match")]
                cursor = high
        marked.append((text[cursor:], style))
        at += len(text)
    return [span for span in marked if span[0]]


def _drop(spans: Sequence[Span], count: int) -> list[Span]:
    kept: list[Span] = []
    for text, style in spans:
        kept.append((text[count:], style))
        count = max(0, count - len(text))
    return kept

"""A log as rows that can be filtered, searched and held still: no widget, plain data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tokpit.domain.records import LogRecord
from tokpit.store.live import LogRing
from tokpit.ui.text import safe

LEVELS = ("all", "warning", "error")
_KEPT = {"all": frozenset({"", "debug", "info", "warning", "error"}), "warning": frozenset({"warning", "error"})}
_LITERAL = re.compile("(?!)")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One row: number of the line in the log, its text, level and kind."""

    number: int
    text: str
    level: str
    kind: str


class LogModel:
    """Follows one ring. `top` is the first row on screen while not following."""

    def __init__(self, *, keep: int = 50_000) -> None:
        self.rows: list[LogLine] = []
        self.follow = True
        self.top = 0
        self.level = "all"
        self.pattern: re.Pattern[str] | None = None
        self.hit: int | None = None
        self.unseen = 0
        self._ring: LogRing | None = None
        self._seen = 0
        self._all: list[LogLine] = []
        self._keep = keep

    def feed(self, ring: LogRing | None) -> int:
        """Take what is new in the ring; how many rows were added to the view."""
        if ring is not self._ring:
            self._ring, self._seen, self.hit, self.unseen = ring, 0, None, 0
            self._all, self.rows, self.follow, self.top = [], [], True, 0
        if ring is None or ring.seen == self._seen:
            return 0
        count = min(ring.seen - self._seen, len(ring.records))
        fresh: list[LogLine] = []
        for index in range(len(ring.records) - count, len(ring.records)):
            fresh += split(ring.records[index])
        self._seen = ring.seen
        self._all += fresh
        shown = [line for line in fresh if self._shows(line)]
        if self.rows is not self._all:
            self.rows += shown
        if not self.follow:
            self.unseen += len(shown)
        self._trim()
        return len(shown)

    def set_level(self, level: str) -> None:
        """Show all rows, only warnings and errors, or only errors; the view stays near where it was."""
        here = self.rows[self.top].number if self.rows and self.top < len(self.rows) else 0
        self.level = level
        self.rows = self._all if level == "all" else [line for line in self._all if self._shows(line)]
        self.top = next((n for n, line in enumerate(self.rows) if line.number >= here), max(0, len(self.rows) - 1))
        self.hit = None

    def window(self, height: int) -> tuple[int, list[LogLine]]:
        """Index of the first row on screen and the rows on screen."""
        last_top = max(0, len(self.rows) - height)
        top = last_top if self.follow else max(0, min(self.top, last_top))
        return top, self.rows[top : top + height]

    def scroll(self, step: int, height: int) -> None:
        """Move the view; moving up stops following, reaching the end starts it again."""
        top, _ = self.window(height)
        last_top = max(0, len(self.rows) - height)
        self.top = max(0, min(last_top, top + step))
        if step < 0 and self.rows:
            self.pause()
        elif self.top >= last_top and step > 0:
            self.resume()

    def pause(self, height: int | None = None) -> None:
        """Hold the view still."""
        if self.follow and height is not None:
            self.top = self.window(height)[0]
        self.follow = False

    def resume(self) -> None:
        """Go to the end and stay there."""
        self.follow, self.unseen = True, 0

    def search(self, text: str) -> str:
        """Set the pattern, a regular expression; all in lower case matches any case. Returns what is wrong, or ''."""
        self.hit = None
        if not text:
            self.pattern = None
            return ""
        flags = re.IGNORECASE if text == text.lower() else 0
        try:
            self.pattern = re.compile(text, flags)
        except re.error as problem:
            self.pattern = re.compile(re.escape(text), flags)
            return f"not a regular expression ({problem}): searched as plain text"
        return ""

    def find(self, step: int, height: int) -> bool:
        """Go to the next (1) or previous (-1) row that matches, around the end; whether there is one."""
        if self.pattern is None or not self.rows:
            return False
        top, shown = self.window(height)
        start = self.hit if self.hit is not None else (top + len(shown) if step < 0 else top - 1)
        for back in range(1, len(self.rows) + 1):
            index = (start + step * back) % len(self.rows)
            if self.pattern.search(self.rows[index].text):
                self.pause(height)
                self.hit = index
                if not self.top <= index < self.top + height:
                    self.top = max(0, index - height // 2)
                return True
        return False

    def _shows(self, line: LogLine) -> bool:
        return line.level == "error" if self.level == "error" else line.level in _KEPT[self.level]

    def _trim(self) -> None:
        extra = len(self._all) - self._keep
        if extra < self._keep // 10:
            return
        oldest = self._all[extra].number
        del self._all[:extra]
        cut = extra
        if self.rows is not self._all:
            cut = next((n for n, line in enumerate(self.rows) if line.number >= oldest), len(self.rows))
            del self.rows[:cut]
        self.top = max(0, self.top - cut)
        self.hit = self.hit - cut if self.hit is not None and self.hit >= cut else None


def split(record: LogRecord) -> list[LogLine]:
    """A record as rows, one a line of it."""
    lines = record.lines or (record.text,)
    return [LogLine(record.line + n, safe(text), record.level, record.kind) for n, text in enumerate(lines)]

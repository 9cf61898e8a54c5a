"""A log as rows that can be filtered, searched and held still: no widget, plain data."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from tokpit.domain.records import LogRecord
from tokpit.store.live import LogRing
from tokpit.ui.text import safe

LEVELS = ("quiet", "all", "warning", "error")
"""What is shown: all but polls, everything, warnings and errors, errors."""
_KEPT = {"warning": frozenset({"warning", "error"}), "error": frozenset({"error"})}
POLLED = frozenset(
    {"/metrics", "/health", "/v1/models", "/version", "/get_server_info", "/server_info", "/v1/loads",
     "/get_model_info", "/props", "/slots"}
)  # fmt: skip
"""Paths that tokpit itself (like any monitor) asks again and again."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One row: number of the line in the log, its text, level, kind and the figures that were read from it."""

    number: int
    text: str
    level: str
    kind: str
    poll: bool = False
    continues: bool = False
    """A further line of a record of several."""
    figures: frozenset[float] = frozenset()


class LogModel:
    """Follows one ring. `top` is the first row on screen while not following."""

    def __init__(self, *, keep: int = 50_000) -> None:
        self.rows: list[LogLine] = []
        self.follow = True
        self.top = 0
        self.level = LEVELS[0]
        self.polls = 0
        """Polls among the rows held."""
        self.pattern: re.Pattern[str] | None = None
        self.kept: re.Pattern[str] | None = None
        """Only rows that match are shown, or only the others (`inverse`)."""
        self.inverse = False
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
            self._all, self.follow, self.top, self.polls = [], True, 0, 0
            self.rows = self._all if self._whole else []
        if ring is None or ring.seen == self._seen:
            return 0
        count = min(ring.seen - self._seen, len(ring.records))
        fresh: list[LogLine] = []
        for index in range(len(ring.records) - count, len(ring.records)):
            fresh += split(ring.records[index])
        self._seen = ring.seen
        self._all += fresh
        self.polls += sum(line.poll for line in fresh)
        shown = [line for line in fresh if self._shows(line)]
        if self.rows is not self._all:
            self.rows += shown
        if not self.follow:
            self.unseen += len(shown)
        self._trim()
        return len(shown)

    def set_level(self, level: str) -> None:
        """Show one of LEVELS; the view stays near where it was."""
        here = self.rows[self.top].number if self.rows and self.top < len(self.rows) else 0
        self.level = level
        self._again(here)

    def filter(self, text: str) -> str:
        """Show only rows that match a regular expression; `!` before it: only the others. Returns what is wrong, or ''.

        All in lower case matches any case; an empty one shows everything again.
        """
        here = self.rows[self.top].number if self.rows and self.top < len(self.rows) else 0
        self.inverse = text.startswith("!")
        word = text.removeprefix("!")
        self.kept, problem = _compiled(word) if word else (None, "")
        self._again(here)
        return problem

    @property
    def _whole(self) -> bool:
        """Whether every row is shown."""
        return self.level == "all" and self.kept is None

    def _again(self, here: int) -> None:
        self.rows = self._all if self._whole else [line for line in self._all if self._shows(line)]
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

    def go_to(self, number: int, height: int) -> None:
        """Hold still with the last row of that line number or below it as the last one in view, and mark it."""
        index = bisect_right(self.rows, number, key=lambda line: line.number) - 1
        self.pause(height)
        self.hit = index if index >= 0 else None
        self.top = max(0, index - height + 1)

    def search(self, text: str) -> str:
        """Set the pattern, a regular expression; all in lower case matches any case. Returns what is wrong, or ''."""
        self.hit = None
        self.pattern, problem = _compiled(text) if text else (None, "")
        return problem

    def find(self, step: int, height: int) -> bool:
        """Go to the next (1) or previous (-1) row that matches, around the end; whether there is one.

        Without a pattern an error matches: its first row, where it has several.
        """
        if not self.rows:
            return False
        top, shown = self.window(height)
        start = self.hit if self.hit is not None else (top + len(shown) if step < 0 else top - 1)
        for back in range(1, len(self.rows) + 1):
            index = (start + step * back) % len(self.rows)
            if self._matches(index):
                self.pause(height)
                self.hit = index
                if not self.top <= index < self.top + height:
                    self.top = max(0, index - height // 2)
                return True
        return False

    def _matches(self, index: int) -> bool:
        line = self.rows[index]
        if self.pattern is not None:
            return self.pattern.search(line.text) is not None
        return line.level == "error" and not line.continues

    def _shows(self, line: LogLine) -> bool:
        if self.kept is not None and (self.kept.search(line.text) is None) is not self.inverse:
            return False
        if self.level in _KEPT:
            return line.level in _KEPT[self.level]
        return self.level == "all" or not line.poll

    def _trim(self) -> None:
        extra = len(self._all) - self._keep
        if extra < self._keep // 10:
            return
        oldest = self._all[extra].number
        self.polls -= sum(line.poll for line in self._all[:extra])
        del self._all[:extra]
        cut = extra
        if self.rows is not self._all:
            cut = next((n for n, line in enumerate(self.rows) if line.number >= oldest), len(self.rows))
            del self.rows[:cut]
        self.top = max(0, self.top - cut)
        self.hit = self.hit - cut if self.hit is not None and self.hit >= cut else None


def _compiled(text: str) -> tuple[re.Pattern[str], str]:
    """A pattern, and what is wrong with it."""
    flags = re.IGNORECASE if text == text.lower() else 0
    try:
        return re.compile(text, flags), ""
    except re.error as problem:
        return re.compile(re.escape(text), flags), f"not a regular expression ({problem}): searched as plain text"


def split(record: LogRecord) -> list[LogLine]:
    """A record as rows, one a line of it."""
    lines = record.lines or (record.text,)
    poll, read = is_poll(record), _figures(record)
    return [
        LogLine(record.line + n, safe(text), record.level, record.kind, poll, n > 0, read)
        for n, text in enumerate(lines)
    ]


def is_poll(record: LogRecord) -> bool:
    """Whether the record is an answered question of a monitor; one that failed is news and no poll."""
    if record.kind != "access" or record.fields.get("status") != 200:
        return False
    path = record.fields.get("path")
    return isinstance(path, str) and path.partition("?")[0].rstrip("/") in POLLED


def _figures(record: LogRecord) -> frozenset[float]:
    values: set[float] = set()
    for value in record.fields.values():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, (int, float)) and not isinstance(one, bool):
                values.add(float(one))
    return frozenset(values)

"""A log as rows that can be filtered, searched and held still: no widget, plain data."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from tokpit.domain.records import LogRecord, Value
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


class LogLine(msgspec.Struct, frozen=True, gc=False):  # tens of thousands live, none in a cycle
    """One row: number of the line in the log, its text, level, kind and the figures that were read from it."""

    number: int
    text: str
    level: str
    kind: str
    poll: bool = False
    continues: bool = False
    """A further line of a record of several."""
    fields: dict[str, Value] = {}
    """What was read from the record."""

    @property
    def figures(self) -> frozenset[float]:
        """Its numbers; made when the row is drawn, because most rows never are."""
        values: set[float] = set()
        for value in self.fields.values():
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, (int, float)) and not isinstance(one, bool):
                    values.add(float(one))
        return frozenset(values)


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
        self.around = False
        self.unseen = 0
        self.older_start: int | None = None
        """Byte at which the oldest row begins, once rows were read from disk; new rows are then only counted."""
        self._place: tuple[int, int] | None = None
        """Where older rows are being read: until they are there, no row may leave."""
        self._ring: LogRing | None = None
        self._seen = 0
        self._all: list[LogLine] = []
        self._keep = keep

    def feed(self, ring: LogRing | None) -> int:
        """Take what is new in the ring; how many rows were added to the view."""
        if ring is not self._ring:
            self._ring, self._seen, self.hit, self.unseen = ring, 0, None, 0
            self._all, self.follow, self.top, self.polls = [], True, 0, 0
            self.older_start = self._place = None
            self.rows = self._all if self._whole else []
        if ring is None or ring.seen == self._seen:
            return 0
        if self.older_start is not None or self._place is not None:
            self.unseen += ring.seen - self._seen
            self._seen = ring.seen
            return 0
        count = min(ring.seen - self._seen, len(ring.records))
        fresh: list[LogLine] = []
        for record in reversed(list(itertools.islice(reversed(ring.records), count))):
            fresh += split(record)
        self._seen = ring.seen
        self._all += fresh
        polls = sum(line.poll for line in fresh)
        self.polls += polls
        shown = fresh if self._whole or (self._plain and not polls) else [line for line in fresh if self._shows(line)]
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

    @property
    def _plain(self) -> bool:
        """Whether every row but polls is shown."""
        return self.level == "quiet" and self.kept is None

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
        ring = self._ring
        if self.older_start is not None or self._place is not None:
            self._ring = None
            self.feed(ring)
        self.follow, self.unseen = True, 0

    def before(self) -> tuple[int, int] | None:
        """Where the log goes on above the oldest row: a byte and lines to skip; None where there is nothing more.

        From then on new rows are only counted, until `resume`.
        """
        if self.older_start is not None:
            return (self.older_start, 0) if self.older_start > 0 else None
        if self._ring is None or not self._all:
            return None
        if self._place is None:
            self._place = self._ring.place_before(self._all[0].number)
        return self._place

    def prepend(self, records: Sequence[LogRecord], lines: int, start: int) -> int:
        """Rows from the disk go above the oldest one; as many of the newest go. How many came into view's reach."""
        if not self._all:
            return 0
        shift = self._all[0].number - 1 - lines
        fresh = [line for record in records for line in split(record, shift)]
        self.older_start, self._place = start, None
        shown = [line for line in fresh if self._shows(line)]
        kept, gone = self._all[: self._keep], self._all[self._keep :]
        self.polls += sum(line.poll for line in fresh) - sum(line.poll for line in gone)
        whole = self._whole
        self._all = [*fresh, *kept]
        end = bisect_right(self.rows, kept[-1].number, key=lambda line: line.number)
        self.rows = self._all if whole else [*shown, *self.rows[:end]]
        self.pause()
        self.top += len(shown)
        self.hit = self.hit + len(shown) if self.hit is not None else None
        return len(shown)

    @property
    def more_above(self) -> bool:
        """Whether the file may hold lines above the oldest row."""
        return bool(self._all) and self.older_start != 0

    def match_above(self, count: int, height: int) -> bool:
        """Go to the lowest match among the first `count` rows; whether there is one."""
        for index in range(min(count, len(self.rows)) - 1, -1, -1):
            if self._matches(index):
                self.hit = index
                self.top = max(0, index - height // 2)
                return True
        return False

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

        Without a pattern an error matches: its first row, where it has several. `around` tells whether the search
        came over the end or the begin of what is in memory.
        """
        self.around = False
        if not self.rows:
            return False
        top, shown = self.window(height)
        start = self.hit if self.hit is not None else (top + len(shown) if step < 0 else top - 1)
        for back in range(1, len(self.rows) + 1):
            index = (start + step * back) % len(self.rows)
            if self._matches(index):
                self.pause(height)
                self.hit, self.around = index, not 0 <= start + step * back < len(self.rows)
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
        if extra < self._keep // 100:
            return
        oldest = self._all[extra].number
        if self.polls:
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


def split(record: LogRecord, shift: int = 0) -> list[LogLine]:
    """A record as rows, one a line of it; `shift` is added to their numbers."""
    lines = record.lines or (record.text,)
    poll, first = is_poll(record), record.line + shift
    if len(lines) == 1:
        return [LogLine(first, safe(lines[0]), record.level, record.kind, poll, False, record.fields)]
    return [
        LogLine(first + n, safe(text), record.level, record.kind, poll, n > 0, record.fields)
        for n, text in enumerate(lines)
    ]


def is_poll(record: LogRecord) -> bool:
    """Whether the record is an answered question of a monitor; one that failed is news and no poll."""
    if record.kind != "access" or record.fields.get("status") != 200:
        return False
    path = record.fields.get("path")
    return isinstance(path, str) and path.partition("?")[0].rstrip("/") in POLLED

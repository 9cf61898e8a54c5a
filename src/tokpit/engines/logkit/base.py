"""What the grammars share: numbering, terminal escapes, `\\r`, folding, and the promise that no line is lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from tokpit.domain.records import LogRecord, Value
from tokpit.domain.text import sanitize
from tokpit.engines.logkit.fold import Fold, is_exception, opens
from tokpit.engines.logkit.prefix import outer_end, unwrap
from tokpit.engines.logkit.table import Found

TEXT_LIMIT = 4096
"""Characters of a message that are classified and kept as a record's `text`; its `lines` stay whole."""

LEVELS = {
    "DEBUG": "debug",
    "INFO": "info",
    "WARNING": "warning",
    "WARN": "warning",
    "ERROR": "error",
    "CRITICAL": "error",
    "FATAL": "error",
}


_PROMPT = "input_ids=["
_MILD = {
    "failure.retract": "warning",
    "failure.queue_full": "warning",
    "failure.drop_host": "warning",
    "failure.port_wait": "warning",
    "failure.draining": "info",
}
"""Levels of failure lines after which a server goes on, where the line has no level of its own."""
_LOUD = frozenset({"", "error"})


class Head(NamedTuple):
    """What stands before a message: the stream it belongs to, its fields, its level and the message."""

    key: str
    fields: dict[str, Value]
    level: str
    message: str


def shorten(message: str) -> str:
    """A message bounded to `TEXT_LIMIT` characters, with its full length where it was cut; no prompt of a dump."""
    if len(message) <= TEXT_LIMIT:
        return message
    start = message[: TEXT_LIMIT // 8]
    prompt = start.find(_PROMPT)
    if prompt >= 0:
        start = start[: prompt + len(_PROMPT)]
    return f"{start} … ({len(message):,} characters)"


class LineGrammar(ABC):
    """A grammar over lines. Subclasses say how a line splits, what its head is and what its message means.

    Each record's `lines` are the lines fed, whole and in order; where one line holds several records, the first
    carries it. Records of several lines come when they end, so that another process's line may come before.
    """

    def __init__(self) -> None:
        self._count = 0
        self._folds: dict[str, Fold] = {}

    @abstractmethod
    def _head(self, text: str) -> Head:
        """The head of one record's text."""

    @abstractmethod
    def _classify(self, head: Head, extras: dict[str, str]) -> Found | None:
        """Kind and further fields of a message; what it does not know goes to `extras`."""

    @abstractmethod
    def sample(self, record: LogRecord) -> dict[str, float]:
        """Metric values after this record."""

    def samples(self, records: Sequence[LogRecord]) -> dict[str, float]:
        """Metric values after records that came together: of each the newest."""
        out: dict[str, float] = {}
        for record in records:
            out.update(self.sample(record))
        return out

    @abstractmethod
    def _failure(self, message: str) -> Found | None:
        """What kind of failure an exception line is."""

    def _fast(self, text: str, start: int, line: str) -> LogRecord | None:
        """The record of a common line, while nothing is folded; None to take the long way.

        The server's own text begins at `start`; before it stands what other programs put there.
        """
        return None

    def _split(self, text: str) -> list[str]:
        """The records on one physical line."""
        return [text]

    def feed(self, line: str) -> Sequence[LogRecord]:
        """The records completed by this line."""
        self._count += 1
        text = line
        if "\x1b" in line or (not line.isascii() and "\x9b" in line):
            text = sanitize(line) if "\r" not in line else "\r".join(map(sanitize, line.split("\r")))
        if not self._folds and len(text) <= TEXT_LIMIT and "\r" not in text:
            record = self._fast(text, 0, line)
            if record is None:
                start = outer_end(text)
                record = self._fast(text, start, line) if start else None
            if record is not None:
                return (record,)
        if text.startswith('{"') and text.endswith("}"):
            inner = unwrap(text)
            text = text if inner is None else sanitize(inner)
        out: list[LogRecord] = []
        held: tuple[str, ...] = (line,)
        for part in self._parts(text):
            for piece in self._split(part):
                self._piece(piece, held, out)
                held = ()
        return out

    @staticmethod
    def _parts(text: str) -> list[str]:
        if "\r" not in text:
            return [text]
        parts = [part for part in text.rstrip("\r\n").split("\r") if part.strip()]
        bars = [part for part in parts if "%" in part]
        if len(bars) > 1:
            parts = [part for part in parts if part not in bars[:-1]]
        return parts or [""]

    def flush(self) -> Sequence[LogRecord]:
        """The folds that are still open."""
        out = [self._folded(fold) for fold in self._folds.values()]
        self._folds.clear()
        return out

    def _piece(self, text: str, held: tuple[str, ...], out: list[LogRecord]) -> None:
        """Take one record's text; `held` is the physical line if no record carries it yet."""
        head = self._head(text)
        if self._folds:
            fold = self._folds.get(head.key)
            if fold is not None and held and fold.take(held[0], head.message):
                self._close_ended(out)
                return
            for key, other in self._folds.items():
                other.pass_by(waits=bool(key))
            self._close_ended(out)
        if held and head.key not in self._folds and opens(head.message):
            self._folds[head.key] = Fold(self._count, held[0], head.message, head.fields, head.level)
            return
        out.append(self._plain(head, held))

    def _plain(self, head: Head, held: tuple[str, ...]) -> LogRecord:
        extras: dict[str, str] = {}
        found = self._classify(head, extras)
        if found is None and head.level in _LOUD and is_exception(head.message):
            found = Found("failure.exception", {})
        if found is None:
            return LogRecord(self._count, "text", shorten(head.message), head.fields, extras, held, head.level)
        level = head.level
        if not level and found.kind.startswith("failure."):
            level = _MILD.get(found.kind, "error")
        fields = head.fields | found.fields
        return LogRecord(self._count, found.kind, shorten(head.message), fields, extras, held, level)

    def _close_ended(self, out: list[LogRecord]) -> None:
        for key in [key for key, fold in self._folds.items() if fold.ended]:
            out.append(self._folded(self._folds.pop(key)))

    def _folded(self, fold: Fold) -> LogRecord:
        text = fold.decisive(lambda line: self._failure(line) is not None)
        found = self._failure(text) or self._failure(fold.opening)
        kind = found.kind if found else "failure.exception"
        if fold.usage and not fold.error:
            kind = "text"
        fields = fold.fields | (found.fields if found else {})
        extras = {"exceptions": str(len(fold.exceptions))} if len(fold.exceptions) > 1 else {}
        if extras and fold.exceptions[-1] != text:
            extras["last_exception"] = shorten(fold.exceptions[-1])
        level = fold.level if kind == "text" else "error"
        return LogRecord(fold.line, kind, shorten(text), fields, extras, tuple(fold.lines), level)

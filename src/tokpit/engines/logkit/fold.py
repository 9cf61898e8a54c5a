"""Lines that belong together: Python tracebacks (chained, grouped, torn) and argparse usage dumps.

A fold belongs to one stream of a log (its `key`: a process prefix, or "" for lines without one), because several
processes write into one file. It takes lines until it knows that it has ended; what it refuses is somebody else's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto

from tokpit.domain.records import Value

TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"(?!(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):)(?:[A-Za-z_]\w{0,60}\.){0,12}"
    r"(?:[A-Z]\w{0,100}: |\w{0,100}(?:Error|Exception|Interrupt|Exit)(?::|\s*$))"
)
_NAMED = re.compile(r"[\w.]*(?:Error|Exception|Interrupt|Exit|Timeout|Group|Dead)\b")
_ERROR = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,12}\w{0,100}(?:Error|Exception|Interrupt)(?:: |\s*$)")
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_ADVICE = re.compile(r"(?:Possible solutions:|\d{1,2}\. |Open an issue)")
_USAGE_END = re.compile(r"[\w./ -]{1,120}: error: ")
_MAX_LINES = 4000
_MAX_MESSAGE = 1000
_MAX_FOREIGN = 20


class _State(Enum):
    FRAMES = auto()
    TAIL = auto()
    BLANK = auto()
    CHAIN = auto()
    USAGE = auto()
    ENDED = auto()


def is_exception(message: str) -> bool:
    """Whether this is the last line of a traceback, or looks like one: `SomeError: why`."""
    return _ERROR.match(message) is not None


def opens(message: str) -> bool:
    """Whether this message starts a fold."""
    return message.endswith(TRACEBACK) or message.startswith(('  File "', "usage: "))


class Fold:
    """One open fold: the lines so far and what they say."""

    def __init__(self, line: int, raw: str, message: str, fields: dict[str, Value], level: str) -> None:
        self.line = line
        self.lines = [raw]
        self.fields = fields
        self.level = level
        self.opening = message
        self.exceptions: list[str] = []
        self.usage = message.startswith("usage: ")
        self.error = ""
        self._foreign = 0
        self._state = _State.USAGE if self.usage else _State.FRAMES

    @property
    def ended(self) -> bool:
        """Nothing more is taken."""
        return self._state is _State.ENDED

    def take(self, raw: str, message: str) -> bool:
        """Whether the line belongs to the fold, which then holds it."""
        if self._state is _State.ENDED or not self._accept(message):
            return False
        self.lines.append(raw)
        if len(self.lines) >= _MAX_LINES:
            self._state = _State.ENDED
        return True

    def pass_by(self, *, waits: bool) -> None:
        """Another writer's line came in between. `waits`: a finished traceback may still go on after it."""
        self._foreign += 1
        if self._foreign > _MAX_FOREIGN or (self._state is not _State.FRAMES and not waits):
            self._state = _State.ENDED

    def _accept(self, message: str) -> bool:
        state = self._state
        if state is _State.USAGE:
            return self._accept_usage(message)
        if state is _State.FRAMES:
            return self._accept_frame(message)
        if message.startswith(_CHAIN):
            self._state = _State.CHAIN
            return True
        if state is _State.CHAIN:
            if message.endswith(TRACEBACK):
                self._state = _State.FRAMES
                return True
            return not message.strip()
        if state is _State.TAIL and message[:1] in {" ", "\t"} and message.strip():
            if len(self.exceptions[-1]) < _MAX_MESSAGE:  # a message of several lines
                self.exceptions[-1] += " " + message.strip()[:_MAX_MESSAGE]
            return True
        if state is _State.TAIL and _ADVICE.match(message):
            return True
        if state is _State.TAIL and not message.strip():
            self._state = _State.BLANK
            return True
        self._state = _State.ENDED
        return False

    def _accept_usage(self, message: str) -> bool:
        if message[:1] in {" ", "\t"} or not message.strip():
            return True
        self._state = _State.ENDED
        if _USAGE_END.match(message):
            self.error = message
            return True
        return False

    def _accept_frame(self, message: str) -> bool:
        if message[:1] in {" ", "\t"}:
            inner = message.lstrip(" |+-")
            if _NAMED.match(inner) and message.lstrip()[:1] == "|":
                self.exceptions.append(inner)
            return True
        if _EXCEPTION.match(message):
            self.exceptions.append(message)
            self._state = _State.TAIL
            return True
        if message.endswith(TRACEBACK):
            self._state = _State.ENDED
        return False

    def decisive(self, known: Callable[[str], bool]) -> str:
        """The line that says most: the reason of a usage dump, the first known failure, else the last exception."""
        if self.usage:
            return self.error or self.opening
        for text in self.exceptions:
            if known(text):
                return text
        return self.exceptions[-1] if self.exceptions else self.opening.strip()

"""The log grammar of vLLM: process prefix, level, stamp and source; statistics, start-up, failures, bars."""

from __future__ import annotations

import re

from tokpit.domain.records import LogRecord, Value
from tokpit.domain.text import mask_secrets
from tokpit.engines.logkit.access import access, add_access, native_level, uvicorn
from tokpit.engines.logkit.bars import bar
from tokpit.engines.logkit.base import LEVELS, TEXT_LIMIT, Head, LineGrammar
from tokpit.engines.logkit.layout import Layouts
from tokpit.engines.logkit.prefix import strip_outer
from tokpit.engines.logkit.table import Found
from tokpit.engines.vllm.sampling import Sampler
from tokpit.engines.vllm.shapes import TABLE
from tokpit.engines.vllm.stats import periodic

_PROCESS = re.compile(
    r"\((?P<process>[A-Za-z][\w.-]{0,60})(?: rank=\d+)? pid=(?P<pid>\d{1,10})(?:, ip=[^)\s]{1,60})?\) ?"
)
_STAMPED = re.compile(
    r" ?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) {1,3}"
    r"(?P<ts>(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d{3})? {1,3}"
    r"\[?(?P<source>[^\]\s]{1,200}:\d{1,6})\](?:  (?=\S)| ?)"
)
_SECOND = re.compile(
    r"\([A-Za-z][\w.-]{0,60}(?: rank=\d+)? pid=\d{1,10}\) ?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) {1,3}\d\d-\d\d \d\d:"
)
_PROCESS_BEFORE = re.compile(r"\([A-Za-z][\w.-]{0,60}(?: rank=\d+)? pid=\d{1,10}(?:, ip=[^)\s]{1,60})?\) ?$")
_SEEK = 300
"""A head is looked for in this many characters."""
_PERIODIC = ("Engine ", "SpecDecoding", "Avg ")
_NO_PROCESS: dict[str, Value] = {}
_OPENINGS = frozenset({"usag", "  Fi"})
"""What a record of several lines may begin with; a traceback's first line ends in a colon."""
_MAX_PIECES = 100
_MOST_PROCESSES = 4096
_ARGS = ("non-default args: ", "args: Namespace(", "Initializing a V")


def _own(text: str) -> str:
    """The server's own part of a line; behind a prefix of no known form it is found by its head."""
    text = strip_outer(text)[1]
    if _PROCESS.match(text) or _STAMPED.match(text):
        return text
    head = _STAMPED.search(text, 0, _SEEK)
    if head is None:
        return text
    before = _PROCESS_BEFORE.search(text, 0, head.start())
    return text[before.start() if before is not None else head.start() :]


class VllmGrammar(LineGrammar):
    """See engines.base.Grammar."""

    def __init__(self) -> None:
        super().__init__()
        self._sampler = Sampler()
        self._layouts = Layouts()
        self._processes: dict[str, dict[str, Value]] = {}

    def sample(self, record: LogRecord) -> dict[str, float]:
        """Server-wide values after this record: see sampling.Sampler."""
        return self._sampler.sample(record)

    def _fast(self, text: str, start: int, line: str) -> LogRecord | None:
        """Statistics, access lines and dull text of a known process, which is most of a log."""
        process = _NO_PROCESS
        if text.startswith("(", start):
            end = text.find(") ", start, start + 80) + 2
            known = self._processes.get(text[start:end])
            if known is None:
                return None
            process, start = known, end
        if text.startswith("INFO: ", start):
            fields: dict[str, Value] = {**process, "level": "INFO"}
            if not add_access(text, start, fields):
                return None
            return LogRecord(self._count, "access", text[start:], fields, {}, (line,), "info")
        stamped = _STAMPED.match(text, start)
        if stamped is None:
            return None
        level, stamp, source = stamped.groups()
        fields = {**process, "level": level, "ts": stamp, "source": source}
        end = stamped.end()
        # A layout is that of a whole line, so nothing can follow it.
        kind = self._layouts.read(text, end, fields) if text.startswith(_PERIODIC, end) else None
        message = text[end:]
        if kind is None:
            if " pid=" in message:
                return None
            extras: dict[str, str] = {}
            found = periodic(message, extras, self._layouts)
            if found is not None:
                return LogRecord(
                    self._count, found.kind, message, fields | found.fields, extras, (line,), LEVELS[level]
                )
            if message[-1:] == ":" or message[:4] in _OPENINGS or not TABLE.dull(message):
                return None
            kind = "text"
        return LogRecord(self._count, kind, message, fields, {}, (line,), LEVELS[level])

    def _split(self, text: str) -> list[str]:
        at = text.find(" pid=", 60)
        if at < 0:
            return [text]
        pieces: list[str] = []
        start = 0
        for match in _SECOND.finditer(text, 60):
            if len(pieces) < _MAX_PIECES and _STAMPED.search(text, start, min(start + 400, match.start())):
                pieces.append(text[start : match.start()])
                start = match.start()
        pieces.append(text[start:])
        return pieces

    def _head(self, text: str) -> Head:
        process = _PROCESS.match(text)
        stamped = None
        if process is None:
            stamped = _STAMPED.match(text)
            if stamped is None:
                text = _own(text)
                process = _PROCESS.match(text)
        fields: dict[str, Value] = {}
        key = ""
        start = 0
        if process is not None:
            fields["process"], fields["pid"] = process[1], int(process[2])
            inner = _PROCESS.match(text, process.end())  # a worker of Ray, told by the process that started it
            start = process.end() if inner is None else inner.end()
            key = text[:start].rstrip()
            if len(self._processes) < _MOST_PROCESSES:
                self._processes[text[:start]] = dict(fields)
        if stamped is None:
            stamped = _STAMPED.match(text, start)
        if stamped is None:
            message = text[start:]
            level = uvicorn(message[:200])
            if level is None:
                return Head(key, fields, native_level(message), message)
            fields["level"] = level[0]
            return Head(key, fields, LEVELS[level[0]], message)
        level_word, fields["ts"], fields["source"] = stamped.groups()
        fields["level"] = level_word
        return Head(key, fields, LEVELS[level_word], text[stamped.end() :])

    def _classify(self, head: Head, extras: dict[str, str]) -> Found | None:
        message = head.message
        if not message:
            return None
        if message.startswith(_ARGS):
            message = mask_secrets(message)
        else:
            message = message[:TEXT_LIMIT]
        if "source" not in head.fields:
            if head.level and message[:1] != "[":
                fields = access(message)
                if fields is not None:
                    return Found("access", fields)
                pair = uvicorn(message)
                message = pair[1] if pair else message
            else:
                progress = bar(message)
                if progress is not None:
                    return self._bar(*progress)
        return periodic(message, extras) or TABLE.find(message)

    @staticmethod
    def _bar(label: str, fields: dict[str, Value]) -> Found:
        if label.startswith("Capturing "):
            return Found("progress.capture", fields)
        if "shards" in label:
            return Found("progress.shards", fields)
        fields["what"] = label
        return Found("progress.other", fields)

    def _failure(self, message: str) -> Found | None:
        return TABLE.find_inside(message[:TEXT_LIMIT])


def new() -> VllmGrammar:
    """A fresh reader for one vLLM log."""
    return VllmGrammar()

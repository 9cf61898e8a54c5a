"""The log grammar of SGLang: heads `[time ranks]`, statistics, start-up, failures, bars, access lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokpit.domain.records import LogRecord, Value
from tokpit.domain.text import mask_secrets
from tokpit.engines.logkit.access import access, add_access, native_level, uvicorn
from tokpit.engines.logkit.bars import bar
from tokpit.engines.logkit.base import LEVELS, TEXT_LIMIT, Head, LineGrammar
from tokpit.engines.logkit.fold import opens
from tokpit.engines.logkit.layout import Layouts
from tokpit.engines.logkit.prefix import outer_end, outer_level, strip_outer
from tokpit.engines.logkit.table import Found
from tokpit.engines.sglang.batch import batch, mark_probe
from tokpit.engines.sglang.sampling import Sampler
from tokpit.engines.sglang.shapes import TABLE

_HEAD = re.compile(
    r"\[(?:(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{3}))?(?: ([\w.]{1,60}(?: [\w.]{1,60}){0,8}))?"
    r"|((?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+(?: [A-Z_]+\d+)*))\] ?"
)
_RANK = re.compile(r"([A-Z_]+)(\d{1,9})$")
_RANKS = {
    "DP": "dp_rank",
    "PP": "pp_rank",
    "TP": "tp_rank",
    "EP": "ep_rank",
    "ATTN_CP": "attn_cp_rank",
    "MOE_DP": "moe_dp_rank",
}
_LOAD = ("Loading ", "Multi-thread loading ")
_ARGS = "server_args="
_NOT_DULL = frozenset({"INFO", "WARN", "ERRO", "DEBU", "CRIT", "serv", "Deco", "Pref", "usag", "  Fi"})
"""Beginnings of messages that may be more than text; a message that ends in a colon may open a traceback."""
_BATCH = ("Decode batch", "Prefill batch")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
_PLAIN_RANKS = re.compile(r"(?: \w+){0,9}")
_MOST_RANKS = 4096
_MAX_PIECES = 100
_SEEK = 400
"""A head is looked for in this many characters: longer outer prefixes are not made."""


def _ranks(text: str) -> dict[str, Value]:
    fields: dict[str, Value] = {}
    for word in text.split():
        match = _RANK.match(word)
        name = _RANKS.get(match[1]) if match else None
        if match and name:
            fields[name] = int(match[2])
        else:
            fields["mode"] = word.removeprefix("DisaggregationMode.")
    return fields


class SglangGrammar(LineGrammar):
    """See engines.base.Grammar."""

    def __init__(self) -> None:
        super().__init__()
        self._sampler = Sampler()
        self._layouts = Layouts()
        self._stamp = ""
        self._rank_cache: dict[str, dict[str, Value]] = {}
        self._ending = False

    def sample(self, record: LogRecord) -> dict[str, float]:
        """Server-wide values after this record: see sampling.Sampler."""
        return self._sampler.sample(record)

    def samples(self, records: Sequence[LogRecord]) -> dict[str, float]:
        """Those after records that came together: see sampling.Sampler."""
        return self._sampler.samples(records)

    def _fast(self, text: str, start: int, line: str) -> LogRecord | None:
        """Statistics, access lines and dull text with the usual head or none, which is most of a log."""
        if not text.startswith("[20", start):
            return self._headless(text, start, line)
        end = text.find("] ", start + 20, start + 80)
        if end < 0:
            return None
        stamp, words = text[start + 1 : start + 20], text[start + 20 : end]
        if stamp != self._stamp:
            if not _STAMP.match(stamp):
                return None
            self._stamp = stamp
        ranks = self._rank_cache.get(words)
        if ranks is None:
            if not _PLAIN_RANKS.fullmatch(words) or len(self._rank_cache) >= _MOST_RANKS:
                return None
            ranks = self._rank_cache[words] = _ranks(words)
        fields: dict[str, Value] = {"ts": stamp, **ranks}
        end += 2
        if text.startswith(_BATCH, end):
            return self._statistics(text, end, line, fields)
        message = text[end:]
        if "[20" in message:
            return None
        if message.startswith("INFO: "):
            if not add_access(text, end, fields):
                return None
            return LogRecord(self._count, "access", message, fields, {}, (line,), "info")
        record = self._dull(message, line, fields)
        if record is None and not opens(message):
            return self._plain(self._unheaded(message, fields), (line,))
        return record

    def _statistics(self, text: str, start: int, line: str, fields: dict[str, Value]) -> LogRecord | None:
        kind = self._layouts.read(text, start, fields)
        extras: dict[str, str] = {}
        if kind is None:  # a layout is that of a whole line, so nothing can follow it; here something may
            if text.find("[20", start) >= 0:
                return None
            kind = batch(text[start:], fields, extras, self._layouts)
            if kind is None:
                return None
        if kind == "prefill_batch":
            mark_probe(fields)
        return LogRecord(self._count, kind, text[start:], fields, extras, (line,), "")

    def _headless(self, text: str, start: int, line: str) -> LogRecord | None:
        if text.find("[20", start) >= 0:
            return None
        if text.startswith("INFO: ", start):
            fields: dict[str, Value] = {}
            if not add_access(text, start, fields):
                return None
            return LogRecord(self._count, "access", text[start:], fields, {}, (line,), "info")
        if start or not text[:1].isalpha() or (text[3:4] == " " and outer_end(text)):
            return None
        return self._dull(text, line, {})

    def _dull(self, message: str, line: str, fields: dict[str, Value]) -> LogRecord | None:
        if message[:4] in _NOT_DULL or message[-1:] == ":" or "%" in message or "| " in message:
            return None
        if not TABLE.dull(message) or "] " in message[:90]:
            return None
        return LogRecord(self._count, "text", message, fields, {}, (line,), "")

    def _split(self, text: str) -> list[str]:
        pieces: list[str] = []
        start = 0
        at = text.find("[20", 1)
        while at > 0 and len(pieces) < _MAX_PIECES:
            if _HEAD.match(text, at) and self._whole(text, start, at):
                pieces.append(text[start:at])
                start = at
            at = text.find("[20", at + 3)
        pieces.append(text[start:])
        return pieces

    @staticmethod
    def _whole(text: str, start: int, end: int) -> bool:
        """Whether text before a head is a record of its own, rather than what another program prepends."""
        if _HEAD.search(text, start, min(end, start + _SEEK)):
            return True
        return bar(text[max(start, end - _SEEK) : end]) is not None

    def _head(self, text: str) -> Head:
        match = _HEAD.match(text)
        if match is None:
            at = text.find("[20", 0, _SEEK)
            if at > 0:
                match = _HEAD.match(text, at)
        if match is None:
            prefix, message = strip_outer(text)
            match = _HEAD.match(message)
            if match is None:
                head = self._unheaded(message, {})
                word = outer_level(prefix)
                return head._replace(level=LEVELS[word]) if word and not head.level else head
            text = message
        stamp, millis, ranks, only = match.groups()
        fields: dict[str, Value] = {}
        if stamp:
            fields["ts"] = stamp
        if millis:
            fields["ts_ms"] = int(millis)
        if ranks or only:
            fields.update(_ranks(ranks or only))
        head = self._unheaded(text[match.end() :], fields)
        # What follows an exception has no head: a line with one never continues a fold, it can only open one.
        return head if opens(head.message) else head._replace(key="*")

    @staticmethod
    def _unheaded(message: str, fields: dict[str, Value]) -> Head:
        level = uvicorn(message[:200])
        if level is None:
            return Head("", fields, native_level(message), message)
        return Head("", fields, LEVELS[level[0]], message)

    def _classify(self, head: Head, extras: dict[str, str]) -> Found | None:
        message = head.message
        if head.level and message[:1] != "[":
            found = access(message[:TEXT_LIMIT])
            if found is not None:
                return Found("access", found)
            pair = uvicorn(message[:TEXT_LIMIT])
            message = pair[1] if pair else message
        if message.startswith(_ARGS):
            self._ending = False
            return Found("milestone.args", {"server_args_text": mask_secrets(message[len(_ARGS) :])})
        message = message[:TEXT_LIMIT]
        fields: dict[str, Value] = {}
        kind = batch(message, fields, extras)
        if kind is not None:
            mark_probe(fields)
            return Found(kind, fields)
        progress = bar(message)
        if progress is not None:
            return self._bar(*progress)
        known = TABLE.find(message)
        return self._ended(known) if known else None

    def _ended(self, found: Found) -> Found:
        """What a server that was asked to end says of its workers is part of the ending, no failure."""
        if found.kind == "milestone.shutdown":
            self._ending = True
        elif self._ending and (
            found.kind == "failure.sigquit" or (found.kind == "failure.subproc" and found.fields["exit_code"] == -15)
        ):
            return Found("milestone.shutdown", found.fields)
        return found

    @staticmethod
    def _bar(label: str, fields: dict[str, Value]) -> Found:
        if label.startswith("Capturing "):
            label = label.removeprefix("Capturing ")
            fields["what"] = label.partition(" (")[0]
            return Found("progress.capture", fields)
        fields["what"] = label
        if label.startswith(_LOAD) and "shards" in label:
            return Found("progress.load_shards", fields)
        return Found("progress.other", fields)

    def _failure(self, message: str) -> Found | None:
        return TABLE.find_inside(message[:TEXT_LIMIT])


def new() -> SglangGrammar:
    """A fresh reader for one SGLang log."""
    return SglangGrammar()

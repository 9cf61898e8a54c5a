"""Log records flattened to lines without their prefixes: who printed it, at which level, and the bare message.

Prefixes are what loggers and collectors put in front of a message: container and journal stamps, `(Worker_TP0 pid=7)`,
`ERROR 11-29 23:41:37 [core.py:708]`, `[2026-01-01 00:00:00 TP0]`, `[rank0]:`. They may be stacked in any order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from tokpit.domain.records import LogRecord
from tokpit.domain.text import sanitize
from tokpit.engines.logkit.prefix import outer_level, strip_outer, unwrap

MAX_CHARS = 4000
"""Only so much of a line is searched: dumps of requests can be megabytes long and decide nothing."""

_LEVELS = {"err": "error", "critical": "error", "fatal": "error", "warn": "warning"}
_RANKS = r"(?:(?:DisaggregationMode\.\w+|(?:ATTN_|MOE_)?(?:DP|PP|CP|TP|EP)\d+) ?)+"

_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        # vLLM and Ray processes
        r"\((?P<proc>[A-Za-z][\w.\-]*(?: [\w.\-]+)*?)(?: rank=\d+)?,? ?pid=\d+(?:, ip=[^)]*)?\) ?",
        # vLLM's logger, uvicorn, python's logging
        r"(?P<level1>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL) +\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[?[^\]\s]+\] ?",
        r"(?P<level2>DEBUG|INFO|WARNING|ERROR|CRITICAL): {2,}",
        r"(?P<level3>DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]+:(?=\S)",
        # SGLang
        rf"\[\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?: (?P<ranks>{_RANKS}))?\] ?",
        rf"\[(?P<ranks2>{_RANKS})\] ?",
        # torch and glog
        r"\[(?P<rank>rank\d+)\]:? ?",
        r"\[(?P<glog>[IWEF])\d{3,4} [^\]]*\] ?",
        # llama.cpp; a stamp of its own before it
        r"\[\d+\] (?=\d+\.\d\d\.\d{3}\.\d{3} )",
        r"\[?\d+\.\d\d\.\d{3}\.\d{3}\]? (?P<llama>[IWED]) ",
        # the kernel's ring buffer
        r"\[ *\d+\.\d{6}\] ",
        r"\[[^\[\]]{1,12} [^\[\]]{1,12} +\d{1,2} \d\d:\d\d:\d\d \d{4}\] ",
    )
)
_CONTENT = re.compile(
    r"""(?x)(?!\S*(?:Error|Exception)\b)(?:
      (?:Receive|Finish|Accept):\ | Received\ request\ | Generated\ response\ | Dumping\ \w+\b | Scheduler\ debug\ info
    | .{0,80}\b(?:GenerateReqInput|TokenizedGenerateReqInput|SamplingParams|ChatCompletionRequest|CompletionRequest)\(
    | .{0,60}\b(?:prompt|messages|text|content)"?(?::\ |=)['"\[{] | (?:srv\ +)?log_server_r(?:equest)?:
    | server_args= | non-default\ args: | args:\ Namespace\(
    )"""
)
"""Lines that carry what users sent, or settings: their words are no events."""
_BUSY = re.compile(
    r"""(?x)(?:\[[\d: .,-]{19,23}(?:\ (?P<ranks>[\w. ]{2,60}))?\]\ (?:Decode|Prefill)\ batch
    | (?:\((?P<proc>\w+)\ pid=\d+\)\ )?INFO\ \d\d-\d\d\ \d\d:\d\d:\d\d\ \[[\w.]+:\d+\]
      \ (?:Engine\ \d{3}:\ )?Avg\ prompt
    | (?:\[[\d: .,-]{19,23}\]\ )?(?:\(\w+\ pid=\d+\)\ )?
      INFO:\ {4,6}[\d.]+:\d+\ -\ "(?:POST|GET)\ /\S*\ HTTP/[\d.]+"\ 200)"""
)
"""The lines that fill the log of a server at work; read at once, because there may be hundreds of thousands."""
_LETTER = {"I": "info", "W": "warning", "E": "error", "F": "error", "D": "debug"}


class Line(msgspec.Struct, frozen=True):
    """One line: its number from 1, the bare message, who printed it (empty: unknown) and its level (empty: none)."""

    number: int
    text: str
    raw: str
    proc: str = ""
    level: str = ""
    quotes: bool = False
    """Carries what users sent, or settings: its words are no events."""
    headed: bool = False
    """Begins with a head of its own, so that it goes on with no line before it; what collects the log adds is none."""
    busy: bool = False
    """A statistics or access line of a server at work."""

    @property
    def depth(self) -> int:
        """How deep in the process tree the printer is: worker 3, engine core or scheduler 2, front end 1, unknown 0."""
        name = self.proc.lower()
        if "worker" in name or name.startswith("rank"):
            return 3
        if name.startswith(("enginecore", "dp", "pp", "tp", "attn_", "moe_", "ep", "disaggregationmode")):
            return 2
        return 1 if name else 0


def read_line(number: int, raw: str, level: str = "") -> Line:
    """One raw line without its prefixes; the innermost level and the first process name win."""
    busy = _BUSY.match(raw)
    if busy is not None:
        text = "".join(raw[busy.start() : busy.end()].rpartition("] ")[2])
        return Line(number, text, raw[:MAX_CHARS], busy["ranks"] or busy["proc"] or "", "info", busy=True)
    inner = unwrap(raw) if raw.startswith('{"') and raw.endswith("}") else None
    text = sanitize((raw if inner is None else inner)[:MAX_CHARS]).lstrip("\ufffd\r")
    outer, text = strip_outer(text)
    level = outer_level(outer).lower() or level
    proc = ""
    whole = len(text)
    for _ in range(6):
        for prefix in _PREFIXES:
            match = prefix.match(text)
            if match is None:
                continue
            found = match.groupdict()
            proc = proc or found.get("proc") or found.get("ranks") or found.get("ranks2") or found.get("rank") or ""
            for key in ("level1", "level2", "level3"):
                if found.get(key):
                    level = found[key].lower()
            letter = found.get("glog") or found.get("llama")
            if letter:
                level = _LETTER[letter]
            text = text[match.end() :]
            break
        else:
            break
    quotes = _CONTENT.match(text) is not None
    headed = len(text) < whole
    return Line(number, text.rstrip(), raw[:MAX_CHARS], proc.strip(), _LEVELS.get(level, level), quotes, headed)


def read(records: Sequence[LogRecord]) -> list[Line]:
    """Every line of the records, by line number: a record of several lines may come after one that began later."""
    lines = sorted(_read(records), key=lambda line: line.number)
    for index in range(1, len(lines)):
        before, line = lines[index - 1], lines[index]
        if before.quotes and line.number == before.number:  # one line that a grammar has cut in pieces
            lines[index] = msgspec.structs.replace(line, quotes=True)
    return lines


def _read(records: Sequence[LogRecord]) -> Iterator[Line]:
    for record in records:
        raws = record.lines or (record.text,)
        for offset, raw in enumerate(raws):
            yield read_line(record.line + offset, raw, record.level if len(raws) == 1 else "")

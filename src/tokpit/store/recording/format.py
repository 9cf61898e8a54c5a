"""The format of recordings, version 1: lines of JSON, secrets masked. docs/recordings.md describes it; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tokpit import __version__
from tokpit.domain.hostspec import HostSpec
from tokpit.domain.records import (
    ActionRecord,
    Facts,
    GpuRecord,
    HostRecord,
    LinkRecord,
    LogBatch,
    LogRecord,
    Mark,
    Operation,
    PhaseRecord,
    Record,
    Sample,
    ServerSeen,
    ServersRecord,
    Stall,
)
from tokpit.domain.run import Level, Run
from tokpit.store.masking import masked

FORMAT = "tokpit-recording"
VERSION = 1
SUFFIX = ".tokrec"

KINDS: Mapping[str, type[Any]] = {
    "link": LinkRecord,
    "servers": ServersRecord,
    "server": ServerSeen,
    "log": LogBatch,
    "sample": Sample,
    "gpus": GpuRecord,
    "host": HostRecord,
    "mark": Mark,
    "phase": PhaseRecord,
    "op": Operation,
    "action": ActionRecord,
    "run": Run,
    "facts": Facts,
    "stall": Stall,
}
"""Kind of a line to the record that its `r` holds."""
_NAMES = {kind: name for name, kind in KINDS.items()}

HEAD, GAP, END = "head", "gap", "end"
"""Kinds of lines that are no records: begin of a member, what was not recorded, the proper end."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """First line of each member."""

    format: str = FORMAT
    version: int = VERSION
    tokpit: str = __version__
    hosts: tuple[HostSpec, ...] = ()
    """Name, label, clock factor, group and whether it is this machine; never how to reach it."""
    clocks: dict[str, float] = {}
    """UTC seconds on each host's clock at the time of this line."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Log records and samples that were not recorded because they came faster than they could be written."""

    records: int


class Line(msgspec.Struct, frozen=True):
    """One line: kind, UTC seconds (real, of the machine that recorded) at which it came, and what it holds."""

    k: str
    at: float
    r: msgspec.Raw = msgspec.Raw(b"{}")
    known: int = 0
    """Of an operation: so many of its levels are as in its last line within this member, and are left out here."""


def public(spec: HostSpec) -> HostSpec:
    """What a recording says of a host."""
    return HostSpec(
        name=spec.name, label=spec.label, clock_factor=spec.clock_factor, group=spec.group, local=spec.local
    )


_WORDS = ("token=", 'token"', "secret", "passw", "authorization")
_KEYS = {
    start: tuple(start + between + word for between in ("", "-", "_") for word in ("key", "token"))
    for start in ("api", "hf", "auth")
}
_FOLDED = "\u017f\u212a\u0131\u0130"
"""Letters that regular expressions without regard to case take for s, k and i."""
_ENCODER = msgspec.json.Encoder()


def suspicious(text: str) -> bool:
    """Whether a secret may be in it: text without any of these words holds nothing that `masked` would change.

    It spares most lines of a flood the search. `api` alone would not: it is in `APIServer`, with which each line of a
    vLLM server begins, and `_token` is in the names of figures.
    """
    low = text.lower()
    for word in _WORDS:
        if word in low:
            return True
    for start, whole in _KEYS.items():
        if start in low and any(word in low for word in whole):
            return True
    return not text.isascii() and any(letter in text for letter in _FOLDED)


class Encoder:
    """Records to lines of one member."""

    def __init__(self) -> None:
        self._levels: dict[str, tuple[Level, ...]] = {}

    def head(self, at: float, head: Head) -> bytes:
        """The first line."""
        return _line(HEAD, at, _ENCODER.encode(head))

    def record(self, at: float, record: Record) -> bytes:
        """A record, secrets masked."""
        known = 0
        if isinstance(record, Operation):
            before = self._levels.get(record.id, ())
            known = len(before) if record.levels[: len(before)] == before else 0
            self._levels[record.id] = record.levels
            record = msgspec.structs.replace(record, levels=record.levels[known:])
        if isinstance(record, LogBatch):
            records = record.records
            if any(map(_odd, records)) or suspicious("\n".join(map(_whole, records))):
                # Line by line: a secret in one of thousands must not make the others slow.
                records = tuple(map(_clean, records))
            raw = _ENCODER.encode(msgspec.structs.replace(record, records=tuple(map(_short, records))))
        else:
            raw = _ENCODER.encode(record)
            if suspicious(raw.decode()):
                raw = _ENCODER.encode(masked(msgspec.to_builtins(record)))
        return _line(_NAMES[type(record)], at, raw, known)

    def gap(self, at: float, records: int) -> bytes:
        """Something is missing here."""
        return _line(GAP, at, _ENCODER.encode(Gap(records=records)))

    def end(self, at: float) -> bytes:
        """The proper end."""
        return _line(END, at, b"{}")


def _line(kind: str, at: float, raw: bytes, known: int = 0) -> bytes:
    extra = f',"known":{known}' if known else ""
    return f'{{"k":"{kind}","at":{at:.3f}{extra},"r":'.encode() + raw + b"}\n"


def _short(record: LogRecord) -> LogRecord:
    """A record of one line without that line, where its text is the same."""
    return msgspec.structs.replace(record, lines=()) if record.lines == (record.text,) else record


def _odd(record: LogRecord) -> bool:
    """Whether it holds more than one line and what was read from it."""
    return bool(record.extras) or len(record.lines) > 1


def _whole(record: LogRecord) -> str:
    """All that a record which is not odd holds as text; its fields are parts of it."""
    if not record.lines:
        return record.text
    line = record.lines[0]
    return line if line.endswith(record.text) else f"{line}\n{record.text}"


def _clean(record: LogRecord) -> LogRecord:
    if not suspicious(_ENCODER.encode(record).decode() if _odd(record) else _whole(record)):
        return record
    clean: LogRecord = msgspec.convert(masked(msgspec.to_builtins(record)), LogRecord)
    return clean


class Decoder:
    """Lines to records. Raises ValueError for a line that cannot be read."""

    def __init__(self) -> None:
        self._line = msgspec.json.Decoder(Line)
        self._kinds = {name: msgspec.json.Decoder(kind, strict=False) for name, kind in KINDS.items()}
        self._levels: dict[str, tuple[Level, ...]] = {}

    def line(self, raw: bytes) -> Line:
        """The outer part."""
        return self._line.decode(raw)

    def record(self, line: Line) -> Record | None:
        """The record of a line; None for a kind that is no record or that nobody knows here."""
        decoder = self._kinds.get(line.k)
        if decoder is None:
            return None
        record: Record = decoder.decode(line.r)
        if isinstance(record, Operation):
            levels = (*self._levels.get(record.id, ())[: line.known], *record.levels)
            self._levels[record.id] = levels
            return msgspec.structs.replace(record, levels=levels)
        if isinstance(record, LogBatch):
            return msgspec.structs.replace(record, records=_long(record.records))
        return record


def _long(records: Sequence[LogRecord]) -> tuple[LogRecord, ...]:
    return tuple(one if one.lines else msgspec.structs.replace(one, lines=(one.text,)) for one in records)


def head_of(line: Line) -> Head:
    """The head that a line holds. Raises ValueError where it is no head."""
    if line.k != HEAD:
        raise ValueError("the first line is no head")
    return msgspec.json.decode(line.r, type=Head, strict=False)

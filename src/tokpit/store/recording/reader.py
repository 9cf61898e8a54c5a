"""Reading recordings: what is damaged, cut off or from a newer tokpit is said, and all the rest is given."""

from __future__ import annotations

import time
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tokpit.domain.hostspec import HostSpec
from tokpit.domain.records import LinkRecord, Record
from tokpit.errors import StoreError
from tokpit.store.recording.format import END, FORMAT, GAP, HEAD, KINDS, VERSION, Decoder, Gap, Head, Line, head_of

_CHUNK = 1 << 16
_MAGIC = b"\x1f\x8b\x08"
_MOST_PROBLEMS = 20
LONGEST_LINE = 64 << 20
"""A longer line is no record of ours; it is left out, so that a file made to explode does not."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording holds. Times are UTC seconds of the machine that recorded."""

    path: str
    start: float
    end: float
    hosts: tuple[HostSpec, ...]
    tokpit: str
    version: int
    counts: dict[str, int]
    """Lines by kind."""
    missed: int = 0
    """Log records that were not recorded."""
    problems: tuple[str, ...] = ()
    """One sentence for everything that is off."""
    clocks: tuple[tuple[float, dict[str, float]], ...] = ()
    """Time of each head and the hosts' clocks then."""


def _up_to_damage(unzip: Any, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Bytes read and what came of them before the place that cannot be read; in small steps, little is lost there."""
    for at in range(0, len(data), 64):
        piece = data[at : at + 64]
        try:
            out = unzip.decompress(piece)
        except zlib.error:
            return
        yield len(piece), out


class Recording:
    """One file. Reading never holds more than a chunk and a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        """What was off in the last pass."""

    def lines(self) -> Iterator[Line]:
        """Every line that can be read. Raises StoreError where the file cannot be opened or is none of ours."""
        self.problems = []
        decoder = Decoder()
        bad = 0
        first, ended = True, False
        try:
            for raw in self._raw():
                try:
                    line = decoder.line(raw)
                    if first:
                        self._judge(head_of(line))
                except (msgspec.DecodeError, ValueError):
                    if first:
                        raise self._foreign() from None
                    bad += 1
                    continue
                first = False
                ended = line.k == END
                yield line
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror or error}") from error
        if first:
            raise self._foreign()
        if bad:
            self.problems.append(f"{bad} line{'s' if bad > 1 else ''} could not be read and {_are(bad)} left out")
        if not ended and not self.problems:
            self.problems.append("the recording has no proper end: tokpit was killed, or still records")

    def records(self) -> Iterator[tuple[float, Record]]:
        """Every record with the time at which it came; unknown kinds are passed over."""
        decoder = Decoder()
        bad = 0
        for line in self.lines():
            try:
                record = decoder.record(line)
            except (msgspec.DecodeError, ValueError):
                bad += 1
                continue
            if record is not None:
                yield line.at, record
        if bad:
            self.problems.append(f"{bad} record{'s' if bad > 1 else ''} could not be read and {_are(bad)} left out")

    def summary(self) -> Summary:
        """One pass over the whole file. Raises StoreError."""
        counts: dict[str, int] = {}
        hosts: dict[str, HostSpec] = {}
        clocks: list[tuple[float, dict[str, float]]] = []
        start, end, missed = float("inf"), float("-inf"), 0
        first: Head | None = None
        for line in self.lines():
            start, end = min(start, line.at), max(end, line.at)
            counts[line.k] = counts.get(line.k, 0) + 1
            if line.k == HEAD:
                head = head_of(line)
                first = first or head
                hosts |= {spec.name: spec for spec in head.hosts}
                clocks.append((line.at, head.clocks))
            elif line.k == "link" and line.at > clocks[-1][0]:
                # Hosts that were not connected yet when the member began: their clocks are in their first words.
                clocks += _told(line)
            elif line.k == GAP:
                missed += msgspec.json.decode(line.r, type=Gap).records
        assert first is not None
        unknown = sorted(set(counts) - set(KINDS) - {HEAD, GAP, END})
        problems = list(self.problems)
        if unknown:
            problems.append(f"lines of a kind that this tokpit does not know are left out: {', '.join(unknown)}")
        return Summary(
            path=str(self.path),
            start=start,
            end=end,
            hosts=tuple(hosts.values()),
            tokpit=first.tokpit,
            version=first.version,
            counts=counts,
            missed=missed,
            problems=tuple(problems),
            clocks=tuple(clocks),
        )

    def _judge(self, head: Head) -> None:
        if head.format != FORMAT:
            raise ValueError(head.format)
        if head.version > VERSION:
            self.problems.append(
                f"it was written by a newer tokpit ({head.tokpit}, format {head.version}; this one knows {VERSION}): "
                "what is new in it is left out; update tokpit to see it"
            )

    def _foreign(self) -> StoreError:
        return StoreError(f"{self.path} is no recording of tokpit", hint="recordings are made by: tokpit record HOST")

    def _raw(self) -> Iterator[bytes]:
        """Lines of all members; after damage it goes on with the next member."""
        rest = b""
        skip = False
        for data in self._inflated():
            if data is None:  # damage: the line under way is lost
                rest, skip = b"", False
                continue
            parts = (rest + data).split(b"\n")
            rest = parts.pop()
            for part in parts:
                if skip:
                    skip = False
                elif part:
                    yield part
            if len(rest) > LONGEST_LINE:
                rest, skip = b"", True

    def _inflated(self) -> Iterator[bytes | None]:
        with self.path.open("rb") as stream:
            unzip = zlib.decompressobj(31)
            data = b""
            begun = False
            while True:
                if not data and not (data := stream.read(_CHUNK)):
                    break
                here = stream.tell() - len(data)
                before = unzip.copy()
                try:
                    # Bounded: a small file may hold gigabytes of zeros.
                    out = unzip.decompress(data, 1 << 20)
                except zlib.error:
                    for size, out in _up_to_damage(before, data):
                        here += size
                        if out:
                            begun = True
                            yield out
                    if not begun and stream.tell() == len(data):
                        raise self._foreign() from None
                    yield None
                    if not (data := self._resync(stream, data[1:])):
                        self.problems.append(f"it is damaged at byte {here:,}; nothing after that could be read")
                        return
                    damage = f"it is damaged near byte {here:,}; reading went on at the next whole part"
                    if len(self.problems) < _MOST_PROBLEMS:
                        self.problems.append(damage)
                    unzip = zlib.decompressobj(31)
                    continue
                begun = True
                if out:
                    yield out
                if unzip.eof:
                    data = unzip.unused_data
                    unzip = zlib.decompressobj(31)
                    begun = bool(data)
                else:
                    data = unzip.unconsumed_tail
            while begun and not unzip.eof and (out := unzip.decompress(b"", 1 << 20)):
                yield out
            if begun and not unzip.eof:
                self.problems.append("its end is missing: the file was cut off, or tokpit was killed")
                yield None

    @staticmethod
    def _resync(stream: BinaryIO, data: bytes) -> bytes:
        """The bytes from the next begin of a member on; empty where there is none."""
        while True:
            at = data.find(_MAGIC)
            if at >= 0:
                return data[at:]
            more = stream.read(_CHUNK)
            if not more:
                return b""
            data = data[-2:] + more


class Clocks:
    """What time it was on each host: from the heads of a recording, and the hosts' clock factors in between."""

    def __init__(self, summary: Summary) -> None:
        self._factors = {spec.name: spec.clock_factor for spec in summary.hosts}
        self._told: dict[str, list[tuple[float, float]]] = {}
        for at, clocks in summary.clocks:
            for host, t in clocks.items():
                self._told.setdefault(host, []).append((at, t))

    def now(self, host: str, at: float) -> float:
        """UTC seconds on the host's clock at the real time `at`."""
        told = self._told.get(host)
        if not told:
            return at
        index = max(0, bisect_right(told, at, key=lambda pair: pair[0]) - 1)
        base, t = told[index]
        return t + (at - base) * self._factors.get(host, 1.0)

    def all(self, at: float) -> dict[str, float]:
        """Every host's clock at `at`."""
        return {host: self.now(host, at) for host in self._told}


def _told(line: Line) -> list[tuple[float, dict[str, float]]]:
    try:
        link = msgspec.json.decode(line.r, type=LinkRecord, strict=False)
    except (msgspec.DecodeError, ValueError):
        return []
    return [(line.at, {link.host: link.t})]


def _are(count: int) -> str:
    return "are" if count > 1 else "is"


def stamp(t: float) -> str:
    """UTC seconds as `2026-11-30 07:12:44Z`."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(t))

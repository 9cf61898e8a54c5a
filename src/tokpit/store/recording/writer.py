"""Writing recordings: one file that grows, or a ring of segments that stays within minutes and bytes. Blocking."""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from tokpit.domain.records import Record
from tokpit.errors import StoreError
from tokpit.store.recording.format import SUFFIX, Encoder, Head

SEGMENT_S = 60.0
SEGMENT_BYTES = 8 << 20
_SLICE_S = 0.002
_REST = 2.0
"""Rest after a slice of that much work, as a multiple of it: two threads that want the interpreter get half of it each,
so that a screen drawn meanwhile would take twice its time."""
_LEVEL = 3
"""zlib's: twice as quick as the default, a tenth larger on logs."""


class Member:
    """One gzip member under way: a head, what the store held at that time, then records as they come."""

    def __init__(self, stream: BinaryIO, at: float, head: Head, state: Iterable[Record]) -> None:
        self.began = at
        self.size = 0
        self._stream = stream
        self._encoder = Encoder()
        self._zip = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
        self._put(self._encoder.head(at, head))
        for record in state:
            self._put(self._encoder.record(at, record))

    def write(self, records: Iterable[tuple[float, Record]], missed: int = 0) -> None:
        """Add records with the time at which they came, and make sure that they can be read should tokpit die."""
        at = self.began
        since = time.monotonic()
        for at, record in records:
            self._put(self._encoder.record(at, record))
            took = time.monotonic() - since
            if took > _SLICE_S:
                time.sleep(min(took, 2 * _SLICE_S) * _REST)
                since = time.monotonic()
        if missed:
            self._put(self._encoder.gap(at, missed))
        self._out(self._zip.flush(zlib.Z_SYNC_FLUSH))
        self._stream.flush()

    def finish(self, at: float | None = None) -> None:
        """End the member; with `at` also the recording."""
        if at is not None:
            self._put(self._encoder.end(at))
        self._out(self._zip.flush())
        self._stream.flush()

    def _put(self, line: bytes) -> None:
        self._out(self._zip.compress(line))

    def _out(self, data: bytes) -> None:
        if data:
            self._stream.write(data)
            self.size += len(data)


class FileSink:
    """A recording into one file, begun with a new member every minute or so, so that damage stays small."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._member: Member | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        # Exclusive: a recording is evidence and is never written over.
        self._stream: BinaryIO = path.open("xb")

    @property
    def begun(self) -> bool:
        """Whether there is a member to write into."""
        return self._member is not None

    def due(self, now: float) -> bool:
        """Whether the next write begins a member and so needs the state of the store."""
        member = self._member
        return member is None or now - member.began >= SEGMENT_S or member.size >= SEGMENT_BYTES

    def begin(self, at: float, head: Head, state: Iterable[Record]) -> None:
        """Begin a member."""
        if self._member is not None:
            self._member.finish()
        self._member = Member(self._stream, at, head, state)

    def write(self, records: Sequence[tuple[float, Record]], missed: int) -> None:
        """Add records."""
        if self._member is not None:
            self._member.write(records, missed)

    def close(self, at: float) -> None:
        """The proper end."""
        if self._member is not None:
            self._member.finish(at)
        self._stream.close()


class Ring:
    """The last minutes as a folder of segments, each one member; `save` joins them into one file."""

    def __init__(self, folder: Path, *, minutes: float = 30.0, max_bytes: int = 200 << 20) -> None:
        self.folder = folder
        self._seconds, self._most = minutes * 60, max_bytes
        self._member: Member | None = None
        self._stream: BinaryIO | None = None
        self._segment_bytes = min(SEGMENT_BYTES, max_bytes // 4)
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def begun(self) -> bool:
        """Whether there is a member to write into."""
        return self._member is not None

    def due(self, now: float) -> bool:
        """Whether the next write begins a segment."""
        member = self._member
        return member is None or now - member.began >= SEGMENT_S or member.size >= self._segment_bytes

    def begin(self, at: float, head: Head, state: Iterable[Record]) -> None:
        """Begin a segment; what is older than the ring goes."""
        self._end()
        path = self.folder / f"{int(at * 1000):015d}{SUFFIX}"
        self._stream = path.open("wb")
        self._member = Member(self._stream, at, head, state)
        self._trim(at)

    def write(self, records: Sequence[tuple[float, Record]], missed: int) -> None:
        """Add records."""
        if self._member is not None:
            self._member.write(records, missed)

    def close(self, at: float) -> None:
        """End the last segment; the ring stays on disk."""
        self._end(at)

    def _end(self, at: float | None = None) -> None:
        if self._member is not None and self._stream is not None:
            self._member.finish(at)
            self._stream.close()
        self._member = self._stream = None

    def _trim(self, now: float) -> None:
        kept = segments(self.folder)
        total = sum(size_of(path) for path in kept)
        while len(kept) > 1 and (now - began_of(kept[1]) > self._seconds or total > self._most):
            total -= size_of(kept[0])
            kept[0].unlink(missing_ok=True)
            kept = kept[1:]


def segments(folder: Path) -> list[Path]:
    """The segments of a ring, oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def began_of(segment: Path) -> float:
    """UTC seconds at which a segment begins, from its name."""
    return int(segment.stem) / 1000 if segment.stem.isdigit() else 0.0


def size_of(path: Path) -> int:
    """Bytes of a file; 0 where it has gone."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def join(folder: Path, target: Path) -> Path:
    """The segments of a ring as one recording. Raises StoreError where there are none or the file is there already."""
    parts = segments(folder)
    if not parts:
        raise StoreError("nothing has been recorded yet", hint="a ring begins when the console opens")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with target.open("xb") as out:
            for part in parts:
                try:
                    with part.open("rb") as stream:
                        shutil.copyfileobj(stream, out)
                except FileNotFoundError:
                    continue  # its ring has moved on
    except FileExistsError as error:
        raise StoreError(f"{target} exists already", hint="give another name with -o FILE") from error
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror}") from error
    return target


def ring_name(owner: str) -> str:
    """Folder name of a process's ring: when, and who (`pid ticks node`)."""
    pid, ticks, node = (*owner.split(" ", 2), "", "")[:3]
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}_{pid}_{ticks}_{node.replace(os.sep, '-')}"


def ring_owner(folder: Path) -> str:
    """The owner that a ring's name says."""
    _, _, rest = folder.name.partition("_")
    return " ".join(rest.split("_", 2))

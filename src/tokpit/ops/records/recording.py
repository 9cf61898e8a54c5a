"""Recording: the ring of the last minutes, recordings asked for, saving and cutting them."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tokpit.config.paths import state_dir
from tokpit.domain.records import LogBatch, Operation, Record, Sample
from tokpit.errors import StoreError, UsageError
from tokpit.store.database import alive, owner
from tokpit.store.live import LiveStore
from tokpit.store.past import state
from tokpit.store.recording.format import SUFFIX, Head, public
from tokpit.store.recording.reader import Clocks, Recording, Summary
from tokpit.store.recording.writer import FileSink, Ring, join, ring_name, ring_owner, segments, size_of

if TYPE_CHECKING:
    from tokpit.ops.session import Session

log = logging.getLogger(__name__)

FLUSH_S = 1.0
MOST_PENDING = 50_000
"""Records held while they wait to be written; of what comes then log lines and figures are left out, and counted."""
_OPERATION_EVERY_S = 1.0
KEPT_RINGS = 3
"""Rings of tokpits that have ended which stay on disk."""


class Sink(Protocol):
    """Where a recorder writes."""

    @property
    def begun(self) -> bool: ...  # noqa: D102
    def due(self, now: float) -> bool: ...  # noqa: D102
    def begin(self, at: float, head: Head, state: list[Record]) -> None: ...  # noqa: D102
    def write(self, records: list[tuple[float, Record]], missed: int) -> None: ...  # noqa: D102
    def close(self, at: float) -> None: ...  # noqa: D102


class Recorder:
    """Listens to the store's stream and writes it in a thread, once a second; never holds the stream up."""

    def __init__(self, store: LiveStore, sink: Sink, head: Callable[[], Head]) -> None:
        self.missed = 0
        """Log records left out so far."""
        self.problem = ""
        """Why nothing is written any more."""
        self._store, self._sink, self._head = store, sink, head
        self._pending: list[tuple[float, Record]] = []
        self._lines = 0
        self._new_missed = 0
        self._told: dict[str, tuple[float, str, int, int]] = {}
        self._turn = asyncio.Lock()
        self._closed = False
        self._end: Callable[[], None] = lambda: None

    def take(self, record: Record) -> None:
        """One record of the stream."""
        now = time.time()
        if isinstance(record, LogBatch):
            if self._lines + len(record.records) > MOST_PENDING:
                self._new_missed += len(record.records)
                return
            self._lines += len(record.records)
        elif isinstance(record, Sample):
            if self._lines >= MOST_PENDING:
                self._new_missed += 1
                return
            self._lines += 1
        elif isinstance(record, Operation) and not self._news(record, now):
            return
        self._pending.append((now, record))

    def start(self) -> None:
        """Listen from now on; `run` writes."""
        self._end = self._store.listen(self.take)

    async def run(self) -> None:
        """Write once a second until cancelled or until nothing can be written any more."""
        while not self.problem:
            # A write that has begun is not given up half-way.
            await asyncio.shield(asyncio.ensure_future(self.flush()))
            await asyncio.sleep(FLUSH_S)

    async def close(self) -> None:
        """Listen no longer, write what is left and end the recording properly; safe to call twice."""
        self._end()
        await self.flush()
        async with self._turn:
            if not self._closed:
                self._closed = True
                try:
                    self._sink.close(time.time())
                except OSError as error:
                    log.warning("the recording was not ended: %s", error)

    async def flush(self) -> None:
        """Write what has come; one after the other, so that nothing overtakes."""
        try:
            async with self._turn:
                if self._closed or self.problem:
                    return
                await asyncio.to_thread(self._write, *self._swap())
        except OSError as error:
            self.problem = f"recording has ended: {error.strerror or error}"
            log.warning(self.problem)

    def _swap(self) -> tuple[list[tuple[float, Record]], int, tuple[float, Head, list[Record]] | None]:
        """What is pending, and a member's begin where one is due: taken together, so that nothing is told twice."""
        now = time.time()
        begin = (now, self._head(), list(state(self._store))) if self._sink.due(now) else None
        pending, missed = self._pending, self._new_missed
        self._pending, self._lines, self._new_missed = [], 0, 0
        self.missed += missed
        return pending, missed, begin

    def _write(
        self,
        pending: list[tuple[float, Record]],
        missed: int,
        begin: tuple[float, Head, list[Record]] | None,
    ) -> None:
        if not self._sink.begun:
            if begin is None:
                return
            # The first member: its state holds what is pending as well, but for figures and logs.
            self._sink.begin(*begin)
            begin = None
        if pending or missed:
            self._sink.write(pending, missed)
        if begin is not None:
            self._sink.begin(*begin)
            self._sink.write([], 0)

    def _news(self, operation: Operation, now: float) -> bool:
        """Whether a snapshot says more than the last one did a moment ago."""
        t, *before = self._told.get(operation.id, (0.0, "", 0, 0))
        shape = [operation.status, len(operation.steps), len(operation.levels)]
        if shape == before and now - t < _OPERATION_EVERY_S:
            return False
        self._told[operation.id] = (now, operation.status, len(operation.steps), len(operation.levels))
        return True


def head_of(session: Session) -> Head:
    """The head of a member begun now."""
    clocks = {}
    for name in session.host_specs:
        known = session.store.hosts.get(name)
        if known is not None and known.link is not None:
            clocks[name] = session.host(name).now()
    return Head(hosts=tuple(public(spec) for spec in session.host_specs.values()), clocks=clocks)


def recordings_dir() -> Path:
    """Where saved recordings go."""
    return state_dir() / "recordings"


def rings_dir() -> Path:
    """Where rings are."""
    return state_dir() / "rings"


def new_ring(folder: Path, *, minutes: float, max_bytes: int) -> Ring:
    """A ring of this process; those of processes that have ended go, but for the newest few."""
    ended = sorted(path for path in folder.glob("*_*") if path.is_dir() and not _lives(path)) if folder.exists() else []
    for path in ended[: max(0, len(ended) - KEPT_RINGS)]:
        for part in segments(path):
            part.unlink(missing_ok=True)
        try:
            path.rmdir()
        except OSError:
            pass  # something else is in it: not ours to remove
    return Ring(folder / ring_name(owner()), minutes=minutes, max_bytes=max_bytes)


def _lives(ring: Path) -> bool:
    pid, ticks, _ = (*ring_owner(ring).split(" ", 2), "", "")[:3]
    return pid.isdigit() and alive(int(pid), ticks)


def rings(folder: Path) -> list[tuple[Path, bool, int]]:
    """Rings on disk, newest last: folder, whether its tokpit still runs, bytes."""
    found = sorted(path for path in folder.glob("*_*") if segments(path)) if folder.exists() else []
    return [(path, _lives(path), sum(size_of(part) for part in segments(path))) for path in found]


def new_path(now: float | None = None) -> Path:
    """A name for a new recording in the user's folder that is not taken."""
    stem = time.strftime("tokpit-%Y%m%d-%H%M%S", time.gmtime(now))
    path, count = recordings_dir() / f"{stem}{SUFFIX}", 1
    while path.exists():
        count += 1
        path = recordings_dir() / f"{stem}-{count}{SUFFIX}"
    return path


def save_ring(ring: Path, target: Path | None = None) -> Path:
    """A ring as one recording. Raises StoreError."""
    return join(ring, target or new_path())


def open_sink(path: Path) -> FileSink:
    """A file to record into. Raises StoreError."""
    try:
        return FileSink(path)
    except FileExistsError as error:
        raise StoreError(f"{path} exists already", hint="give another name with -o FILE") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def cut(source: Path, target: Path, *, start: str = "", end: str = "") -> Summary:
    """The part of a recording between two times, as a recording of its own. Raises StoreError, UsageError.

    Times: see `moment`. The part begins with all that was known at its begin but figures over time and logs.
    """
    recording = Recording(source)
    whole = recording.summary()
    first = moment(start, whole) if start else whole.start
    last = moment(end, whole) if end else whole.end
    if last <= first:
        raise UsageError("the end of the part is not after its begin", hint=f"it spans {span(whole)}")
    if last < whole.start or first > whole.end:
        raise UsageError("the recording has nothing of that time", hint=f"it spans {span(whole)}")
    clocks, store = Clocks(whole), LiveStore(points=1, lines=1)
    sink = open_sink(target)
    try:
        for at, record in recording.records():
            if at > last:
                break
            if at >= first:
                if sink.due(at):
                    sink.begin(at, Head(hosts=whole.hosts, clocks=clocks.all(at)), state(store))
                sink.write([(at, record)], 0)
            store.apply(record)
    except BaseException:
        sink.close(last)
        target.unlink(missing_ok=True)
        raise
    if not sink.begun:
        sink.begin(first, Head(hosts=whole.hosts, clocks=clocks.all(first)), state(store))
    sink.close(last)
    return Recording(target).summary()


_AGO = re.compile(r"([+-])(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


def moment(text: str, whole: Summary) -> float:
    """A time as people write it, within a recording: `+5m` from its begin, `-90s` before its end, `12:31[:05]` UTC,
    `2026-11-30T12:31:05`. Raises UsageError."""  # fmt: skip
    word = text.strip()
    if (found := _AGO.fullmatch(word)) is not None and any(found.groups()[1:]):
        seconds = sum(float(n or 0) * f for n, f in zip(found.groups()[1:], (3600, 60, 1), strict=True))
        return whole.start + seconds if found[1] == "+" else whole.end - seconds
    for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%H:%M:%S", "%H:%M"):
        try:
            parsed = time.strptime(word.removesuffix("Z"), form)
        except ValueError:
            continue
        if form.startswith("%Y"):
            return _utc(parsed)
        day = time.gmtime(whole.start)
        at = _utc(time.struct_time((*day[:3], *parsed[3:6], 0, 0, 0)))
        return at + 86_400 if at < whole.start - 60 and whole.end - at > 86_400 else at
    raise UsageError(
        f"{text!r} is no time", hint="write +5m (after its begin), -90s (before its end), 12:31:05 or a whole date"
    )


def _utc(parsed: time.struct_time) -> float:
    import calendar

    return float(calendar.timegm(parsed))


def span(whole: Summary) -> str:
    """`2026-11-30 07:12:44Z to 07:42:44Z`."""
    first = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(whole.start))
    return f"{first} to {time.strftime('%H:%M:%SZ', time.gmtime(whole.end))}"

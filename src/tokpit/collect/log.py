"""Watch a server's log: bytes to lines, lines to records, records to batches, samples, facts and marks."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence

import msgspec

from tokpit.collect.backlog import Age, Stamps, read_age, read_head
from tokpit.collect.host import Sink
from tokpit.collect.link import LinkGate
from tokpit.domain.records import Facts, LogBatch, LogRecord, Mark, Sample, Value
from tokpit.domain.server import ServerInfo
from tokpit.domain.text import LineSplitter, decode_line
from tokpit.engines.base import Grammar
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import HostError
from tokpit.transport.base import Host

BACKLOG_BYTES = 256 << 10
BATCH_S = 0.1
IDLE_S = 0.7
"""Silence after which a record of several lines (a traceback) is taken to be complete."""
UNFINISHED_S = 3.0
"""Further silence after which a last line without an ending is taken as it is."""
_BATCH_RECORDS = 500
SLICE_S = 0.002
REST_S = 0.001
"""After a slice: a key takes about ten turns of the event loop until it is painted, which then find it free."""
SLICE_LINES = 256
"""At most so many lines a slice, however quick the clock says they were."""
BEHIND_CHUNKS = 64
"""So many chunks that were there already when they were wanted: reading is behind, and rests no more but to let others
have a few turns."""
_TURNS = 4
_MARK_EVERY_S = 1.0
_NO_FACTS = frozenset({"ts", "ts_ms", "pid", "process", "level", "source", "engine", "message", "what"})


class LogCounters(msgspec.Struct):
    """What has been read so far. `lag_s`: from a chunk's arrival to the hand-over of its last record, the worst yet."""

    lines: int = 0
    bytes: int = 0
    records: int = 0
    errors: int = 0
    """Lines at which the grammar failed; they come as `text` records."""
    turns: int = 0
    """How often the log was truncated or rotated."""
    lag_s: float = 0.0
    offset: int = 0


async def watch_log(
    host: Host,
    server: ServerInfo,
    sink: Sink,
    *,
    path: str | None = None,
    backlog_bytes: int = BACKLOG_BYTES,
    offset: int | None = None,
    counters: LogCounters | None = None,
) -> None:
    """Feed LogBatch, Sample (source `log`), Facts and Mark of a log until cancelled; returns at once without a log.

    First come the last `backlog_bytes` of the file, with times from the log's own stamps counted back from its last
    write; facts of the start are read from the file's head as well. With `offset` it is read from that byte on
    instead. A lost link is waited out.
    """
    log_path = path or server.log_path
    if log_path is None:
        sink(Facts(server.id, host.now(), {"log_note": "the server writes no log file that can be read"}))
        return
    reader = LogReader(host, server, sink, counters or LogCounters())
    gate = LinkGate(host)
    resume = -backlog_bytes if offset is None else offset
    head_bytes = backlog_bytes if offset is None else None
    begun = False
    try:
        while True:
            # Beside the stream's own start: on a far host each question takes three round trips.
            beginning = None if begun else asyncio.create_task(_beginning(host, log_path, head_bytes))
            try:
                async for position, data in host.follow(log_path, offset=resume):
                    if beginning is not None:
                        age, head = await beginning
                        if head:
                            reader.facts_of(head)
                        reader.begin(age.size if age is not None else 0, age.since_write_s if age is not None else 0.0)
                        begun, beginning = True, None
                    await reader.take(position, data)
                    resume = position + len(data)
            except HostError:
                await gate.wait()
            finally:
                if beginning is not None:
                    beginning.cancel()
                    await asyncio.gather(beginning, return_exceptions=True)
    finally:
        reader.close()


async def _beginning(host: Host, path: str, backlog_bytes: int | None) -> tuple[Age | None, bytes]:
    """What a log was before anybody watched: its age, and its head where a backlog of that size leaves it out."""
    age = await read_age(host, path)
    if age is None or backlog_bytes is None or age.size <= backlog_bytes:
        return age, b""
    return age, await read_head(host, path, backlog_bytes)


class LogReader:
    """The state of one log. `take` bytes, `close` at the end; records are handed over by timers on the event loop."""

    def __init__(self, host: Host, server: ServerInfo, sink: Sink, counters: LogCounters) -> None:
        self._host, self._server, self._sink, self.counters = host, server, sink, counters
        self._engine = engine_of(server.engine)
        self._grammar: Grammar = self._engine.grammar()
        self._splitter: LineSplitter | None = None
        self._next = 0
        self._cut = False
        self._pending: list[LogRecord] = []
        self._arrived = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._backlog_end = 0
        self._since_write_s = 0.0
        self._facts: dict[str, Value] = {}
        self._marked: dict[str, float] = {}
        self._behind, self._done = 0, 0.0
        """Chunks in a row that had waited, and when the last one was read."""

    def begin(self, size: int, since_write_s: float) -> None:
        """What is known of the file: bytes before `size` were written earlier, the last `since_write_s` ago."""
        self._backlog_end, self._since_write_s = size, since_write_s

    def facts_of(self, text: bytes) -> None:
        """Facts from the head of a log, read with a grammar of its own."""
        grammar = self._engine.grammar()
        splitter = LineSplitter()
        records: list[LogRecord] = []
        for line in splitter.feed(text):
            records += grammar.feed(decode_line(line))
        self._learn([*records, *grammar.flush()], self._host.now())

    async def take(self, position: int, data: bytes) -> None:
        """Bytes of the file from `position` on."""
        self._arrived = time.monotonic()
        if self._splitter is None:
            self._splitter = LineSplitter(offset=position)
            self._cut = position > 0
        elif position != self._next:
            self._turn(position)
        self._next = position + len(data)
        self.counters.bytes += len(data)
        since, count = time.monotonic(), 0
        self._behind = self._behind + 1 if since - self._done < REST_S else 0
        for line in self._splitter.feed(data):
            if self._cut:
                self._cut = False  # the backlog begins in the middle of a line
                continue
            self._line(line)
            count += 1
            if count >= SLICE_LINES or time.monotonic() - since > SLICE_S:
                await self._give_way()
                since, count = time.monotonic(), 0
        self._schedule()
        self._done = time.monotonic()

    async def _give_way(self) -> None:
        """Others have their turn after a slice."""
        if self._behind < BEHIND_CHUNKS:
            await asyncio.sleep(REST_S)
            return
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    def close(self) -> None:
        """Hand over what is left."""
        self._finish()
        for timer in (self._timer, self._idle):
            if timer is not None:
                timer.cancel()

    def _turn(self, position: int) -> None:
        """The file was truncated or replaced: what was held back belongs to the old one."""
        self._finish()
        self.counters.turns += 1
        self._backlog_end, self._cut = 0, False
        self._grammar = self._engine.grammar()
        self._splitter = LineSplitter(offset=position)

    def _line(self, raw: bytes) -> None:
        self.counters.lines += 1
        text = decode_line(raw)
        try:
            self._pending += self._grammar.feed(text)
        except Exception:  # a fault in a grammar must not end the reading
            self.counters.errors += 1
            self._pending.append(LogRecord(self.counters.lines, "text", text, lines=(text,)))
        if len(self._pending) >= _BATCH_RECORDS and not self._in_backlog:
            self._hand_over()

    @property
    def _in_backlog(self) -> bool:
        return self._next < self._backlog_end

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        if self._idle is not None:
            self._idle.cancel()
        self._idle = loop.call_later(IDLE_S, self._settle)
        if self._pending and self._timer is None and not self._in_backlog:
            self._timer = loop.call_later(BATCH_S, self._hand_over)

    def _settle(self) -> None:
        """Silence: what the grammar holds back is complete, and soon an unfinished line is as well."""
        self._pending += self._grammar.flush()
        self._hand_over()
        if self._splitter is not None and self._splitter.offset < self._next:
            self._idle = asyncio.get_running_loop().call_later(UNFINISHED_S, self._finish)

    def _finish(self) -> None:
        """The last line has no ending and will not get one: its writer is dead or waits."""
        if self._splitter is not None and (rest := self._splitter.flush()):
            self._line(rest)
        self._pending += self._grammar.flush()
        self._hand_over()

    def _hand_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        records, self._pending = self._pending, []
        if not records or self._splitter is None:
            return
        now = self._host.now()
        self.counters.records += len(records)
        self.counters.offset = self._splitter.offset
        self.counters.lag_s = max(self.counters.lag_s, time.monotonic() - self._arrived)
        old = self._backlog_end > 0
        if old:
            last_write = now - self._since_write_s
            times: Sequence[float | None] = Stamps().times(records, last_write)
            # What follows was written while somebody watched: its time is the time of its arrival.
            self._backlog_end = 0
        else:
            times = [now] * len(records)
        self._sink(LogBatch(self._server.id, now, tuple(records), self._splitter.offset, tuple(times) if old else ()))
        self._learn(records, now)
        self._samples(records, times)
        self._marks(records, times)

    def _samples(self, records: Sequence[LogRecord], times: Sequence[float | None]) -> None:
        """One sample a moment: of lines that came together the last one that tells a figure counts."""
        start = 0
        for t, moment in itertools.groupby(times):
            end = start + len(tuple(moment))
            values = self._grammar.samples(records[start:end])
            if values and t is not None:
                self._sink(Sample(self._server.id, t, "log", values))
            start = end

    def _learn(self, records: Sequence[LogRecord], now: float) -> None:
        """Facts are the figures of start milestones: caps, slots, sizes of weights and pools."""
        found: dict[str, Value] = {}
        for record in records:
            if record.kind.startswith("milestone."):
                found.update({k: v for k, v in record.fields.items() if k not in _NO_FACTS and v is not None})
        new = {key: value for key, value in found.items() if self._facts.get(key) != value}
        if new:
            self._facts.update(new)
            self._sink(Facts(self._server.id, now, new))

    def _marks(self, records: Sequence[LogRecord], times: Sequence[float | None]) -> None:
        for record, t in zip(records, times, strict=True):
            kind = mark_kind(record)
            if kind is None or t is None or abs(t - self._marked.get(kind, -1e9)) < _MARK_EVERY_S:
                continue
            self._marked[kind] = t
            self._sink(Mark(self._server.id, t, kind, record.text[:300]))


def mark_kind(record: LogRecord) -> str | None:
    """What a record is on the time axis: `retraction`, `ready`, its failure kind, or nothing."""
    if "retract" in record.kind:
        return "retraction"
    if record.kind == "milestone.ready":
        return "ready"
    return record.kind if record.kind.startswith("failure.") else None

"""The live store: the only mutable shared state, a version number per topic, readers pull.

`apply` is called from one thread (the event loop). A topic is `host:NAME`, `server:ID`, `log:ID`, `ops` or `stalls`; a
reader keeps the version it last drew and redraws when it differs. The store never knows who reads.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

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
    Orphan,
    PhaseRecord,
    Record,
    Sample,
    ServerSeen,
    ServersRecord,
    Stall,
    Value,
)
from tokpit.domain.run import Run
from tokpit.domain.server import ServerInfo
from tokpit.domain.tuning import Tuning

GONE_KEPT = 8
"""States of servers that are neither running nor listed, of each host: somebody may still be looking at the newest."""
OPERATIONS_KEPT = 200


class Series:
    """One metric over time in a bounded ring: parallel arrays of UTC seconds and values, oldest first."""

    def __init__(self, capacity: int) -> None:
        self.times: deque[float] = deque(maxlen=capacity)
        self.values: deque[float] = deque(maxlen=capacity)
        self.source = ""

    def append(self, t: float, value: float, source: str) -> None:
        """Add one point; one that is older than the newest (a log read after the fact) is put in its place."""
        self.source = source
        if self.times and t < self.times[-1]:
            at = bisect_right(self.times, t)
            if len(self.times) == self.times.maxlen:
                if at == 0:
                    return
                self.times.popleft()
                self.values.popleft()
                at -= 1
            self.times.insert(at, t)
            self.values.insert(at, value)
            return
        self.times.append(t)
        self.values.append(value)

    @property
    def last(self) -> float | None:
        """The newest value, None if there is none."""
        return self.values[-1] if self.values else None

    @property
    def last_t(self) -> float | None:
        """UTC seconds of the newest value."""
        return self.times[-1] if self.times else None

    def since(self, t: float) -> tuple[list[float], list[float]]:
        """The points not older than `t`, as (times, values)."""
        times, values = list(self.times), list(self.values)
        start = 0
        for index in range(len(times) - 1, -1, -1):
            if times[index] < t:
                start = index + 1
                break
        return times[start:], values[start:]


class LogRing:
    """The newest records of one log, with the count of all seen and what has left the ring."""

    def __init__(self, capacity: int) -> None:
        self.records: deque[LogRecord] = deque(maxlen=capacity)
        self.seen = 0
        self.offset = 0
        self._times: deque[tuple[float, int]] = deque(maxlen=capacity)
        self._places: deque[tuple[int, int]] = deque(maxlen=capacity)

    @property
    def first(self) -> int:
        """Index (0-based, over all ever seen) of the oldest record still held."""
        return self.seen - len(self.records)

    def extend(self, batch: LogBatch) -> None:
        """Append records; `batch.offset` is the byte position in the log after them."""
        if not batch.records:
            return
        self.records.extend(batch.records)
        self.seen += len(batch.records)
        for record, t in zip(batch.records, batch.times, strict=False):
            self._stamp(t, record.line)
        if not batch.times:
            # A moment within a batch is after all of it: its records arrived together.
            self._stamp(batch.t, batch.records[-1].line)
        self.offset = batch.offset
        if self._places and batch.offset < self._places[-1][1]:
            self._places.clear()  # truncated or rotated: earlier places are in another file
        last = batch.records[-1]
        self._places.append((last.line + max(0, len(last.lines) - 1), batch.offset))

    def place_before(self, line: int) -> tuple[int, int] | None:
        """A byte of the log, and how many lines before it are not older than the line of that number."""
        at = bisect_left(self._places, line - 1, key=lambda pair: pair[0])
        if at >= len(self._places):
            return None
        known, offset = self._places[at]
        return offset, known - line + 1

    def _stamp(self, t: float | None, line: int) -> None:
        if t is None:
            return
        if self._times and t <= self._times[-1][0]:
            self._times[-1] = (self._times[-1][0], line)
        else:
            self._times.append((t, line))

    def line_at(self, t: float) -> int | None:
        """Number of the last line written by `t`; None where all that is known came later."""
        at = bisect_right(self._times, t, key=lambda pair: pair[0])
        return self._times[at - 1][1] if at else None

    def time_of(self, line: int) -> float | None:
        """When the line of that number had come; None where that is not known any more."""
        at = bisect_left(self._times, line, key=lambda pair: pair[1])
        return self._times[at][0] if at < len(self._times) else None


T = TypeVar("T", GpuRecord, HostRecord)


class Past(Generic[T]):
    """Earlier records, bounded: when full, every second one of the older half goes, so that it reaches far back."""

    def __init__(self, most: int = 240) -> None:
        self.records: list[T] = []
        self._most = most

    def add(self, record: T) -> None:
        """Keep one more."""
        if self.records and record.t <= self.records[-1].t:
            return
        self.records.append(record)
        if len(self.records) > self._most:
            half = self._most // 2
            self.records[:half] = self.records[:half:2]

    def at(self, t: float) -> T | None:
        """The newest that is not newer than `t`."""
        found = bisect_right(self.records, t, key=lambda record: record.t)
        return self.records[found - 1] if found else None


class ServerState:
    """All that is known live of one server."""

    def __init__(self, info: ServerInfo, *, points: int, lines: int) -> None:
        self.info = info
        self.alive = True
        self.series: dict[str, Series] = {}
        self.log = LogRing(lines)
        self.marks: deque[Mark] = deque(maxlen=500)
        self.phase: PhaseRecord | None = None
        self.facts: dict[str, Value] = {}
        self.gpus: GpuRecord | None = None
        """Those of its node, where it is a batch job."""
        self.past_gpus: Past[GpuRecord] = Past()
        self._points = points

    def get(self, tag: str) -> Series:
        """The series of a metric, empty where nothing has come yet."""
        if tag not in self.series:
            self.series[tag] = Series(self._points)
        return self.series[tag]


class HostState:
    """All that is known live of one host."""

    def __init__(self, name: str, points: int) -> None:
        self.name = name
        self.link: LinkRecord | None = None
        self.gpus: GpuRecord | None = None
        self.memory: HostRecord | None = None
        self.server_ids: tuple[str, ...] = ()
        self.orphans: tuple[Orphan, ...] = ()
        """Workers whose server is gone."""
        self.gpu_util: dict[int, Series] = {}
        self.past_gpus: Past[GpuRecord] = Past()
        self.past_memory: Past[HostRecord] = Past()
        self._points = points

    def add_gpus(self, record: GpuRecord) -> None:
        """Keep the newest record and the utilisation of each GPU over time."""
        self.gpus = record
        self.past_gpus.add(record)
        for gpu in record.gpus:
            if gpu.util is None:
                continue
            series = self.gpu_util.setdefault(gpu.index, Series(self._points))
            # A late poll repeats the last figures with their own time.
            if series.last_t is None or record.t > series.last_t:
                series.append(record.t, gpu.util, "nvidia-smi")


class LiveStore:
    """See the module docstring. `points` bounds each series, `lines` each log."""

    def __init__(self, *, points: int = 3600, lines: int = 20_000) -> None:
        self.hosts: dict[str, HostState] = {}
        self.servers: dict[str, ServerState] = {}
        self.operations: dict[str, Operation] = {}
        self.tunings: dict[str, Tuning] = {}
        """Experiments by id; topic `tune`."""
        self.actions: deque[ActionRecord] = deque(maxlen=200)
        self.runs: dict[str, Run] = {}
        """Finished runs of this session, by id."""
        self._listeners: tuple[Callable[[Record], None], ...] = ()
        self.stalls: deque[Stall] = deque(maxlen=50)
        self._points, self._lines = points, lines
        self._versions: dict[str, int] = {}

    def version(self, topic: str) -> int:
        """How often the topic has changed."""
        return self._versions.get(topic, 0)

    def host(self, name: str) -> HostState:
        """The state of a host, made on first use."""
        if name not in self.hosts:
            self.hosts[name] = HostState(name, self._points)
            self._bump("hosts")
        return self.hosts[name]

    def servers_of(self, host: str) -> Iterator[ServerState]:
        """The servers now known on a host, in the order of the last process table."""
        for server_id in self.host(host).server_ids:
            yield self.servers[server_id]

    def gpus_of(self, info: ServerInfo) -> GpuRecord | None:
        """The GPUs of the machine that a server runs on: of its node where it is a batch job, else of its host."""
        if info.job is None:
            return self.host(info.host).gpus
        state = self.servers.get(info.id)
        return state.gpus if state is not None else None

    def tune(self, snapshot: Tuning) -> None:
        """Take in how an experiment stands."""
        self.tunings[snapshot.id] = snapshot
        self._bump("tune")

    def apply(self, record: Record) -> None:
        """Take one record in. Records for servers that are not known are dropped."""
        match record:
            case Sample():
                if (state := self.servers.get(record.server)) is not None:
                    for tag, value in record.values.items():
                        state.get(tag).append(record.t, value, record.source)
                    self._bump(f"server:{record.server}")
            case LogBatch():
                if (state := self.servers.get(record.server)) is not None:
                    state.log.extend(record)
                    self._bump(f"log:{record.server}")
            case GpuRecord() if record.server:
                if (state := self.servers.get(record.server)) is not None:
                    state.gpus = record
                    state.past_gpus.add(record)
                    self._bump(f"server:{record.server}")
            case GpuRecord():
                self.host(record.host).add_gpus(record)
                self._bump(f"host:{record.host}")
            case HostRecord():
                host = self.host(record.host)
                host.memory = record
                host.past_memory.add(record)
                self._bump(f"host:{record.host}")
            case LinkRecord():
                self.host(record.host).link = record
                self._bump(f"host:{record.host}", "hosts")
            case ServersRecord():
                self._servers(record)
            case ServerSeen():
                self._add(record.server)
            case Mark():
                if (state := self.servers.get(record.server)) is not None:
                    state.marks.append(record)
                    self._bump(f"server:{record.server}")
            case PhaseRecord():
                if (state := self.servers.get(record.server)) is not None:
                    state.phase = record
                    self._bump(f"server:{record.server}")
            case Facts():
                if (state := self.servers.get(record.server)) is not None:
                    state.facts.update(record.values)
                    self._bump(f"server:{record.server}")
            case Operation():
                self.operations[record.id] = record
                if len(self.operations) > OPERATIONS_KEPT:
                    ended = (i for i, o in self.operations.items() if o.status != "running")
                    self.operations.pop(next(ended, record.id))
                self._bump("ops")
            case ActionRecord():
                self.actions.append(record)
                self._bump("ops")
            case Run():
                self.runs[record.id] = record
                self._bump("ops")
            case Stall():
                self.stalls.append(record)
                self._bump("stalls")
        for hear in self._listeners:
            hear(record)

    def listen(self, hear: Callable[[Record], None]) -> Callable[[], None]:
        """Call `hear` with every record once it is applied; what is returned ends that. This is the one tap."""
        self._listeners = (*self._listeners, hear)

        def end() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not hear)

        return end

    def _add(self, info: ServerInfo) -> ServerState:
        """The state of a server, made on first sight."""
        state = self.servers.get(info.id)
        if state is None:
            state = self.servers[info.id] = ServerState(info, points=self._points, lines=self._lines)
        else:
            state.info = info
        host = self.host(info.host)
        if info.id not in host.server_ids:
            host.server_ids = (*host.server_ids, info.id)
        self._bump(f"host:{info.host}", f"server:{info.id}")
        return state

    def _servers(self, record: ServersRecord) -> None:
        host = self.host(record.host)
        host.orphans = record.orphans
        found = {info.id: info for info in record.servers}
        for info in found.values():
            self._add(info)
        for server_id in host.server_ids:
            self.servers[server_id].alive = server_id in found
        # A server that has gone stays listed while it still has something to show: its log and its last figures.
        kept = [i for i in host.server_ids if i not in found and self.servers[i].log.seen]
        host.server_ids = (*found, *kept[-3:])
        listed = set(host.server_ids)
        gone = [i for i, s in self.servers.items() if s.info.host == record.host and i not in listed]
        for server_id in gone[:-GONE_KEPT]:
            del self.servers[server_id]
            for topic in (f"server:{server_id}", f"log:{server_id}"):
                self._versions.pop(topic, None)
        self._bump(f"host:{record.host}", "hosts")

    def _bump(self, *topics: str) -> None:
        for topic in topics:
            self._versions[topic] = self._versions.get(topic, 0) + 1

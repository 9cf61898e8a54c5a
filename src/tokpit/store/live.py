"""The live store: the only mutable shared state, a version number per topic, readers pull.

`apply` is called from one thread (the event loop). A topic is `host:NAME`, `server:ID`, `log:ID`, `ops` or `stalls`; a
reader keeps the version it last drew and redraws when it differs. The store never knows who reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator

from tokpit.domain.records import (
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
    ServersRecord,
    Stall,
    Value,
)
from tokpit.domain.server import ServerInfo

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

    @property
    def first(self) -> int:
        """Index (0-based, over all ever seen) of the oldest record still held."""
        return self.seen - len(self.records)

    def extend(self, records: Iterable[LogRecord], offset: int) -> None:
        """Append records; `offset` is the byte position in the log after them."""
        for record in records:
            self.records.append(record)
            self.seen += 1
        self.offset = offset


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
        self._points = points

    def add_gpus(self, record: GpuRecord) -> None:
        """Keep the newest record and the utilisation of each GPU over time."""
        self.gpus = record
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

    def add_server(self, info: ServerInfo) -> ServerState:
        """Make the state of a server known before a process table shows it (just launched)."""
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
                    state.log.extend(record.records, record.offset)
                    self._bump(f"log:{record.server}")
            case GpuRecord():
                self.host(record.host).add_gpus(record)
                self._bump(f"host:{record.host}")
            case HostRecord():
                self.host(record.host).memory = record
                self._bump(f"host:{record.host}")
            case LinkRecord():
                self.host(record.host).link = record
                self._bump(f"host:{record.host}", "hosts")
            case ServersRecord():
                self._servers(record)
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
            case Stall():
                self.stalls.append(record)
                self._bump("stalls")

    def _servers(self, record: ServersRecord) -> None:
        host = self.host(record.host)
        host.orphans = record.orphans
        found = {info.id: info for info in record.servers}
        for info in found.values():
            self.add_server(info)
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

"""What reaches the live store: frozen records, each with its host or server and the local time it arrived.

`t` is local UTC seconds (`time.time()`) scaled by the host's clock factor where the host is simulated; text time
stamps printed by a server stay in the fields of its log records, because servers seldom say their zone.
"""

from __future__ import annotations

import enum

import msgspec

from tokpit.domain.run import Level, Run
from tokpit.domain.server import ServerInfo

Scalar = str | int | float | bool | None
Value = Scalar | tuple[float, ...]


class LogRecord(msgspec.Struct, frozen=True, gc=False):
    """One record of a server's log: a line, or lines that belong together (a traceback, an argument echo).

    `kind` is the canonical line kind: `decode_batch`, `stats`, `milestone.ready`, `failure.oom`, `progress.load`, or
    `text` where the grammar does not know the line. `fields` holds canonical names (unit in the name or in
    `domain.metrics`); a name is present only if the line carries it, and None means "printed but not a number".
    `extras` keeps key/value pairs the grammar does not know. `lines` joined by newlines is the text that came in.
    """

    line: int
    """Number of the first line, from 1."""
    kind: str
    text: str
    """The decisive line: the message for a record of one line, the last exception line for a traceback."""
    fields: dict[str, Value] = {}
    extras: dict[str, str] = {}
    lines: tuple[str, ...] = ()
    level: str = ""
    """`error`, `warning`, `info`, `debug` or empty."""


class Histogram(msgspec.Struct, frozen=True):
    """Cumulative counts of observations <= each bound (the last is +inf), with their sum; seconds or tokens."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float = 0.0

    def minus(self, earlier: Histogram) -> Histogram:
        """The observations since `earlier`; `self` if the server's counters were reset in between."""
        if self.bounds != earlier.bounds or any(b > a for a, b in zip(self.counts, earlier.counts, strict=True)):
            return self
        counts = tuple(a - b for a, b in zip(self.counts, earlier.counts, strict=True))
        return Histogram(self.bounds, counts, self.total - earlier.total)

    def quantile(self, q: float) -> float | None:
        """The q-quantile (0..1) by linear interpolation within its bucket, as Prometheus does; None if empty."""
        if not self.counts or self.counts[-1] <= 0:
            return None
        rank = q * self.counts[-1]
        lower, below = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count >= rank and count > below:
                if bound == float("inf"):
                    return lower
                return lower + (bound - lower) * (rank - below) / (count - below)
            lower, below = (0.0 if bound == float("inf") else bound), count
        return lower


class MetricsPage(msgspec.Struct, frozen=True):
    """One scrape of a server's metrics, in canonical tags: gauges and counters as values, histograms as they are."""

    values: dict[str, float] = {}
    histograms: dict[str, Histogram] = {}
    labels: dict[str, str] = {}
    """Constant facts carried as labels: model_name, version."""


class LinkState(enum.Enum):
    """State of the connection to a host."""

    NEW = "new"
    CONNECTING = "connecting"
    UP = "up"
    LOST = "lost"
    FAILED = "failed"
    CLOSED = "closed"


class LinkRecord(msgspec.Struct, frozen=True):
    """The connection changed state; `reason` is a sentence, `retry_in_s` the wait before the next attempt."""

    host: str
    t: float
    state: LinkState
    reason: str = ""
    retry_in_s: float | None = None
    rtt_s: float | None = None


class Problem(msgspec.Struct, frozen=True):
    """Something that could not be read: `code` in capitals, `text` a sentence, `index` the device concerned."""

    code: str
    text: str
    index: int | None = None
    info: bool = False
    """Worth knowing, but nothing is broken: never shown as an alarm."""


class GpuSample(msgspec.Struct, frozen=True):
    """One GPU at one moment; None where the driver did not say (never 0 for unknown)."""

    index: int
    uuid: str
    name: str
    util: float | None = None
    """Fraction of the last sample period with a kernel running."""
    mem_used_mib: float | None = None
    mem_total_mib: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temp_c: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    """Active slowdown reasons: `sw-power-cap`, `hw-slowdown`, `sw-thermal`, `hw-thermal`, `power-brake`."""
    unified: bool = False
    """Memory is the host's own (no separate framebuffer)."""
    mig: bool = False


class GpuProcess(msgspec.Struct, frozen=True):
    """GPU memory that a process holds; None where the driver does not say (WSL, MIG)."""

    uuid: str
    pid: int
    name: str = ""
    used_mib: float | None = None


class GpuRecord(msgspec.Struct, frozen=True):
    """All GPUs of a host at one moment, with what could not be read; `t` is when the figures were read."""

    host: str
    t: float
    gpus: tuple[GpuSample, ...] = ()
    problems: tuple[Problem, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    server: str = ""
    """Id of the server in a batch job whose node it is about; empty: the host itself."""
    node: str = ""
    """That node's name."""


class HostRecord(msgspec.Struct, frozen=True):
    """Memory and processor of a host at one moment; bytes, fractions."""

    host: str
    t: float
    mem_total_bytes: int | None = None
    mem_available_bytes: int | None = None
    shm_bytes: int | None = None
    swap_used_bytes: int | None = None
    load1: float | None = None
    cores: int | None = None
    cpu_util: float | None = None


class Sample(msgspec.Struct, frozen=True, gc=False):
    """Metric values of one server at one moment; `source` is `log`, `metrics`, `loads` or `client`."""

    server: str
    t: float
    source: str
    values: dict[str, float]


class LogBatch(msgspec.Struct, frozen=True, gc=False):
    """Log records that arrived together; `offset` is the byte position in the log after them."""

    server: str
    t: float
    records: tuple[LogRecord, ...]
    offset: int = 0
    times: tuple[float | None, ...] = ()
    """When each record was written, where that is not `t` (a log read after the fact); None: not known."""


class Mark(msgspec.Struct, frozen=True):
    """Something that happened, drawn on every chart's time axis: launch, ready, stop, sweep level, retraction."""

    server: str
    t: float
    kind: str
    text: str


class PhaseRecord(msgspec.Struct, frozen=True):
    """A server's life: `starting`, `loading`, `capturing`, `ready`, `failed`, `stopping`, `gone` or `unknown`."""

    server: str
    t: float
    phase: str
    detail: str = ""
    elapsed_s: float | None = None


class Step(msgspec.Struct, frozen=True):
    """One step of an operation, e.g. a start milestone; `elapsed_s` since the start, on the host's clock."""

    kind: str
    label: str
    elapsed_s: float
    detail: str = ""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of what tokpit is doing (launch, sweep ...); replaces the earlier snapshot of its id."""

    id: str
    kind: str
    """`launch`, `stop`, `relaunch`, `sweep`, `check`."""
    target: str
    """Server id, host name or URL."""
    title: str
    started_t: float
    t: float
    status: str = "running"
    """`running`, `done`, `failed`, `stopped`."""
    steps: tuple[Step, ...] = ()
    levels: tuple[Level, ...] = ()
    live: dict[str, float] = {}
    """Figures of the level under way: concurrency, done, total, ok, err, running, output_tps, elapsed_s, eta_s."""
    errors: dict[str, str] = {}
    """Failed requests of the level under way: class and what the first of it said."""
    error: str = ""
    hint: str = ""
    result: dict[str, str] = {}
    commands: tuple[str, ...] = ()
    """The exact remote command lines, secrets masked."""


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process whose server is gone; it may still hold GPU memory. Ids as in `ServerInfo`."""

    engine: str
    role: str
    pid: int
    start_ticks: int
    pgid: int
    sid: int
    title: str
    user: str = ""
    rss_bytes: int | None = None
    started_at: float | None = None
    container: str | None = None


class ServersRecord(msgspec.Struct, frozen=True):
    """All servers found on a host at one moment; replaces the earlier list."""

    host: str
    t: float
    servers: tuple[ServerInfo, ...]
    orphans: tuple[Orphan, ...] = ()


class ServerSeen(msgspec.Struct, frozen=True):
    """One server known before a process table shows it (just launched); adds to the list of its host."""

    t: float
    server: ServerInfo


class ActionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What tokpit did (or was refused) that is audited: the exact lines, secrets masked, and how it ended."""

    t: float
    """UTC seconds of this machine."""
    host: str
    command: str
    """Command id, e.g. `server.stop`."""
    title: str
    lines: tuple[str, ...] = ()
    outcome: str = "begun"
    """`begun`, `done`, `failed`, `cancelled`."""
    detail: str = ""


class Facts(msgspec.Struct, frozen=True):
    """Constant facts learned about a server: version, running cap, slots, weights; merged into the earlier ones."""

    server: str
    t: float
    values: dict[str, Value]


class Stall(msgspec.Struct, frozen=True):
    """tokpit itself did not run for `late_s` seconds up to `t` (UTC on this machine): figures and keepalives waited."""

    t: float
    late_s: float


Record = (
    LinkRecord
    | ServersRecord
    | ServerSeen
    | LogBatch
    | Sample
    | GpuRecord
    | HostRecord
    | Mark
    | PhaseRecord
    | Operation
    | ActionRecord
    | Run
    | Facts
    | Stall
)

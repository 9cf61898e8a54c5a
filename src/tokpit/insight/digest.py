"""A log read once: its statistics lines as rows, what else rules ask for, the facts it states. Bounded memory."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping

import msgspec

from tokpit.domain.records import LogRecord, Value
from tokpit.insight.facts import Facts

KEPT_ROWS = 20_000
"""Statistics lines kept: the newest (a day of a busy server)."""
_KEPT_NOTES = 20
_GAP_ROWS = 50

DECODE, PREFILL, STATS, SPEC = "decode", "prefill", "stats", "spec"
_KINDS = {
    "decode_batch": DECODE,
    "prefill_batch": PREFILL,
    "stats": STATS,
    "spec": SPEC,
    "spec_v0": SPEC,
    "draft_summary": SPEC,
}
_NOTES = (
    (
        "custom_allreduce",
        ("custom allreduce is disabled", "custom all-reduce is disabled", "custom allreduce disabled"),
    ),
    ("jit", ("jit compilation during inference", "jit compil", "autotuning during inference")),
    ("block_size", ("setting attention block size to",)),
    ("backend", ("attention backend not specified", "attention backend:", "using flashinfer backend")),
    ("offload", ("offloaded ",)),
    ("on_cpu", ("falling back to cpu", "auto-configed device: cpu", "no usable gpu found")),
    ("cache_hit", ("cache_fetch] hit", "cached=")),
    ("weights_unused", ("weights not loaded", "not initialized from", "unused weights", "were not used when")),
)
_ANY_NOTE = re.compile("|".join(re.escape(word) for _, words in _NOTES for word in words))


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One statistics line. Fractions 0..1; None: not printed. `t`: seconds on the log's own clock."""

    line: int
    kind: str
    t: float | None = None
    rank: int = 0
    running: float | None = None
    queued: float | None = None
    kv: float | None = None
    tokens: float | None = None
    state_num: float | None = None
    state_usage: float | None = None
    accept_len: float | None = None
    accept_rate: float | None = None
    positions: tuple[float, ...] = ()
    drafted: float | None = None
    accepted: float | None = None
    gen_tps: float | None = None
    gated: bool = False
    """The rate includes time in which nothing ran."""
    prompt_tps: float | None = None
    graph: bool | None = None
    new_tokens: float | None = None
    cached_tokens: float | None = None
    pending: float | None = None
    hit_rate: float | None = None
    preempted: float | None = None
    probe: bool = False

    @property
    def speculative(self) -> bool:
        """Whether the line carries acceptance figures."""
        return self.accept_len is not None


class Silence(msgspec.Struct, frozen=True):
    """A time without any line while requests were running, after which they went on running.

    A server prints nothing when it is idle either, and its last line before that counts requests that ended since;
    so the first statistics line afterwards has to tell that they were still there.
    """

    seconds: float
    after_line: int
    running: float


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """A log read whole."""

    name: str = ""
    engine: str | None = None
    rows: tuple[Row, ...] = ()
    facts: Facts = Facts()
    settings: dict[str, str] = {}
    """Arguments that the server echoed at its last start."""
    notes: dict[str, tuple[tuple[int, str], ...]] = {}
    """Lines worth a rule, by topic: (line number, text)."""
    kinds: dict[str, int] = {}
    """How many records of each kind."""
    retractions: tuple[tuple[int, float | None, float], ...] = ()
    """(line number, seconds, requests put back)."""
    completed: int = 0
    """Requests answered with 200 on paths that generate."""
    health_ok: int = 0
    health_failed: tuple[int, ...] = ()
    """Line numbers of failed health checks."""
    silences: tuple[Silence, ...] = ()
    lines: int = 0
    start_line: int = 0
    """Where the last start in this log begins."""

    def of(self, *kinds: str) -> tuple[Row, ...]:
        """Rows of these kinds, probes left out."""
        return tuple(row for row in self.rows if row.kind in kinds and not row.probe)

    @property
    def busy(self) -> tuple[Row, ...]:
        """Decode and engine statistics with something running."""
        return tuple(row for row in self.of(DECODE, STATS) if row.running)


class Reader:
    """Takes the records of one log in order; `digest` at the end. Holds no more than the newest rows."""

    def __init__(self, name: str = "", engine: str | None = None) -> None:
        self._name, self._engine = name, engine
        self._rows: deque[Row] = deque(maxlen=KEPT_ROWS)
        self._facts: dict[str, object] = {}
        self._host_pools: dict[tuple[str, str], float] = {}
        self._pools: dict[str, float] = {}
        self._notes: dict[str, list[tuple[int, str]]] = {}
        self._kinds: Counter[str] = Counter()
        self._retractions: deque[tuple[int, float | None, float]] = deque(maxlen=KEPT_ROWS)
        self._completed = self._health_ok = self._lines = self._start_line = 0
        self._health_failed: list[int] = []
        self._silences: list[Silence] = []
        self._last_t: float | None = None
        self._last_busy: Row | None = None
        self._quiet: Silence | None = None

    def take(self, record: LogRecord, t: float | None = None, sample: Mapping[str, float] | None = None) -> None:
        """One record; `t` in seconds where its stamp could be read, `sample` what its grammar made of it."""
        self._lines = record.line + max(len(record.lines) - 1, 0)
        self._kinds[record.kind] += 1
        self._silence(record, t)
        kind = _KINDS.get(record.kind)
        if kind is None and record.kind == "slot_line" and "drafted_tokens" in record.fields:
            kind = SPEC
        if kind is not None:
            row = _row(record, kind, t, sample or {})
            self._rows.append(row)
            self._resume(row)
            if row.running is not None and kind != PREFILL:
                self._last_busy = row
        elif record.kind == "failure.retract":
            self._retractions.append((record.line, t, _number(record.fields, "retracted_reqs") or 0.0))
        elif record.kind == "failure.health_fail":
            self._health_failed = [*self._health_failed[-_GAP_ROWS:], record.line]
        elif record.kind == "access":
            self._access(record)
        elif record.kind.startswith("milestone."):
            self._learn(record)
            self._pool(record)
            if record.kind in ("milestone.args", "milestone.limits", "milestone.version"):
                self._start_line = record.line
            self._last_busy = self._quiet = None  # a start: what ran before has ended
        else:
            self._note(record)

    def digest(self) -> Digest:
        """What was read."""
        if self._host_pools:
            self._facts["hicache_total_gb"] = round(sum(self._host_pools.values()), 2)
            self._facts["hicache_pools"] = len({kind for kind, _ in self._host_pools})
            self._facts["hicache_ranks"] = len({rank for _, rank in self._host_pools})
        self._facts.update({field: round(size, 3) for field, size in self._pools.items()})
        return Digest(
            name=self._name,
            engine=self._engine,
            rows=tuple(self._rows),
            facts=Facts(**self._facts),  # type: ignore[arg-type]  # learned by name, numbers only
            notes={topic: tuple(found) for topic, found in self._notes.items()},
            kinds=dict(self._kinds),
            retractions=tuple(self._retractions),
            completed=self._completed,
            health_ok=self._health_ok,
            health_failed=tuple(self._health_failed),
            silences=tuple(self._silences),
            lines=self._lines,
            start_line=self._start_line,
        )

    def _silence(self, record: LogRecord, t: float | None) -> None:
        if t is None:
            return
        last, busy = self._last_t, self._last_busy
        self._last_t = t if last is None else max(last, t)
        if last is None or t - last <= 60 or busy is None or not busy.running:
            return
        self._quiet = Silence(t - last, record.line - 1, busy.running)

    def _resume(self, row: Row) -> None:
        """The first statistics line after a silence tells whether requests were running all the time."""
        quiet, self._quiet = self._quiet, None
        if quiet is not None and row.running and not row.probe:
            found = sorted([*self._silences, quiet], key=lambda silence: -silence.seconds)
            self._silences = found[:_GAP_ROWS]

    def _access(self, record: LogRecord) -> None:
        path, ok = str(record.fields.get("path", "")), record.fields.get("status") == 200
        if path.startswith("/health"):
            self._health_ok += ok
        elif ok and ("completion" in path or "/generate" in path or "/messages" in path or "/responses" in path):
            self._completed += 1

    def _learn(self, record: LogRecord) -> None:
        for name, field in _LEARNED.items():
            value = record.fields.get(name)
            if value is not None and not isinstance(value, tuple):
                self._facts[field] = int(str(value).replace(",", "")) if field in _WHOLE else value
        if record.kind in ("milestone.hicache_kv", "milestone.hicache_mamba"):
            host_gb = _number(record.fields, "host_gb")
            rank = record.fields.get("tp_rank", 0)
            if host_gb is not None:
                label = str(record.fields.get("pool_label", ""))
                self._host_pools[f"{record.kind} {label}", str(rank)] = host_gb
        if record.kind == "milestone.mamba_cap":
            self._facts["hybrid"] = True

    def _pool(self, record: LogRecord) -> None:
        """Weights and pools of one GPU, for the bytes of a step: of several (a draft has its own) the largest."""
        if record.kind == "milestone.args":
            self._pools.clear()
        name = _WEIGHTS.get(record.kind)
        if name is not None and (size := _number(record.fields, name)):
            self._pools["weights_each_gb"] = max(self._pools.get("weights_each_gb", 0.0), size * _GIB)
        for field, names in _POOLS.items():
            parts = [value * _GIB for name in names if (value := _number(record.fields, name)) is not None]
            if parts and sum(parts) > 0:
                self._pools[field] = max(self._pools.get(field, 0.0), sum(parts))

    def _note(self, record: LogRecord) -> None:
        text = record.text[:600].lower()
        if _ANY_NOTE.search(text) is None:
            return
        for topic, words in _NOTES:
            if any(word in text for word in words):
                found = self._notes.setdefault(topic, [])
                if len(found) < _KEPT_NOTES:
                    found.append((record.line, record.text[:300]))


_LEARNED = {
    "max_running_requests": "max_running_requests",
    "requested_reqs": "configured_max_running",
    "max_mamba_cache_size": "state_slots",
    "slots_per_request": "slots_per_request",
    "max_total_num_tokens": "kv_tokens",
    "kv_tokens": "kv_tokens",
    "context_len": "context_len",
    "n_slots": "max_running_requests",
    "n_slots_old": "max_running_requests",
    "max_model_len": "context_len",
    "engine_version": "engine_version",
}
_WEIGHTS = {"milestone.load_end": "mem_usage_gb", "milestone.model_mem": "model_gib"}
_POOLS = {
    "kv_pool_gb": ("k_size_gb", "v_size_gb", "kv_size_gb", "kv_gib"),
    "state_pool_gb": ("conv_state_gb", "ssm_state_gb"),
    "spec_state_gb": ("intermediate_ssm_gb", "intermediate_conv_gb"),
}
_GIB = 2**30 / 1e9
"""Servers print pools in units of 2^30."""
_WHOLE = frozenset(_LEARNED.values()) - {"engine_version"}


_TAKEN = (
    ("running", ("running_reqs",)),
    ("queued", ("queue_reqs",)),
    ("kv", ("full_token_usage", "kv_usage", "token_usage")),
    ("tokens", ("full_tokens", "tokens_used")),
    ("state_num", ("mamba_num",)),
    ("state_usage", ("mamba_usage",)),
    ("accept_len", ("accept_len",)),
    ("accept_rate", ("accept_rate",)),
    ("drafted", ("drafted_tokens",)),
    ("accepted", ("accepted_tokens",)),
    ("gen_tps", ("gen_tps",)),
    ("prompt_tps", ("prompt_tps",)),
    ("new_tokens", ("new_tokens",)),
    ("cached_tokens", ("cached_tokens",)),
    ("pending", ("pending_tokens",)),
    ("hit_rate", ("prefix_hit_rate",)),
    ("preempted", ("preemptions",)),
)
_PLACES = {name: (field, place) for field, names in _TAKEN for place, name in enumerate(names)}
"""Field of a row by the name in the log, and which of several names goes first."""


def _row(record: LogRecord, kind: str, t: float | None, sample: Mapping[str, float]) -> Row:
    f = record.fields
    values: dict[str, float] = {}
    places: dict[str, int] = {}
    # Over what the line carries (a dozen names), not over all that a row can hold: a log has millions of lines.
    for name, value in f.items():
        known = _PLACES.get(name)
        if known is None or (type(value) is not float and type(value) is not int):
            continue
        field, place = known
        if place < places.get(field, 99):
            values[field], places[field] = float(value), place
    if kind != DECODE and "accept_rate" in sample:
        values["accept_rate"] = sample["accept_rate"]
    rank = f.get("dp_rank", f.get("engine", 0))
    positions = f.get("per_position_accept")
    graph = f.get("graph")
    return Row(
        line=record.line,
        kind=kind,
        t=t,
        rank=rank if isinstance(rank, int) else 0,
        positions=positions if isinstance(positions, tuple) else (),
        gated="gen_tps" in values and bool(sample) and "gen_tps" not in sample,
        graph=graph if isinstance(graph, bool) else None,
        probe=f.get("probe") is True,
        **values,
    )


def _number(fields: Mapping[str, Value], name: str) -> float | None:
    value = fields.get(name)
    return float(value) if type(value) is float or type(value) is int else None

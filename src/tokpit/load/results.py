"""What a level and a sweep measured, as plain data that survives JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .stats import Dist

USAGE, CHUNKS = "usage", "chunks"
"""What counted the tokens of a level: the server, or the chunks of text for want of it."""
_DISTS = (
    "ttft_s", "answer_s", "e2e_s", "ttft_settled_s", "e2e_settled_s", "tpot_s", "icl_s", "itl_s", "request_output_tps",
    "send_delay_s",
)  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One test of a level's figures. `ok` None: not enough to judge. `distrust` names the figures not to trust."""

    code: str
    ok: bool | None
    sentence: str
    distrust: tuple[str, ...] = ()
    value: float | None = None
    """What was seen, in the unit of the sentence."""
    expected: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How many requests ended one way, with the first one's detail."""

    count: int
    example: str


@dataclass(frozen=True)
class LevelResult:
    """One level. Durations in seconds on the host's clock; None is unknown. `_steady` figures are of the window."""

    level: int
    label: str
    concurrency: int | None
    rate: float | None
    requests: int
    ok: int
    err: int
    cancelled: int
    outcomes: dict[str, Outcome]
    elapsed_s: float
    partial: str
    """Why the level ended early; empty: it is whole."""

    output_tokens: int
    prompt_tokens: int | None
    cached_tokens: int | None
    token_source: str
    """`usage`: counted by the server. `chunks`: the server gave no usage, chunks stand in, as a lower bound."""
    output_tps: float | None
    """Whole run, ramp-up and drain included: output tokens of ok requests / elapsed."""
    total_tps: float | None
    request_tps: float
    steady_tps: float | None
    """In the steady window: the figure to stand by."""
    steady_ci: float | None
    """Half width of its 95 % interval; None: not enough samples."""
    steady_note: str
    """What the window was, or why there is none."""
    steady_window_s: tuple[float, float] | None
    steady_completed: int
    peak_tps: float | None
    """Best second."""
    avg_output: float | None
    tokens_per_chunk: float | None
    goodput_rps: float | None
    goodput_share: float | None

    ttft_s: Dist | None
    answer_s: Dist | None
    """Until the first token that is not reasoning."""
    e2e_s: Dist | None
    ttft_settled_s: Dist | None
    e2e_settled_s: Dist | None
    """Only requests sent after the first C (open loop: in the window): the latency that a standing load sees."""
    tpot_s: Dist | None
    """(E2E - TTFT) / (output tokens - 1), one value per request."""
    icl_s: Dist | None
    """Gaps between chunks, pooled."""
    itl_s: Dist | None
    """Gaps per token, pooled."""
    itl_source: str
    """`usage per chunk`: tokens of each chunk known. `mean per chunk`: spread evenly. `chunks`: one each."""
    request_output_tps: Dist | None
    """Output tokens / E2E, per request."""
    send_delay_s: Dist | None
    """From the decision to send until the request went out (connection included); open loop: from its due time."""

    peak_in_flight: int
    mean_in_flight: float
    finish_reasons: dict[str, int]
    no_done: int
    """Ok requests whose stream ended without [DONE]."""
    no_answer: int
    """Ok requests that only reasoned."""
    stale_retries: int
    merged_share: float
    """Chunks that arrived in one read with the one before them / all chunks."""
    kernel_share: float
    """Reads stamped by the kernel / all reads."""
    loop_lag_p99_s: float | None
    loop_lag_max_s: float | None
    client_cpu: float
    """CPU cores that the busiest process of the client used."""
    clock_steps: int
    unique_prompt_share: float | None
    held_back: int
    series_s: float
    """Width of a bucket of `tps_series`."""
    tps_series: tuple[float, ...]
    rows: tuple[tuple[Any, ...], ...] = ()
    """Per request: sent at s, TTFT s, E2E s, output tokens, outcome; at most 2,000."""
    checks: tuple[Check, ...] = ()
    processes: int = 1
    """Among how many the load was divided."""
    client_cpu_all: float | None = None
    """CPU cores that all of them used."""
    icl_bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Between which values each percentile of `icl_s` lies, given the chunks that came in one read (seconds)."""

    @property
    def distrust(self) -> frozenset[str]:
        """Every figure that some failed check tells not to trust."""
        return frozenset(name for check in self.checks if check.ok is False for name in check.distrust)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LevelResult:
        """The other way of `to_dict`, also after JSON."""
        values = {item.name: data[item.name] for item in fields(cls) if item.name in data}
        for name in _DISTS:
            values[name] = Dist.from_dict(values.get(name))
        values["outcomes"] = {name: Outcome(**item) for name, item in values["outcomes"].items()}
        values["checks"] = tuple(
            Check(**{**item, "distrust": tuple(item["distrust"])}) for item in values.get("checks", ())
        )
        for name in ("tps_series", "steady_window_s"):
            values[name] = tuple(values[name]) if values.get(name) is not None else None
        values["icl_bounds"] = {name: tuple(pair) for name, pair in values.get("icl_bounds", {}).items()}
        values["rows"] = tuple(tuple(row) for row in values.get("rows", ()))
        return cls(**values)


@dataclass(frozen=True)
class SweepResult:
    """A sweep: what was asked, what ran, and how it ended."""

    status: str
    """`done`, `stopped` (by a person or at the first error) or `failed` (dead server, no model)."""
    reason: str
    """One sentence where it did not run to its end."""
    model: str
    levels: tuple[LevelResult, ...]
    started_at: float
    """Seconds since the epoch, UTC."""
    elapsed_s: float
    nonce: str
    """The mark in this sweep's prompts."""
    plan: dict[str, Any] = field(default_factory=dict)
    """Without header values."""
    warmup: dict[str, Any] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    """What measured: versions, event loop, whether stamps came from the kernel, where it ran."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = {item.name: getattr(self, item.name) for item in fields(self)}
        data["levels"] = [level.to_dict() for level in self.levels]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SweepResult:
        """The other way of `to_dict`, also after JSON."""
        return cls(**{**data, "levels": tuple(LevelResult.from_dict(level) for level in data["levels"])})

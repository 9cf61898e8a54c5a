"""What a running sweep tells, as plain data that crosses a pipe as JSON lines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Union

from .results import LevelResult, SweepResult


@dataclass(frozen=True)
class Warmup:
    """The warm-up ended; `output_tps` is one request's output tokens / E2E."""

    ok: int
    err: int
    detail: str
    elapsed_s: float
    output_tps: float | None


@dataclass(frozen=True)
class LevelStarted:
    """A level begins. `requests` None: as many as `duration_s` takes."""

    level: int
    levels: int
    label: str
    concurrency: int | None
    rate: float | None
    requests: int | None
    duration_s: float | None


@dataclass(frozen=True)
class Progress:
    """At most four a second. `tps` is output tokens/s of the last seconds; `eta_s` None is unknown."""

    level: int
    done: int
    total: int | None
    ok: int
    err: int
    running: int
    tps: float
    tokens: float
    elapsed_s: float
    eta_s: float | None
    chunks: int = 0
    """Pieces of text until now. They are counted as they come; `tokens` follows once the first request has ended."""


@dataclass(frozen=True)
class RequestFinished:
    """One request ended; a sample of them (ten a second, and the first three of every outcome)."""

    level: int
    index: int
    outcome: str
    detail: str
    ttft_s: float | None
    e2e_s: float | None
    output_tokens: int
    at_s: float


@dataclass(frozen=True)
class LevelFinished:
    """A level ended, whole or partial."""

    result: LevelResult


@dataclass(frozen=True)
class SweepFinished:
    """The last event."""

    result: SweepResult


Event = Union[Warmup, LevelStarted, Progress, RequestFinished, LevelFinished, SweepFinished]

_KINDS: dict[str, Any] = {
    "warmup": Warmup,
    "level_started": LevelStarted,
    "progress": Progress,
    "request_finished": RequestFinished,
    "level_finished": LevelFinished,
    "sweep_finished": SweepFinished,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_dict(event: Event) -> dict[str, Any]:
    """`event` as plain data; `event` names its kind."""
    data = {"result": event.result.to_dict()} if isinstance(event, (LevelFinished, SweepFinished)) else asdict(event)
    return {"event": _NAMES[type(event)], **data}


def from_dict(data: dict[str, Any]) -> Event:
    """The other way of `to_dict`, also after JSON; raises ValueError for anything else."""
    values = dict(data)
    name = values.pop("event", None)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"no such event: {name!r}")
    try:
        if kind is LevelFinished:
            return LevelFinished(LevelResult.from_dict(values["result"]))
        if kind is SweepFinished:
            return SweepFinished(SweepResult.from_dict(values["result"]))
        event: Event = kind(**values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the event {name} cannot be read: {error}") from None
    return event

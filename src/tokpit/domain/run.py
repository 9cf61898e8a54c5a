"""A run: one measured thing with its context frozen."""

from __future__ import annotations

from typing import Any

import msgspec


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One finished level of a sweep. `result` is the load generator's full summary (see tokpit.load.summary)."""

    concurrency: int
    requests: int
    ok: int
    err: int
    elapsed_s: float
    output_tps: float
    """Whole run: output tokens of ok requests / elapsed."""
    steady_tps: float | None = None
    """Steady window only; None where there were not enough samples."""
    avg_output: float = 0.0
    ttft_p50_s: float | None = None
    e2e_p50_s: float | None = None
    result: dict[str, Any] = {}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep, check or experiment. `context`: flags, version, GPUs, prompts, sampling, client."""

    id: str
    kind: str
    target: str
    host: str = ""
    model: str = ""
    engine: str = ""
    started_at: float
    ended_at: float | None = None
    status: str = "running"
    """`running`, `done`, `stopped`, `failed`."""
    note: str = ""
    context: dict[str, Any] = {}
    levels: tuple[Level, ...] = ()

"""Stored runs as plain data: levels with requests of their own, so that every figure has an interval."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from tokpit.domain.run import Level, Run
from tokpit.load.stats import dist


def measured(
    concurrency: int,
    tps: float,
    *,
    ci: float | None = None,
    ttft_s: float = 0.2,
    tpot_s: float = 0.02,
    spread: float = 0.03,
    requests: int = 60,
    tokens: int = 100,
    err: int = 0,
    seed: int = 1,
    **more: Any,
) -> Level:
    """A level whose requests scatter by `spread` around the given latencies."""
    rng = random.Random(seed * 1000 + concurrency)
    rows = []
    for n in range(requests):
        first = ttft_s * rng.gauss(1, spread)
        rows.append([n * 0.1, first, first + tpot_s * rng.gauss(1, spread) * (tokens - 1), tokens, "ok"])
    spreads = {
        "ttft_s": dist(row[1] for row in rows),
        "e2e_s": dist(row[2] for row in rows),
        "tpot_s": dist((row[2] - row[1]) / (tokens - 1) for row in rows),
    }
    result: dict[str, Any] = {name: vars(value) for name, value in spreads.items() if value is not None}
    return Level(
        concurrency=concurrency,
        requests=requests + err,
        ok=requests,
        err=err,
        elapsed_s=requests * tokens / tps,
        output_tps=tps * 0.97,
        steady_tps=tps,
        avg_output=tokens,
        result={**result, "rows": rows, "steady_ci": ci if ci is not None else tps * 0.01, "checks": [], **more},
    )


def stored(run_id: str, levels: Iterable[Level], *, started_at: float = 1_795_000_000.0, **context: Any) -> Run:
    """A finished sweep."""
    known = {"settings": {"tp": 1, "spec_steps": 3}, "plan": {"max_tokens": 100}, "version": "0.5.11", **context}
    return Run(
        id=run_id,
        kind="sweep",
        target="gpu1:30000",
        host="gpu1",
        model="m27",
        engine="sglang",
        started_at=started_at,
        ended_at=started_at + 60,
        status="done",
        context=known,
        levels=tuple(levels),
    )


def sweep_of(run_id: str, factor: float = 1.0, *, seed: int = 1, **context: Any) -> Run:
    """Levels C=1, 4 and 8 of a server; `factor` makes all of it faster."""
    rates = ((1, 60.0), (4, 200.0), (8, 355.0))
    levels = [measured(c, tps * factor, tpot_s=c / tps / factor, seed=seed) for c, tps in rates]
    return stored(run_id, levels, **context)

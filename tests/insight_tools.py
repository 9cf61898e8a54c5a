"""Sweeps and evidence as plain data."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tokpit.domain.finding import Finding
from tokpit.insight.curve import read_curve
from tokpit.insight.diagnose import diagnose
from tokpit.insight.evidence import Evidence
from tokpit.insight.facts import parse_facts
from tokpit.insight.points import Point

STORY = (
    (1, 8, 133.8, 61.2),
    (4, 8, 39.5, 207.2),
    (8, 16, 44.3, 369.7),
    (16, 32, 85.2, 384.5),
    (32, 64, 166.9, 392.7),
    (48, 96, 240.3, 409.0),
)


def sweep(rows: Iterable[tuple[int, int, float, float]] = STORY) -> tuple[Point, ...]:
    return tuple(
        Point(concurrency=c, requests=n, ok=n, err=0, elapsed_s=elapsed, output_tps=tps) for c, n, elapsed, tps in rows
    )


def engine_sweep(
    *,
    cap: int,
    fixed_s: float,
    each_s: float,
    levels: Iterable[int],
    tokens: int = 600,
    noise: float = 0.0,
    seed: int = 1,
) -> tuple[Point, ...]:
    """Levels of a lock-step engine on which a request takes fixed_s + each_s x running."""
    rng = random.Random(seed)
    rows = []
    for c in levels:
        n, m = max(2 * c, 8), min(c, cap)
        full, rest = divmod(n, m)
        elapsed = full * (fixed_s + each_s * m) + ((fixed_s + each_s * rest) if rest else 0.0)
        elapsed *= rng.gauss(1, noise) if noise else 1.0
        rows.append((c, n, elapsed, n * tokens / elapsed))
    return sweep(rows)


def findings(points: tuple[Point, ...] = (), /, **facts: object) -> tuple[Finding, ...]:
    known, unknown = parse_facts({name: str(value) for name, value in facts.items()})
    assert not unknown
    return diagnose(Evidence(facts=known, points=points, curve=read_curve(points)))


def codes(found: Iterable[Finding]) -> list[str]:
    return [finding.code for finding in found]


def one(found: Iterable[Finding], code: str) -> Finding:
    fits = [finding for finding in found if finding.code == code]
    assert len(fits) == 1, f"{code} is not there once: {codes(found)}"
    return fits[0]

"""Which candidates tie, which is ahead, and what is on the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from tokpit.domain.settings import Settings
from tokpit.domain.tuning import Choice, CurvePoint, Trial
from tokpit.tune.knowledge import Knowledge
from tokpit.tune.score import Score, pooled, score
from tokpit.tune.space import key_of

MOST_GIVEN_UP = 0.1


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate with all that was measured of it."""

    choice: Choice
    score: Score
    points: tuple[CurvePoint, ...]
    trials: tuple[int, ...]
    first: bool = False
    """It is the server as it ran."""
    cut: bool = False
    """Its levels were cut short: its value is that of the lower ones."""


def standings(trials: Iterable[Trial], knowledge: Knowledge) -> list[Standing]:
    """Every candidate that has a value, the highest first; repeated measurements are pooled."""
    groups: dict[object, list[Trial]] = {}
    for trial in trials:
        if trial.status in {"measured", "cut"} and trial.points:
            groups.setdefault(key_of(trial.choice), []).append(trial)
    found = []
    for group in groups.values():
        whole = [t for t in group if t.status == "measured"] or group[-1:]
        points = pooled(p for t in whole for p in t.points)
        value = score(points, knowledge.objective, knowledge.error_rate, knowledge.first)
        if value.value is None:
            continue
        found.append(
            Standing(
                choice=group[0].choice,
                score=value,
                points=points,
                trials=tuple(t.number for t in group),
                first=any(t.role in {"first", "last"} for t in group),
                cut=whole[0].status == "cut",
            )
        )
    return sorted(found, key=lambda s: -(s.score.value or 0.0))


def ahead(found: Sequence[Standing], knowledge: Knowledge, noise: float) -> Standing | None:
    """The candidate to take: of those that tie with the best, the most capable; the first server where it is one.

    Where intervals are wide, nearly all tie: capability is not bought with more than MOST_GIVEN_UP of the best value.
    """
    if not found:
        return None
    best = found[0]
    least = (1 - MOST_GIVEN_UP) * (best.score.value or 0.0)
    tied = [
        s
        for s in found
        if s is best
        or (not s.cut and ties(s.score, best.score, noise) and (s.first or (s.score.value or 0.0) >= least))
    ]
    # The server as it ran goes first among equals: a change that brings nothing is not made.
    return max(tied, key=lambda s: (capability(knowledge.settings(s.choice), knowledge.cap(s.choice).value), s.first))


def ties(one: Score, other: Score, noise: float) -> bool:
    """Whether two values are the same within their intervals or the noise band."""
    gap = abs((one.value or 0.0) - (other.value or 0.0))
    return gap <= max(noise * max(abs(one.value or 0.0), abs(other.value or 0.0)), math.hypot(one.half, other.half))


def capability(settings: Settings, cap: int | None) -> tuple[float, ...]:
    """What a server can take beyond its speed, the weightiest first: longer contexts, more at once, more cache."""
    ranks = (settings.tp or 1) * (settings.pp or 1) * (settings.dp or 1)
    return (
        math.inf if settings.context_len is None else float(settings.context_len),
        float(cap if cap is not None else settings.max_running or 0),
        float(settings.hicache_gb or settings.kv_offload_gib or 0.0),
        float(settings.state_slots or 0),
        -float(ranks),
    )


def front(found: Sequence[Standing]) -> tuple[int, ...]:
    """Trials that no other beats in both throughput and the speed of one stream (each at its best level)."""
    places = [(s, p.tps, p.stream_tps or p.tps / p.concurrency) for s in found if (p := best_point(s.points))]
    kept = []
    for standing, tps, stream in places:
        beaten = any((t >= tps and x >= stream) and (t > tps or x > stream) for s, t, x in places if s is not standing)
        if not beaten:
            kept.append(standing.trials[0])
    return tuple(kept)


def best_point(points: Sequence[CurvePoint]) -> CurvePoint | None:
    """The level with the highest rate."""
    return max((p for p in points if not p.void), key=lambda p: p.tps, default=None)

"""Two stored runs against each other, level by level."""

from __future__ import annotations

from dataclasses import dataclass

from tokpit.domain.run import Level, Run


@dataclass(frozen=True)
class LevelPair:
    """One concurrency in both runs; None where a run has no such level."""

    concurrency: int
    before: float | None
    after: float | None
    steady: bool
    """Whether both figures are of the steady window; else both are of the whole run."""

    @property
    def ratio(self) -> float | None:
        """After / before; None where either is missing or 0."""
        return self.after / self.before if self.before and self.after is not None else None


def level_pairs(before: Run, after: Run) -> list[LevelPair]:
    """Output tokens per second by concurrency, in the same measure on both sides; of repeated levels the last."""
    left = {level.concurrency: level for level in before.levels}
    right = {level.concurrency: level for level in after.levels}
    pairs = []
    for c in sorted({*left, *right}):
        one, other = left.get(c), right.get(c)
        steady = all(level is None or level.steady_tps is not None for level in (one, other))
        pairs.append(LevelPair(c, _tps(one, steady), _tps(other, steady), steady))
    return pairs


def _tps(level: Level | None, steady: bool) -> float | None:
    if level is None:
        return None
    return level.steady_tps if steady else level.output_tps

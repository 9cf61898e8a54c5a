"""What each setting did: ratio of a value of it to another, all other settings as they were, with a 95 % interval.

log(value) is taken as a sum of one term per setting and value (main effects; settings that work against each other are
told apart only as far as candidates with both were measured). Least squares; interval by Student's t on the residuals
and on the candidates' own measurement intervals, whichever is wider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from tokpit.domain.tuning import Value
from tokpit.load.stats import t95
from tokpit.tune.choosing import Standing
from tokpit.tune.space import name_of, value_of


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """`value` against `base` of one setting. Ratios: 1.1 is 10 % more."""

    name: str
    base: Value
    value: Value
    ratio: float
    low: float
    high: float
    candidates: int
    """Measured candidates with this value."""

    @property
    def words(self) -> str:
        """`mtp_steps 1 against 3: +4.2 % (+1.0 to +7.5 %), 3 candidates`."""
        clear = "" if self.low > 1 or self.high < 1 else ": no difference shown"
        return (
            f"{name_of(self.name)} {value_of(self.value)} against {value_of(self.base)}: {_percent(self.ratio)} "
            f"({_percent(self.low)} to {_percent(self.high)}), {self.candidates} "
            f"candidate{'s' if self.candidates != 1 else ''}{clear}"
        )


def effects(found: Sequence[Standing]) -> tuple[Effect, ...]:
    """Effects of the varied settings; () where too few candidates were measured to tell any apart.

    Each setting's value in the first candidate (the server as it ran, where it was measured) is the base.
    """
    measured = [s for s in found if s.score.value and not s.cut]
    if len(measured) < 2:
        return ()
    first = next((s for s in measured if s.first), measured[0])
    columns: list[tuple[str, Value]] = []
    for name in first.choice:
        values = {s.choice.get(name): None for s in measured}
        columns += [(name, value) for value in values if value != first.choice[name]]
    rows = [[1.0, *(float(s.choice.get(n) == v) for n, v in columns)] for s in measured]
    targets = [math.log(s.score.value or 1.0) for s in measured]
    kept, inverse = _independent(rows)
    if inverse is None:
        return ()
    solved = _times(inverse, _moments(rows, targets, kept))
    fitted = [math.fsum(row[c] * x for c, x in zip(kept, solved, strict=True)) for row in rows]
    freedom = len(rows) - len(kept)
    noise = [(s.score.half / (s.score.value or 1.0) / 1.96) ** 2 for s in measured]
    own = math.fsum(noise) / len(noise)
    left = math.fsum((y - f) ** 2 for y, f in zip(targets, fitted, strict=True)) / freedom if freedom else 0.0
    results = []
    for place, column in enumerate(kept):
        if column == 0:
            continue
        name, value = columns[column - 1]
        spread = math.sqrt(inverse[place][place])
        half = max(t95(freedom) * math.sqrt(left) if freedom else 0.0, 1.96 * math.sqrt(own)) * spread
        results.append(
            Effect(
                name=name,
                base=first.choice[name],
                value=value,
                ratio=math.exp(solved[place]),
                low=math.exp(solved[place] - half),
                high=math.exp(solved[place] + half),
                candidates=sum(s.choice.get(name) == value for s in measured),
            )
        )
    return tuple(results)


def _independent(rows: Sequence[Sequence[float]]) -> tuple[list[int], list[list[float]] | None]:
    """Columns that the candidates tell apart, and the inverse of their normal matrix."""
    kept: list[int] = []
    inverse: list[list[float]] | None = None
    for column in range(len(rows[0])):
        if len(kept) >= len(rows):
            break
        tried = _inverse([[math.fsum(r[a] * r[b] for r in rows) for b in (*kept, column)] for a in (*kept, column)])
        if tried is not None:
            kept, inverse = [*kept, column], tried
    return kept, inverse


def _inverse(matrix: list[list[float]]) -> list[list[float]] | None:
    """By Gauss and Jordan with pivots; None where the matrix is singular."""
    n = len(matrix)
    work = [[*row, *(float(i == j) for j in range(n))] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(work[r][i]))
        if abs(work[pivot][i]) < 1e-9:
            return None
        work[i], work[pivot] = work[pivot], work[i]
        scale = work[i][i]
        work[i] = [x / scale for x in work[i]]
        for r in range(n):
            if r != i and work[r][i]:
                factor = work[r][i]
                work[r] = [a - factor * b for a, b in zip(work[r], work[i], strict=True)]
    return [row[n:] for row in work]


def _moments(rows: Sequence[Sequence[float]], targets: Sequence[float], kept: Sequence[int]) -> list[float]:
    return [math.fsum(row[c] * y for row, y in zip(rows, targets, strict=True)) for c in kept]


def _times(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    return [math.fsum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def _percent(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f} %"

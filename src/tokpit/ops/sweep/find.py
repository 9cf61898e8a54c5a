"""The highest concurrency that meets an SLO, by bisection. Pure: asks for a level, is told whether it met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokpit.load.results import LevelResult

ATTAIN = 0.95
"""A level meets the SLO if this share of its requests keeps every limit; a failed request keeps none."""
CLOSE = 0.05
"""The search ends where the gap is this share of the level, or 1."""


class Search:
    """First up the given levels until one does not meet the SLO, then bisection between the last two."""

    def __init__(self, levels: Sequence[int]) -> None:
        self._ladder = sorted(levels)
        self.met: int | None = None
        self.missed: int | None = None
        self.cut = ""
        """Why the search ended before its end."""

    def next(self) -> int | None:
        """The level to measure next; None: found."""
        if self.missed is None:
            return next((level for level in self._ladder if level > (self.met or 0)), None)
        gap = self.missed - (self.met or 0)
        if self.met is None and self.missed <= 1:
            return None
        if gap <= max(1, round(CLOSE * (self.met or 0))):
            return None
        return (self.met or 0) + gap // 2

    def tell(self, level: int, *, met: bool) -> None:
        """What `level` gave. Levels are taken to get harder as they rise."""
        if met:
            self.met = max(level, self.met or 0)
        else:
            self.missed = level if self.missed is None else min(level, self.missed)

    @property
    def sentence(self) -> str:
        """What was found so far."""
        return self._found + (f"; {self.cut}" if self.cut else "")

    @property
    def _found(self) -> str:
        if self.met is None:
            return "no concurrency meets the SLO" if self.missed is not None else "nothing was measured"
        if self.missed is None:
            return f"C={self.met} meets the SLO, and nothing higher was tried"
        return f"C={self.met} is the highest concurrency that meets the SLO (C={self.missed} does not)"


def meets_slo(result: LevelResult) -> bool:
    """Whether a level meets the SLO of its plan, see ATTAIN."""
    return result.goodput_share is not None and result.goodput_share >= ATTAIN

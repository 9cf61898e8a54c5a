"""Marks: what only one engine prints, so that a log from its middle, or a line alone, tells whose it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class Mark(NamedTuple):
    """A pattern and how surely it is this engine's: 1 a hint, 10 a layout others might share, 30 its own words."""

    weight: int
    pattern: re.Pattern[str]


def mark(weight: int, pattern: str) -> Mark:
    """A mark from the text of its pattern."""
    return Mark(weight, re.compile(pattern))


_MOST = 2000
"""Characters of a line that are searched."""


def weigh(marks: Sequence[Mark], line: str) -> int:
    """How surely this line is that engine's: the sum of the weights of its marks; 0 says nothing."""
    line = line[:_MOST]
    return sum(weight for weight, pattern in marks if pattern.search(line))

"""A chart as data, its axes, and the protocol of what draws it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tokpit.ui.text import Row

Tick = tuple[float, str]


@dataclass(frozen=True)
class Curve:
    """One line: x rising, y in the chart's unit, NaN where there is a gap; `style` is a palette name."""

    label: str
    style: str
    xs: Sequence[float]
    ys: Sequence[float]
    dots: bool = False
    """Mark each point (few, measured ones)."""


@dataclass(frozen=True)
class Chart:
    """Curves over common axes. Ranges are (low, high); ticks are (value, label); marks are vertical lines at x."""

    curves: tuple[Curve, ...]
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    x_ticks: tuple[Tick, ...] = ()
    y_ticks: tuple[Tick, ...] = ()
    marks: tuple[float, ...] = field(default=())
    cursor: float | None = None
    """x of the moment at which everything is read."""


class ChartCanvas(Protocol):
    """Draws a chart into rows of cells."""

    name: str

    def draw(self, chart: Chart, width: int, height: int) -> list[Row]:
        """Exactly `height` rows of at most `width` cells."""
        ...


def nice_top(value: float, *, floor: float = 1.0) -> float:
    """The smallest round number (1, 1.5, 2, 3, 4, 5, 6, 8 x 10^n) not below `value`."""
    value = max(value, floor)
    scale = 10.0 ** math.floor(math.log10(value))
    for step in (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0):
        if value <= step * scale * (1 + 1e-9):
            return step * scale
    return 10.0 * scale


def y_ticks(low: float, high: float, rows: int, label: Callable[[float], str]) -> tuple[Tick, ...]:
    """Ticks at both ends, the middle where there is room, quarters where there is much.

    Four and six rows have no middle one: half a row beside it a label would be wrong by a tenth of the axis and more.
    """
    parts = 4 if rows >= 13 else 2 if rows >= 7 or rows == 5 else 1
    values = [low + (high - low) * n / parts for n in range(parts + 1)]
    return tuple((value, label(value)) for value in values)


def time_ticks(now: float, window_s: float, cells: int, end: str = "now") -> tuple[Tick, ...]:
    """Ticks of a time axis that ends now: `-5m`, `-2m30s`, `now` (or what `end` calls its right edge)."""
    parts = 4 if cells >= 70 else 2 if cells >= 24 else 1

    def label(back: float) -> str:
        if back < 1:
            return end
        minutes, rest = divmod(round(back), 60)
        return f"-{minutes}m{rest:02d}s" if minutes and rest else f"-{minutes}m" if minutes else f"-{rest}s"

    backs = [window_s * n / parts for n in range(parts, -1, -1)]
    return tuple((now - back, label(back)) for back in backs)


def thin(
    xs: Sequence[float], ys: Sequence[float], low: float, high: float, buckets: int
) -> tuple[list[float], list[float]]:
    """At most two points (least and greatest) in each of `buckets` slices of the x range, so that no peak is lost."""
    if len(xs) <= 2 * buckets or high <= low:
        return list(xs), list(ys)
    out_x: list[float] = []
    out_y: list[float] = []
    slices: dict[int, list[tuple[float, float]]] = {}
    for x, y in zip(xs, ys, strict=True):
        slices.setdefault(int((x - low) / (high - low) * buckets), []).append((x, y))
    for key in sorted(slices):
        points = slices[key]
        if any(math.isnan(y) for _, y in points):
            out_x.append(points[0][0])
            out_y.append(math.nan)
            points = [p for p in points if not math.isnan(p[1])]
        ends = sorted({min(points, key=lambda p: p[1]), max(points, key=lambda p: p[1])}) if points else []
        out_x.extend(x for x, _ in ends)
        out_y.extend(y for _, y in ends)
    return out_x, out_y


def with_gaps(xs: Sequence[float], ys: Sequence[float], gap: float) -> tuple[list[float], list[float]]:
    """The points with a NaN wherever two are further apart than `gap`: silence is not a straight line."""
    out_x: list[float] = []
    out_y: list[float] = []
    previous: float | None = None
    for x, y in zip(xs, ys, strict=True):
        if previous is not None and x - previous > gap:
            out_x.append((previous + x) / 2)
            out_y.append(math.nan)
        out_x.append(x)
        out_y.append(y)
        previous = x
    return out_x, out_y

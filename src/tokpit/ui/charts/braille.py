"""Our own line canvas: braille dots, 2 x 4 a cell, cheap enough to redraw several times a second."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tokpit.ui.charts.model import Chart, Curve, Tick
from tokpit.ui.text import Row, Span, width_of

_DOT = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_MAX_JUMP = 4096


class BrailleCanvas:
    """See the module docstring."""

    name = "braille"

    def draw(self, chart: Chart, width: int, height: int) -> list[Row]:
        """Exactly `height` rows: the plot, and a line of x labels where there is room for one."""
        gutter = gutter_width(chart.y_ticks)
        x_row = 1 if chart.x_ticks and height >= 4 else 0
        plot_w, plot_h = width - gutter - 1, height - x_row
        if plot_w < 2 or plot_h < 1:
            return [[] for _ in range(height)]
        bits = [[0] * plot_w for _ in range(plot_h)]
        owner = [[""] * plot_w for _ in range(plot_h)]
        for curve in chart.curves:
            _plot(chart, curve, bits, owner)
        marks = {_scale(x, chart.x_range, plot_w) for x in chart.marks if chart.x_range[0] <= x <= chart.x_range[1]}
        inside = chart.cursor is not None and chart.x_range[0] <= chart.cursor <= chart.x_range[1]
        cursor = _scale(chart.cursor, chart.x_range, plot_w) if inside and chart.cursor is not None else -1
        labels = tick_rows(chart.y_ticks, chart.y_range, plot_h)
        rows: list[Row] = []
        for y in range(plot_h):
            row: list[Span] = [(labels.get(y, "").rjust(gutter), "axis"), ("┤" if y in labels else "│", "axis")]
            row.extend(_runs(bits[y], owner[y], marks, cursor, grid=y in labels))
            rows.append(row)
        if x_row:
            rows.append(x_axis_row(chart, gutter + 1, plot_w))
        return rows


def gutter_width(ticks: Sequence[Tick]) -> int:
    """Cells that the widest y label takes."""
    return max((width_of(label) for _, label in ticks), default=0)


def tick_rows(ticks: Sequence[Tick], y_range: tuple[float, float], rows: int) -> dict[int, str]:
    """Row number (0: top) to label."""
    return {rows - 1 - _scale(value, y_range, rows): label for value, label in ticks}


def x_axis_row(chart: Chart, indent: int, width: int) -> Row:
    """The x labels, each centred under its place and kept inside; one that would touch another is left out."""
    cells = [" "] * width
    for value, label in sorted(chart.x_ticks, key=lambda t: t[0] not in chart.x_range):
        start = min(max(0, _scale(value, chart.x_range, width) - len(label) // 2), width - len(label))
        if start < 0 or any(c != " " for c in cells[max(0, start - 1) : start + len(label) + 1]):
            continue
        cells[start : start + len(label)] = label
    return [(" " * indent, "axis"), ("".join(cells), "axis")]


def _scale(value: float, bounds: tuple[float, float], cells: int) -> int:
    low, high = bounds
    if high <= low:
        return 0
    return min(cells - 1, max(0, int((value - low) / (high - low) * (cells - 1) + 0.5)))


def _plot(chart: Chart, curve: Curve, bits: list[list[int]], owner: list[list[str]]) -> None:
    plot_h, plot_w = len(bits), len(bits[0])
    dots_x, dots_y = plot_w * 2, plot_h * 4
    before: tuple[int, int] | None = None

    def put(px: int, py: int) -> None:
        cell_x, cell_y = px >> 1, py >> 2
        bits[cell_y][cell_x] |= _DOT[py & 3][px & 1]
        owner[cell_y][cell_x] = curve.style

    for x, y in zip(curve.xs, curve.ys, strict=True):
        if math.isnan(y) or x < chart.x_range[0] or x > chart.x_range[1]:
            before = None
            continue
        px = _scale(x, chart.x_range, dots_x)
        py = dots_y - 1 - _scale(y, chart.y_range, dots_y)
        if before is None:
            put(px, py)
        else:
            _line(before, (px, py), put)
        if curve.dots:
            for dx, dy in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                if 0 <= px + dx < dots_x and 0 <= py + dy < dots_y:
                    put(px + dx, py + dy)
        before = (px, py)


def _line(start: tuple[int, int], end: tuple[int, int], put: Callable[[int, int], None]) -> None:
    (x0, y0), (x1, y1) = start, end
    steps = min(_MAX_JUMP, max(abs(x1 - x0), abs(y1 - y0), 1))
    for n in range(steps + 1):
        put(round(x0 + (x1 - x0) * n / steps), round(y0 + (y1 - y0) * n / steps))


def _runs(bits: list[int], owner: list[str], marks: set[int], cursor: int, *, grid: bool) -> list[Span]:
    spans: list[Span] = []
    text, style = "", ""
    for x, (dots, who) in enumerate(zip(bits, owner, strict=True)):
        if x == cursor:
            char, char_style = "┃", "accent"
        elif dots:
            char, char_style = chr(0x2800 + dots), who
        elif x in marks:
            char, char_style = "┊", "mark"
        else:
            char, char_style = ("┈", "grid") if grid else (" ", "grid")
        if char_style != style and text:
            spans.append((text, style))
            text = ""
        style = char_style
        text += char
    spans.append((text, style))
    return spans

"""The plotext canvas: one private, independent figure a canvas, its output turned into rows of our own styles.

plotext 6 exposes one global figure clamped to the terminal's size; a figure of its own comes from the terminal class
of its kernel. Colours go in as codes 1, 2, 3 ... and come back out as palette names, so themes hold here too.
"""

from __future__ import annotations

import math
import re
from importlib import import_module
from typing import Any

from tokpit.ui.charts.braille import BrailleCanvas, gutter_width
from tokpit.ui.charts.model import Chart, thin
from tokpit.ui.text import Row, Span

_CODE = re.compile(r"\x1b\[([0-9;]*)m")
_AXIS_CODE = 240
_MARK_CODE = 241
_BOX = frozenset("─│┤┼├┬┴└┘┌┐┊┈")
MIN_WIDTH, MIN_HEIGHT = 24, 6


class PlotextCanvas:
    """See the module docstring. Charts too small for its axes are handed to the braille canvas."""

    name = "plotext"

    def __init__(self) -> None:
        self._figure: Any = None
        self._pixel: Any = None
        self._small = BrailleCanvas()

    def draw(self, chart: Chart, width: int, height: int) -> list[Row]:
        """Exactly `height` rows."""
        curves = [c for c in chart.curves if not all(math.isnan(y) for y in c.ys)]
        if width < MIN_WIDTH or height < MIN_HEIGHT or not curves:
            return self._small.draw(chart, width, height)
        if self._figure is None:
            self._open()
        styles: dict[int, str] = {_AXIS_CODE: "axis", _MARK_CODE: "mark"}
        figure = self._figure
        figure.clear.all()
        figure.theme("colorless")
        figure.canvas("default")
        figure.axes(True, pixel=self._pixel(foreground=_AXIS_CODE, background="default"))
        figure.axes(False, axis=0, side=1)
        figure.axes(False, axis=1, side=1)
        figure.plot_size(width, height)
        cells = width - gutter_width(chart.y_ticks) - 1
        low, high = chart.y_range
        sequence = []
        pieces: list[tuple[list[float], list[float]]] = []
        for code, curve in enumerate(curves, start=1):
            styles[code] = curve.style
            for xs, ys in _pieces(*thin(curve.xs, curve.ys, *chart.x_range, cells)):
                sequence.append(self._pixel(foreground=code))
                pieces.append((xs, [min(max(y, low), high) for y in ys]))
        for x in chart.marks:
            sequence.append(self._pixel(foreground=_MARK_CODE))
            pieces.append(([x] * height, [low + (high - low) * n / max(1, height - 1) for n in range(height)]))
        figure._cycler.set_sequence(sequence)
        for index, (xs, ys) in enumerate(pieces):
            connected = len(xs) > 1 and index < len(pieces) - len(chart.marks)
            figure.draw(figure.signal(xs, ys, marker="braille").lines(connected))
        figure.ruler("x", "lower").lim(*chart.x_range)
        figure.ruler("y", "left").lim(*chart.y_range)
        figure.ruler("y", "left").ticks([v for v, _ in chart.y_ticks], [label for _, label in chart.y_ticks])
        figure.ruler("x", "lower").ticks([v for v, _ in chart.x_ticks], [label for _, label in chart.x_ticks])
        rows = [_row(line, styles) for line in str(figure.build()).split("\n")]
        return [*rows[:height], *([] for _ in range(height - len(rows)))]

    def _open(self) -> None:
        terminal = import_module("plotext._kernel.terminal").terminal()
        terminal.limit(False, False)
        self._figure = terminal._master
        self._pixel = import_module("plotext").pixel


def _pieces(xs: list[float], ys: list[float]) -> list[tuple[list[float], list[float]]]:
    pieces: list[tuple[list[float], list[float]]] = []
    run_x: list[float] = []
    run_y: list[float] = []
    for x, y in zip(xs, ys, strict=True):
        if not math.isnan(y):
            run_x.append(x)
            run_y.append(y)
        elif run_x:
            pieces.append((run_x, run_y))
            run_x, run_y = [], []
    return [*pieces, (run_x, run_y)] if run_x else pieces


def _row(line: str, styles: dict[int, str]) -> Row:
    spans: list[Span] = []
    style = "axis"
    for index, part in enumerate(_CODE.split(line)):
        if index % 2 == 0:
            if part:
                spans.append((part, style))
        elif part in {"", "0"}:
            style = "axis"
        elif part.startswith("38;5;"):
            style = styles.get(int(part.split(";")[2]), "fg")
    return spans

"""Charts as inline SVG: no script, no font, no file beside it; colours come from the page's own variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from tokpit.insight.words import num
from tokpit.report.document import Chart, Curve

WIDTH, HEIGHT = 480, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 46, 40
_LOG_FROM = 16
"""Where the greatest level is this many times the least, levels are drawn at even steps of their logarithm."""


def svg(chart: Chart) -> str:
    """The chart; empty where no curve has a point."""
    curves = [curve for curve in chart.curves if any(math.isfinite(y) for y in curve.ys)]
    if not curves:
        return ""
    xs = sorted({x for curve in curves for x in curve.xs})
    highest = max(y + (h or 0.0) for c in curves for y, h in _points_half(c))
    top = 100.0 if chart.unit == "%" and highest <= 100 else nice(highest * 1.04)
    place, ticks, note = _x_axis(chart, xs)

    def y_at(value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - value / top)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title, quote=True)}">',
        f"<title>{escape(chart.title)}</title>",
        *_grid(top, y_at),
        *(
            f'<text class="tick" x="{place(x):.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">'
            f"{escape(label)}</text>"
            for x, label in ticks
        ),
        f'<text class="axis" x="{(_LEFT + WIDTH - _RIGHT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(chart.x_label + note)}</text>",
        f'<text class="axis" x="{_LEFT - 44}" y="{_TOP - 10}">{escape(chart.unit)}</text>',
        *_marks(chart, place),
    ]
    number = 0
    for curve in curves:
        number += not curve.faint
        parts += _curve(chart, curve, "faint" if curve.faint else f"s{(number - 1) % 4 + 1}", place, y_at)
    return "".join([*parts, *_legend(curves), "</svg>"])


def nice(value: float) -> float:
    """The smallest of 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8 x 10^n that is not below `value`."""
    if value <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if value <= step * scale * (1 + 1e-9))


def _points_half(curve: Curve) -> list[tuple[float, float | None]]:
    halves = list(curve.half) or [None] * len(curve.ys)
    return [(y, h) for y, h in zip(curve.ys, halves, strict=True) if math.isfinite(y)]


def _x_axis(chart: Chart, xs: Sequence[float]) -> tuple[Callable[[float], float], list[tuple[float, str]], str]:
    """Where an x lies, the ticks that fit, and a word on the scale."""
    wide = WIDTH - _LEFT - _RIGHT
    logarithmic = not chart.time and len(xs) > 2 and xs[0] > 0 and xs[-1] / xs[0] >= _LOG_FROM
    low, high = (math.log2(xs[0]), math.log2(xs[-1])) if logarithmic else (xs[0] if chart.time else 0.0, xs[-1])
    span = high - low or 1.0
    # Room at both ends on an axis of levels, so that no mark sits on the frame.
    pad = 0.0 if chart.time else 0.04 * span

    def place(x: float) -> float:
        value = math.log2(max(x, 1e-9)) if logarithmic else x
        return _LEFT + wide * (value - low + pad) / (span + 2 * pad)

    ticks: list[tuple[float, str]] = []
    if chart.time:
        step = nice(span / 5)
        count = int(span / step)
        ticks = [(low + n * step, _clock(n * step)) for n in range(count + 1)]
    else:
        taken = -math.inf
        for x in xs:
            if place(x) - taken >= 24:
                ticks.append((x, f"{x:g}"))
                taken = place(x)
    return place, ticks, ", logarithmic" if logarithmic else ""


def _clock(seconds: float) -> str:
    if seconds >= 7200:
        return f"{seconds / 3600:.3g} h"
    return f"{seconds / 60:.3g} min" if seconds >= 120 else f"{seconds:.3g} s"


def _grid(top: float, y_at: Callable[[float], float]) -> list[str]:
    parts = []
    digits = round(top / 10.0 ** math.floor(math.log10(top)) * 10)
    steps = {15: 3, 30: 3, 60: 3, 25: 5, 50: 5}.get(digits, 4)
    for n in range(steps + 1):
        value = top * n / steps
        y = y_at(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{num(value)}</text>')
    return parts


def _marks(chart: Chart, place: Callable[[float], float]) -> list[str]:
    parts = []
    for x, label in chart.marks:
        at = place(x)
        if not _LEFT <= at <= WIDTH - _RIGHT:
            continue
        side = "end" if at > WIDTH - 90 else "start"
        text = at - 5 if side == "end" else at + 5
        parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        parts.append(
            f'<text class="tick" x="{text:.1f}" y="{HEIGHT - _BOTTOM - 7}" text-anchor="{side}">{escape(label)}</text>'
        )
    return parts


def _curve(
    chart: Chart, curve: Curve, style: str, place: Callable[[float], float], y_at: Callable[[float], float]
) -> list[str]:
    halves = list(curve.half) or [None] * len(curve.ys)
    parts: list[str] = []
    runs: list[list[str]] = [[]]
    for x, y in zip(curve.xs, curve.ys, strict=True):
        if math.isfinite(y):
            runs[-1].append(f"{place(x):.1f},{y_at(y):.1f}")
        elif runs[-1]:
            runs.append([])
    parts += [f'<polyline class="line {style}" points="{" ".join(run)}"/>' for run in runs if len(run) > 1]
    if chart.time:
        return parts
    for x, y, half in zip(curve.xs, curve.ys, halves, strict=True):
        if not math.isfinite(y):
            continue
        at = place(x)
        if half:
            parts.append(
                f'<line class="line {style}" x1="{at:.1f}" x2="{at:.1f}" y1="{y_at(y + half):.1f}" '
                f'y2="{y_at(max(0.0, y - half)):.1f}"/>'
            )
        said = f"{curve.label}, {chart.x_label} {x:g}: {num(y, 4)} {chart.unit}"
        said += f" ±{num(half)}" if half else ""
        parts.append(
            f'<circle class="dot {style}" cx="{at:.1f}" cy="{y_at(y):.1f}" r="4"><title>{escape(said)}</title></circle>'
        )
    return parts


def _legend(curves: Sequence[Curve]) -> list[str]:
    parts: list[str] = []
    at, number = float(_LEFT), 0
    for curve in curves:
        number += not curve.faint
        style = "faint" if curve.faint else f"s{(number - 1) % 4 + 1}"
        parts.append(f'<line class="line {style}" x1="{at:.0f}" x2="{at + 18:.0f}" y1="14" y2="14"/>')
        parts.append(f'<text class="key" x="{at + 23:.0f}" y="18">{escape(curve.label)}</text>')
        at += 23 + 8.4 * len(curve.label) + 14
    return parts

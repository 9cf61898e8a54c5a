"""Levels of sweeps as people look at them: what a chart can show of them, their errors, and what not to trust."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokpit.domain.records import Operation
from tokpit.domain.run import Level, Run
from tokpit.ui import figures
from tokpit.ui.charts.model import Chart, Curve, nice_top, y_ticks

EARLIER_STYLES = ("dim", "faint")
"""Palette names of overlaid earlier runs, newest first; their number is how many are shown."""
_FIGURES = {
    "output_tps": "whole-run tok/s", "steady_tps": "steady tok/s", "total_tps": "total tok/s", "ttft_s": "TTFT",
    "answer_s": "time to answer", "e2e_s": "E2E", "tpot_s": "TPOT", "icl_s": "chunk gaps", "itl_s": "ITL",
    "avg_output": "output length", "mean_in_flight": "in flight",
}  # fmt: skip

Value = Callable[[Level], float | None]


@dataclass(frozen=True)
class Measure:
    """One thing to draw against concurrency: lines of (label, palette style, value of a level) in one unit."""

    id: str
    title: str
    unit: str
    lines: tuple[tuple[str, str, Value], ...]


def quantile(level: Level, dist: str, name: str) -> float | None:
    """A percentile of one of the load generator's distributions; None where the level has none."""
    found = level.result.get(dist)
    value = found.get(name) if isinstance(found, Mapping) else None
    return float(value) if isinstance(value, (int, float)) else None


def stream_rate(level: Level) -> float | None:
    """Output tokens a second of one stream: the median request's, else the level's share."""
    measured = quantile(level, "request_output_tps", "p50")
    if measured is not None:
        return measured
    rate = level.steady_tps if level.steady_tps is not None else level.output_tps
    return rate / level.concurrency if level.concurrency else None


def _p50(dist: str, fallback: str) -> Value:
    def value(level: Level) -> float | None:
        found = quantile(level, dist, "p50")
        return found if found is not None else getattr(level, fallback)

    return value


def _p99(dist: str) -> Value:
    return lambda level: quantile(level, dist, "p99")


MEASURES: tuple[Measure, ...] = (
    Measure(
        "throughput",
        "tok/s against concurrency",
        "tok/s",
        (
            ("whole run", "series-1", lambda level: level.output_tps),
            ("steady window", "series-2", lambda level: level.steady_tps),
        ),
    ),
    Measure(
        "stream", "tok/s of one stream against concurrency", "tok/s", (("median request", "series-1", stream_rate),)
    ),
    Measure(
        "ttft",
        "TTFT in s against concurrency",
        "s",
        (("p50", "series-1", _p50("ttft_s", "ttft_p50_s")), ("p99", "series-2", _p99("ttft_s"))),
    ),
    Measure(
        "e2e",
        "E2E in s against concurrency",
        "s",
        (("p50", "series-1", _p50("e2e_s", "e2e_p50_s")), ("p99", "series-2", _p99("e2e_s"))),
    ),
)


def points(levels: Iterable[Level], value: Value) -> tuple[list[float], list[float]]:
    """Concurrency and value of the levels that have one, by rising concurrency; of repeated ones the last."""
    found = {float(level.concurrency): v for level in levels if (v := value(level)) is not None}
    xs = sorted(found)
    return xs, [found[x] for x in xs]


def chart_of(
    measure: Measure, levels: Sequence[Level], earlier: Sequence[Run], width: int, height: int
) -> Chart | None:
    """The measure against concurrency, earlier runs dim behind it; None where there is nothing to draw."""
    curves = []
    for run, style in zip(earlier, EARLIER_STYLES, strict=False):
        curves.append(Curve(run.id, style, *points(run.levels, measure.lines[0][2]), dots=True))
    for label, style, value in measure.lines:
        curves.append(Curve(label, style, *points(levels, value), dots=True))
    curves = [curve for curve in curves if len(curve.xs)]
    if not curves:
        return None
    xs = sorted({x for curve in curves for x in curve.xs})
    floor = 10.0 if measure.unit == "tok/s" else 0.1
    top = nice_top(max(y for curve in curves for y in curve.ys) * 1.05, floor=floor)
    right = max(xs[-1], xs[0] + 1.0)
    ticks: list[tuple[float, str]] = []
    taken = -10.0
    for x in xs:
        place = x / right * width
        if place - taken >= 4:
            ticks.append((x, f"{x:g}"))
            taken = place
    labels = y_ticks(0.0, top, height, lambda v: figures.tick(v, measure.unit))
    return Chart(tuple(curves), (0.0, right), (0.0, top), tuple(ticks), labels)


def level_name(level: Level) -> str:
    """What a level is called: its concurrency or its offered rate."""
    return str(level.result.get("label") or f"C={level.concurrency}")


def error_lines(levels: Iterable[Level]) -> list[str]:
    """Failed requests by class, a line a level and class, with the first one's words."""
    lines = []
    for level in levels:
        outcomes = level.result.get("outcomes")
        for kind, item in outcomes.items() if isinstance(outcomes, Mapping) else ():
            if kind in {"ok", "cancelled"} or not isinstance(item, Mapping):
                continue
            example = f", first: {item['example']}" if item.get("example") else ""
            lines.append(f"{level_name(level)}: {item.get('count')} × {kind}{example}")
    return lines


def live_errors(operation: Operation | None) -> list[str]:
    """Failed requests of the level under way, a line a class, as they come."""
    if operation is None or operation.status != "running":
        return []
    name = f"C={operation.live.get('concurrency', 0):.0f}"
    return [f"{name}, now: {kind}, first: {first}" for kind, first in operation.errors.items()]


def failed_checks(level: Level) -> list[Mapping[str, Any]]:
    """The checks of a level that failed."""
    checks = level.result.get("checks") or ()
    return [check for check in checks if isinstance(check, Mapping) and check.get("ok") is False]


def check_lines(levels: Iterable[Level]) -> list[tuple[str, str]]:
    """Failed checks: the sentence with its levels, and the figures not to trust."""
    groups: dict[str, list[tuple[Level, Mapping[str, Any]]]] = {}
    for level in levels:
        for check in failed_checks(level):
            groups.setdefault(str(check.get("code")), []).append((level, check))
    lines = []
    for group in groups.values():
        where = ", ".join(dict.fromkeys(level_name(level) for level, _ in group))
        names = dict.fromkeys(str(name) for _, check in group for name in check.get("distrust") or ())
        trust = f"figures not to trust: {', '.join(_FIGURES.get(name, name) for name in names)}" if names else ""
        lines.append((f"{where}: {group[-1][1].get('sentence', '')}", trust))
    return lines


def findings_of(run: Run) -> list[Mapping[str, Any]]:
    """The findings frozen with a run, without those that its failed checks say already."""
    shown = {str(check.get("code")) for level in run.levels for check in failed_checks(level)}
    found = run.context.get("findings") or ()
    return [item for item in found if isinstance(item, Mapping) and item.get("code") not in shown]


def same_subject(run: Run, *, host: str, label: str, models: frozenset[str]) -> bool:
    """Whether a stored run is a sweep of this server, or of the same model on the same host."""
    measured = run.kind == "sweep" and bool(run.levels)
    return measured and (run.target == label or (run.host == host and run.model in models))

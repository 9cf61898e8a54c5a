"""An experiment as people look at it: the form, the leaderboard, points of the Pareto chart. Plain functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokpit.domain.tuning import CurvePoint, Trial, Tuning
from tokpit.errors import UsageError
from tokpit.tune.experiment import Experiment, Limits, Objective, checked
from tokpit.tune.space import key_of, name_of, value_of
from tokpit.ui import figures
from tokpit.ui.charts.model import Chart, Curve, nice_top, y_ticks
from tokpit.ui.forms import whole
from tokpit.ui.text import Row, Span, fit, safe

VARIED: tuple[tuple[str, str, str], ...] = (
    ("mtp_steps", "MTP steps", "values to try: 0,1,3 or 0..4; empty: as it is"),
    ("max_running", "max running", "8,16,32 or 8..48+8"),
    ("state_slots", "state slots", "24..96x2"),
    ("hicache_gb", "hicache GB", "0,50,150"),
    ("tp", "tensor parallel", "1,2"),
    ("more", "other settings", "name=values or --flag=values; several with ;"),
)
TUNE_FIELDS: tuple[tuple[str, str, str, str], ...] = (
    *((name, label, "", hint) for name, label, hint in VARIED),
    ("levels", "concurrency levels", "1,8,32", "each candidate is measured at all of them"),
    ("max_tokens", "output tokens", "512", "per request"),
    ("objective", "objective", "throughput", "throughput, single, goodput, pareto"),
    ("slo", "SLO", "", "ttft=2s,tpot=60ms; levels that miss it do not count"),
    ("minutes", "minutes", "", "longest time, the way back included"),
    ("restarts", "restarts", "", "most restarts, the way back included"),
)
SIGNS = {
    "starting": ("◐", "warn"), "measuring": ("◐", "warn"), "measured": ("●", "good"), "cut": ("◌", "dim"),
    "failed": ("✗", "bad"),
}  # fmt: skip
PHASES = {
    "planning": "planning", "first": "measuring the server as it runs", "search": "searching",
    "confirm": "finalist again", "last": "first server again", "restoring": "putting the right server back",
    "done": "done", "stopped": "stopped", "failed": "failed",
}  # fmt: skip
ENDED = frozenset({"done", "stopped", "failed"})


def experiment_of(target: str, fields: Mapping[str, str]) -> Experiment:
    """The experiment that the form stands for. Raises UsageError."""
    vary: dict[str, str] = {
        name: text for name, _, _ in VARIED if name != "more" and (text := fields.get(name, "").strip())
    }
    for part in filter(None, (word.strip() for word in fields.get("more", "").split(";"))):
        name, equals, values = part.partition("=")
        if not equals or not values.strip():
            raise UsageError(f"other settings: {part!r} is not name=values")
        vary[name.strip()] = values
    if not vary:
        raise UsageError("give values for at least one setting")
    max_tokens = whole("output tokens", fields.get("max_tokens", ""))
    workload: dict[str, object] = {"levels": fields.get("levels", "").strip() or "1,8,32"}
    if max_tokens is not None:
        workload["max_tokens"] = max_tokens
    minutes = fields.get("minutes", "").strip()
    try:
        limit = float(minutes) if minutes else None
    except ValueError:
        raise UsageError(f"minutes: {minutes!r} is no number") from None
    return checked(
        Experiment(
            target=target,
            vary=dict(vary),
            workload=workload,
            objective=Objective(
                kind=fields.get("objective", "").strip() or "throughput", slo=fields.get("slo", "").strip()
            ),
            limits=Limits(minutes=limit, restarts=whole("restarts", fields.get("restarts", ""), least=2)),
        )
    )


@dataclass(frozen=True)
class Line:
    """One row of the leaderboard: a candidate with its best trial."""

    trial: Trial
    again: int
    """How often it was measured."""
    first: bool
    ahead: bool
    front: bool


def lines_of(tuning: Tuning) -> list[Line]:
    """Candidates, the highest value first, then what is under way, then what failed."""
    groups: dict[object, list[Trial]] = {}
    for trial in tuning.trials:
        groups.setdefault(key_of(trial.choice), []).append(trial)
    lines = []
    for group in groups.values():
        whole_ones = [t for t in group if t.status == "measured"]
        live = group[-1] if group[-1].status not in {"measured", "cut", "failed"} else None
        shown = live if live is not None and not whole_ones else _pooled(whole_ones) if whole_ones else group[-1]
        numbers = {t.number for t in group}
        lines.append(
            Line(
                trial=shown,
                again=len(whole_ones),
                first=any(t.role in {"first", "last"} for t in group),
                ahead=tuning.winner in numbers,
                front=bool(numbers & set(tuning.front)),
            )
        )
    order = {"measured": 0, "cut": 0, "measuring": 1, "starting": 2, "failed": 3}
    return sorted(lines, key=lambda line: (order.get(line.trial.status, 2), -(line.trial.value or 0.0)))


def _pooled(trials: Sequence[Trial]) -> Trial:
    """The first of several with the mean of their values."""
    import msgspec

    values = [t.value for t in trials if t.value is not None]
    if len(values) < 2:
        return trials[0]
    return msgspec.structs.replace(trials[0], value=math.fsum(values) / len(values))


def board_rows(tuning: Tuning, width: int) -> list[Row]:
    """The leaderboard with its header."""
    names = list(tuning.axes)
    heads = [name_of(name).removeprefix("--") for name in names]
    lines = lines_of(tuning)
    widths = [
        min(14, max(len(head), *(len(value_of(line.trial.choice.get(name))) for line in lines), 4))
        for name, head in zip(names, heads, strict=True)
    ] if lines else [len(head) for head in heads]  # fmt: skip
    unit = {"throughput": "tok/s", "single": "tok/s", "goodput": "req/s", "pareto": "x first"}.get(tuning.objective, "")
    head = "     " + " ".join(fit(safe(h), w, right=True) for h, w in zip(heads, widths, strict=True))
    rows: list[Row] = [[(f"{head}  {unit:>7} {'±':>5} {'stream':>6} {'C':>3} ", "dim")]]
    for line in lines:
        rows.append(_board_row(line, names, widths))
    return rows


def _board_row(line: Line, names: Sequence[str], widths: Sequence[int]) -> Row:
    trial = line.trial
    sign, style = SIGNS.get(trial.status, ("?", "dim"))
    text = "bold" if line.ahead else "dim" if trial.status in {"cut", "failed"} else "fg"
    row: list[Span] = [(f"{sign} ", style), (f"{trial.number:>2} ", "dim")]
    cells = " ".join(
        fit(safe(value_of(trial.choice.get(n))), w, right=True) for n, w in zip(names, widths, strict=True)
    )
    best = trial.best
    row.append((cells, text))
    if trial.status == "failed":
        row.append((f"  {safe(trial.code)}: {safe(trial.reason)}", "bad"))
        return row
    row += [
        (f"  {figures.fixed(trial.value) if (trial.value or 0) >= 10 else figures.fixed(trial.value, 3):>7}", text),
        (f" {figures.fixed(trial.half, 1 if (trial.half or 0) >= 1 else 2):>5}", "dim"),
        (f" {figures.fixed(stream_of(best) if best else None):>6}", text),
        (f" {best.concurrency if best else figures.NA:>3} ", "dim"),
    ]
    if trial.status in {"starting", "measuring"}:
        row.append((trial.status, "warn"))
    if line.ahead:
        row.append(("◂ ahead ", "accent"))
    if line.first:
        row.append(("◂ first ", "good"))
    if trial.status == "cut":
        row.append(("cut", "dim"))
    if line.again > 1:
        row.append((f"measured {line.again}×", "dim"))
    return row


def stream_of(point: CurvePoint) -> float:
    """Speed of one stream at a level: 1 / TPOT, else its share of the rate."""
    return point.stream_tps if point.stream_tps is not None else point.tps / max(1, point.concurrency)


@dataclass(frozen=True)
class Place:
    """A candidate on the Pareto chart: speed of one stream to the right, throughput upwards, at its best level."""

    x: float
    y: float
    sign: str
    style: str
    label: str


def places_of(tuning: Tuning) -> list[Place]:
    """Candidates with their signs; what is drawn last (first server, ahead) lies on top."""
    found = []
    for line in lines_of(tuning):
        best = line.trial.best
        if best is None or best.tps <= 0:
            continue
        if line.ahead:
            sign, style, rank = "★", "accent", 3
        elif line.first:
            sign, style, rank = "▲", "good", 2
        elif line.front:
            sign, style, rank = "◆", "series-1", 1
        else:
            sign, style, rank = "●" if line.trial.status == "measured" else "○", "dim", 0
        found.append((rank, Place(stream_of(best), best.tps, sign, style, f"#{line.trial.number}")))
    return [place for _, place in sorted(found, key=lambda item: item[0])]


def pareto_rows(places: Sequence[Place], width: int, height: int) -> list[Row]:
    """The chart: throughput (tok/s) against the speed of one stream, both from 0."""
    plot_h, gutter = height - 2, 7
    plot_w = width - gutter - 1
    if plot_h < 3 or plot_w < 16 or not places:
        return []
    top, right = nice_top(max(p.y for p in places) * 1.05), nice_top(max(p.x for p in places) * 1.1)
    cells: dict[tuple[int, int], tuple[str, str]] = {}
    spots = [
        (round((1 - place.y / top) * (plot_h - 1)), round(place.x / right * (plot_w - 1)), place) for place in places
    ]
    for row, column, place in spots:
        cells[row, column] = (place.sign, place.style)
    for row, column, place in reversed(spots):  # what lies on top is named first
        sides = (range(column + 1, column + 1 + len(place.label)), range(column - len(place.label), column))
        free = next((span for span in sides if _free(cells, row, span, plot_w)), None)
        for x, char in zip(free or (), place.label, strict=False):
            cells[row, x] = (char, "dim")
    # The middle stands where a point of half the top value would.
    ticks = {0: top, round((plot_h - 1) / 2): top / 2, plot_h - 1: 0.0}
    rows: list[Row] = []
    for y in range(plot_h):
        label = figures.tick(float(f"{ticks[y]:.3g}"), "") if y in ticks else ""
        spans: list[Span] = [(f"{label:>{gutter - 1}} ", "axis"), ("┤" if y in ticks else "│", "axis")]
        for x in range(plot_w):
            char, style = cells.get((y, x), (" ", "fg"))
            spans.append((char, style))
        rows.append(spans)
    rows.append([(" " * gutter, "fg"), ("└" + "─" * plot_w, "axis")])
    middle, end, unit = figures.tick(right / 2, ""), figures.tick(right, ""), "tok/s of one stream"
    before = max(1, plot_w // 2 - 1 - len(middle) // 2)
    between = f"{unit:^{before}}" if before > len(unit) + 1 else " " * before
    after = max(1, plot_w - 1 - before - len(middle) - len(end))
    rows.append([(f"{'0':>{gutter + 2}}", "axis"), (between, "axis"), (middle, "axis"), (" " * after, "fg"),
                 (end, "axis")])  # fmt: skip
    return rows


def _free(cells: Mapping[tuple[int, int], object], row: int, span: range, width: int) -> bool:
    return span.start >= 0 and span.stop <= width and all((row, x) not in cells for x in span)


def curves_of(tuning: Tuning, width: int, height: int) -> Chart | None:
    """Throughput against concurrency: the best candidates, the first server, and what is under way."""
    shown = [line for line in lines_of(tuning) if len(line.trial.points) > 1]
    if not shown:
        return None
    firsts = [line for line in shown if line.first]
    picked = [line for line in shown if not line.first][:4]
    styles = ("series-1", "series-2", "series-4", "series-5")
    curves = [_curve(line, style) for line, style in zip(picked, styles, strict=False)]
    curves += [_curve(line, "good") for line in firsts[:1]]
    top = nice_top(max(max(curve.ys) for curve in curves) * 1.05)
    levels = sorted({p.concurrency for line in shown for p in line.trial.points})
    high = float(max(levels))
    return Chart(
        curves=tuple(curves),
        x_range=(0.0, high * 1.02),
        y_range=(0.0, top),
        x_ticks=tuple((float(level), str(level)) for level in levels),
        y_ticks=y_ticks(0.0, top, height, lambda value: figures.tick(value, "")),
    )


def _curve(line: Line, style: str) -> Curve:
    points = [p for p in line.trial.points if not p.void]
    return Curve(
        f"#{line.trial.number}", style, [float(p.concurrency) for p in points], [p.tps for p in points], dots=True
    )

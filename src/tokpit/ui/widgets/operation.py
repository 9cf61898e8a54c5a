"""What tokpit is doing: the steps of a launch, and the levels of a sweep, as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokpit.domain.records import Operation
from tokpit.domain.run import Level
from tokpit.ui import figures
from tokpit.ui.charts.braille import BrailleCanvas
from tokpit.ui.charts.model import Chart, ChartCanvas, Curve, nice_top, y_ticks
from tokpit.ui.charts.plotext_canvas import PlotextCanvas
from tokpit.ui.text import Row, Span, crop, fit, safe, two_sided, wrap
from tokpit.ui.view import View
from tokpit.ui.widgets.panel import Panel

Find = Callable[[], Operation | None]
ENDS = {"done": ("●", "good-bold"), "failed": ("✗", "bad-bold"), "stopped": ("■", "warn-bold")}


class StepsPanel(Panel):
    """A launch: each milestone with its time, then READY, or FAILED with cause and hint."""

    def __init__(self, view: View, find: Find) -> None:
        super().__init__(id="steps")
        self.view = view
        self.find = find

    def topics(self) -> Sequence[str]:
        """Operations."""
        return ("ops",)

    def heading(self, width: int) -> tuple[Row, Row]:
        """Title and the time so far."""
        operation = self.find()
        if operation is None:
            return [("launch", "title")], []
        return [(safe(operation.title), "title")], [(figures.duration(self._elapsed(operation)), "fg")]

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Command lines, steps, verdict; the newest steps stay in view."""
        operation = self.find()
        if operation is None:
            return [[("asking …", "dim")]]
        head: list[Row] = []
        for command in operation.commands[:2]:
            head += [
                [("$ " if n == 0 else "  ", "dim"), (line, "dim")]
                for n, line in enumerate(wrap(safe(command), width - 2))
            ]
        head.append([])
        tail = self._verdict(operation, width)
        steps = self._steps(operation, width)
        room = max(1, height - len(head) - len(tail))
        if room < 4:
            head, room = [], max(1, height - len(tail))
        return [*head, *steps[-room:], *tail]

    def _elapsed(self, operation: Operation) -> float:
        if operation.status != "running":
            return operation.t - operation.started_t
        return max(operation.t, self.view.now()) - operation.started_t

    def _steps(self, operation: Operation, width: int) -> list[Row]:
        rows: list[Row] = []
        before = 0.0
        for index, step in enumerate(operation.steps):
            last = index == len(operation.steps) - 1
            glyph, style = ("◐", "warn") if last and operation.status == "running" else ("●", "good")
            if last and operation.status == "failed":
                glyph, style = "✗", "bad"
            took = step.elapsed_s - before
            before = step.elapsed_s
            left: list[Span] = [(f"{glyph} ", style), (figures.duration(step.elapsed_s).rjust(7), "fg"), ("  ", "fg")]
            left += [(safe(step.label), "fg"), (f"  {safe(step.detail)}" if step.detail else "", "dim")]
            rows.append(two_sided(left, [(f"+{took:.1f}s", "dim")], width))
        if operation.status == "running" and not rows:
            rows.append([("◐ ", "warn"), ("waiting for the first sign of life", "dim")])
        return rows

    def _verdict(self, operation: Operation, width: int) -> list[Row]:
        stuck = operation.result.get("stuck")
        if operation.status == "running":
            return [[("! " if n == 0 else "  ", "warn"), (line, "warn")]
                    for n, line in enumerate(wrap(safe(stuck), width - 2))] if stuck else []  # fmt: skip
        glyph, style = ENDS.get(operation.status, ("?", "dim"))
        took = figures.duration(operation.t - operation.started_t)
        if operation.status == "done":
            rows: list[Row] = [[], [(f"{glyph} READY", style), (f"  after {took}", "fg")]]
        else:
            rows = [[], [(f"{glyph} {operation.status.upper()}", style), (f"  after {took}", "fg")]]
        rows += [[("  ", "fg"), (line, "bad")] for line in wrap(safe(operation.error), width - 2) if operation.error]
        rows += [[("→ " if n == 0 else "  ", "accent"), (line, "fg")]
                 for n, line in enumerate(wrap(safe(operation.hint), width - 2)) if operation.hint]  # fmt: skip
        shown = {k: v for k, v in operation.result.items() if v and k not in {"phase", "stuck", "server", "ready_s"}}
        return rows + [[("  " + fit(safe(k), 14), "dim"), (safe(v), "fg")] for k, v in shown.items()]


COLUMNS: tuple[tuple[str, int], ...] = (
    ("C", 4), ("ok", 5), ("err", 4), ("tok/s", 8), ("steady", 8), ("avg out", 8), ("elapsed", 8),
    ("TTFT p50", 9), ("E2E p50", 9),
)  # fmt: skip


class LevelsPanel(Panel):
    """A sweep: one row a level, the one under way with its progress."""

    def __init__(self, view: View, find: Find) -> None:
        super().__init__(id="levels")
        self.view = view
        self.find = find

    def topics(self) -> Sequence[str]:
        """Operations."""
        return ("ops",)

    def heading(self, width: int) -> tuple[Row, Row]:
        """Title and state."""
        operation = self.find()
        if operation is None:
            return [("levels", "title")], []
        glyph, style = ENDS.get(operation.status, ("◐", "warn-bold"))
        return [(safe(operation.title), "title")], [(f"{glyph} {operation.status}", style)]

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Header, levels, the one under way, and at the end what was kept."""
        operation = self.find()
        rows: list[Row] = [[(" ".join(name.rjust(w) for name, w in COLUMNS), "dim")]]
        if operation is None:
            return [*rows, [("not started: ", "dim"), ("^s", "key"), (" starts the sweep", "dim")]]
        best = max((level.output_tps for level in operation.levels), default=0.0)
        rows += [[(level_text(level), "bold" if level.output_tps == best else "fg"),
                  (" ◂ top" if level.output_tps == best and len(operation.levels) > 1 else "", "accent")]
                 for level in operation.levels]  # fmt: skip
        if operation.status == "running" and operation.live:
            rows += self._live(operation, width)
        rows += self._end(operation, width)
        return rows if len(rows) <= height else [rows[0], *rows[len(rows) - height + 1 :]]

    def _live(self, operation: Operation, width: int) -> list[Row]:
        live = operation.live
        done, total = live.get("done", 0.0), live.get("total", 0.0)
        cells = [
            (figures.number(live.get("concurrency"), 0), COLUMNS[0][1]),
            (figures.number(live.get("ok"), 0), COLUMNS[1][1]),
            (figures.number(live.get("err"), 0), COLUMNS[2][1]),
            (figures.fixed(live.get("output_tps")), COLUMNS[3][1]),
        ]
        text = " ".join(cell.rjust(w) for cell, w in cells)
        filled, rest = figures.bar(done / total if total else None, 14)
        eta = live.get("eta_s")
        left: list[Span] = [(text, "accent"), ("  ", "fg"), (filled, "accent"), (rest, "track")]
        left.append((f" {done:.0f}/{total:.0f}" if total else "", "fg"))
        left.append((f"  {figures.duration(live.get('elapsed_s'))}", "dim"))
        if eta is not None:
            left.append((f"  {figures.duration(eta)} left", "dim"))
        return [left]

    def _end(self, operation: Operation, width: int) -> list[Row]:
        if operation.status == "running":
            return []
        rows: list[Row] = [[]]
        kept = f"{len(operation.levels)} level{'s' if len(operation.levels) != 1 else ''} kept"
        glyph, style = ENDS.get(operation.status, ("?", "dim"))
        where = operation.result.get("path") or operation.result.get("run") or operation.result.get("run_id") or ""
        rows.append(
            [
                (f"{glyph} {operation.status}", style),
                (f"  {kept}", "fg"),
                (f" as {safe(where)}" if where else "", "dim"),
            ]
        )
        if operation.error and operation.status != "stopped":
            rows += [[("  ", "fg"), (line, "bad")] for line in wrap(safe(operation.error), width - 2)]
        rows += [[("→ ", "accent"), (line, "fg")] for line in wrap(safe(operation.hint), width - 2) if operation.hint]
        rest = {k: v for k, v in operation.result.items() if k not in {"path", "run", "run_id"}}
        rows += [[("  " + fit(safe(k), 14), "dim"), (safe(v), "fg")] for k, v in rest.items()]
        return rows


def level_text(level: Level) -> str:
    """A finished level as columns."""
    values = (
        str(level.concurrency),
        str(level.ok),
        str(level.err),
        figures.fixed(level.output_tps),
        figures.fixed(level.steady_tps),
        figures.fixed(level.avg_output, 0),
        f"{level.elapsed_s:.1f}s",
        figures.seconds(level.ttft_p50_s),
        figures.seconds(level.e2e_p50_s),
    )
    return " ".join(crop(value, w).rjust(w) for value, (_, w) in zip(values, COLUMNS, strict=True))


class LevelsChart(Panel):
    """Throughput against concurrency: whole run, and the steady window beside it."""

    def __init__(self, view: View, levels: Callable[[], Sequence[Level]], *, engine: str = "plotext") -> None:
        super().__init__(id="levels-chart")
        self.view = view
        self.levels = levels
        self._canvas: ChartCanvas = PlotextCanvas() if engine != "braille" else BrailleCanvas()
        self.min_interval_s = 0.5

    def topics(self) -> Sequence[str]:
        """Operations."""
        return ("ops",)

    def heading(self, width: int) -> tuple[Row, Row]:
        """What the two lines are."""
        right: list[Span] = [("whole run", "series-1")]
        if any(level.steady_tps is not None for level in self.levels()):
            right += [("  steady window", "series-2")]
        return [("tok/s against concurrency", "title")], right

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The chart, or what is missing for one."""
        levels = sorted(self.levels(), key=lambda level: level.concurrency)
        if not levels:
            return [[("the first level is not finished yet", "dim")]]
        return self._canvas.draw(levels_chart(levels, width, height), width, height)


def levels_chart(levels: Sequence[Level], width: int, height: int) -> Chart:
    """Levels, rising in concurrency, as a chart."""
    xs = [float(level.concurrency) for level in levels]
    curves = [Curve("whole run", "series-1", xs, [level.output_tps for level in levels], dots=True)]
    steady = [(float(lv.concurrency), lv.steady_tps) for lv in levels if lv.steady_tps is not None]
    if steady:
        curves.append(Curve("steady", "series-2", [x for x, _ in steady], [y for _, y in steady], dots=True))
    top = nice_top(max(y for curve in curves for y in curve.ys) * 1.05, floor=10.0)
    right = max(xs[-1], xs[0] + 1.0)
    ticks: list[tuple[float, str]] = []
    taken = -10.0
    for x in xs:
        place = x / right * width
        if place - taken >= 4:
            ticks.append((x, f"{x:g}"))
            taken = place
    return Chart(
        tuple(curves),
        (0.0, right),
        (0.0, top),
        tuple(ticks),
        y_ticks(0.0, top, height, lambda v: figures.tick(v, "tok/s")),
    )

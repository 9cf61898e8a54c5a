"""A sweep's figures: the table as it grows, the chart with earlier runs behind it, and what is wrong or explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokpit.domain.records import Operation
from tokpit.domain.run import Level, Run
from tokpit.ui import figures
from tokpit.ui.actions import keycap
from tokpit.ui.charts.braille import BrailleCanvas
from tokpit.ui.charts.model import ChartCanvas
from tokpit.ui.charts.plotext_canvas import PlotextCanvas
from tokpit.ui.levels import (
    EARLIER_STYLES,
    MEASURES,
    chart_of,
    check_lines,
    error_lines,
    failed_checks,
    live_errors,
    points,
)
from tokpit.ui.text import Row, Span, fit, safe, wrap
from tokpit.ui.view import View
from tokpit.ui.widgets.level_table import COLUMNS, columns_for, head_text, level_text
from tokpit.ui.widgets.operation import ENDS, Find, OperationPanel
from tokpit.ui.widgets.panel import Panel
from tokpit.ui.widgets.scrolled import ScrolledPanel


class LevelsPanel(OperationPanel):
    """A sweep: one row a level, the one under way with its progress."""

    def __init__(self, view: View, find: Find) -> None:
        super().__init__(view, find, "levels")

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
        levels = operation.levels if operation is not None else ()
        columns = columns_for(width, levels)
        rows: list[Row] = [[(head_text(columns), "dim")]]
        if operation is None:
            return [
                *rows,
                [
                    ("not started: ", "dim"),
                    keycap(self.app, "sweep.start_sweep"),
                    (" starts the sweep", "dim"),
                ],
            ]
        best = max((level.output_tps for level in operation.levels), default=0.0)
        for level in operation.levels:
            top = level.output_tps == best and len(operation.levels) > 1
            row: list[Span] = [(level_text(level, columns), "bold" if level.output_tps == best else "fg")]
            if failed_checks(level):
                row.append((" ! not to trust", "warn"))
            elif top:
                row.append((" ◂ top", "accent"))
            rows.append(row)
        if operation.status == "running":
            rows += self._live(operation) if operation.live else self._before(operation)
        rows += self._end(operation, width)
        return rows if len(rows) <= height else [rows[0], *rows[len(rows) - height + 1 :]]

    def _before(self, operation: Operation) -> list[Row]:
        said = operation.steps[-1].label if operation.steps else "starting"
        return [[("◐ ", "warn"), (safe(said), "dim")]]

    def _live(self, operation: Operation) -> list[Row]:
        live = operation.live
        done, total = live.get("done", 0.0), live.get("total", 0.0)
        cells = [
            (figures.number(live.get("concurrency"), 0), "accent"),
            (figures.number(live.get("ok"), 0), "accent"),
            (figures.number(live.get("err"), 0), "bad" if live.get("err") else "accent"),
            (figures.fixed(live.get("output_tps")), "accent"),
        ]
        left: list[Span] = []
        for (cell, style), column in zip(cells, COLUMNS, strict=False):
            left.append(((" " if left else "") + cell.rjust(column.width), style))
        filled, rest = figures.bar(done / total if total else None, 14)
        eta = live.get("eta_s")
        left += [("  ", "fg"), (filled, "accent"), (rest, "track"), (f" {done:.0f}/{total:.0f}" if total else "", "fg")]
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


class LevelsChart(Panel):
    """One measure against concurrency (`measure` is its place in MEASURES), earlier runs dim behind it."""

    def __init__(
        self,
        view: View,
        levels: Callable[[], Sequence[Level]],
        *,
        earlier: Callable[[], Sequence[Run]] = lambda: (),
        engine: str = "plotext",
    ) -> None:
        super().__init__(id="levels-chart")
        self.view = view
        self.levels = levels
        self.earlier = earlier
        self.measure = 0
        self._canvas: ChartCanvas = PlotextCanvas() if engine != "braille" else BrailleCanvas()
        self.min_interval_s = 0.5

    def topics(self) -> Sequence[str]:
        """Operations."""
        return ("ops",)

    def next_measure(self) -> None:
        """Throughput, speed of one stream, TTFT, E2E."""
        self.measure = (self.measure + 1) % len(MEASURES)
        self.redraw()

    def heading(self, width: int) -> tuple[Row, Row]:
        """What is drawn, and what the lines are."""
        measure = MEASURES[self.measure]
        right: list[Span] = []
        for label, style, value in measure.lines:
            if points(self.levels(), value)[0]:
                right += [("  " if right else "", "fg"), (label, style)]
        for run, style in zip(self.earlier(), EARLIER_STYLES, strict=False):
            right += [("  " if right else "", "fg"), (safe(run.id), style)]
        return [(measure.title, "title")], right

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The chart, or what is missing for one."""
        levels = self.levels()
        chart = chart_of(MEASURES[self.measure], levels, self.earlier(), width, height)
        if chart is None:
            said = "no level measured this" if levels else "it begins with the first finished level"
            return [[(said, "dim")]]
        return self._canvas.draw(chart, width, height)


class NotesPanel(ScrolledPanel):
    """Errors by class as they come, failed checks, and what the rules say of the curve once it is whole."""

    ages = False

    def __init__(self, view: View, find: Find) -> None:
        super().__init__(id="notes")
        self.view = view
        self.find = find
        self.findings: Sequence[Mapping[str, Any]] = ()

    def topics(self) -> Sequence[str]:
        """Operations."""
        return ("ops",)

    def heading(self, width: int) -> tuple[Row, Row]:
        """How to see the rest."""
        return [("what to know", "title")], self.place()

    def all_rows(self, width: int) -> list[Row]:
        """Everything, wrapped."""
        rows: list[Row] = []
        operation = self.find()
        levels = operation.levels if operation is not None else ()
        for line in [*live_errors(operation), *error_lines(levels)]:
            rows += hanging("✗ ", "bad", safe(line), "bad", width)
        for sentence, trust in check_lines(levels):
            rows += hanging("! ", "warn", safe(sentence), "warn", width)
            if trust:
                rows += hanging("  ", "fg", safe(trust), "dim", width)
        for item in self.findings:
            rows += finding_rows(item, width)
        return rows


def hanging(first: str, first_style: str, text: str, style: str, width: int) -> list[Row]:
    """`text` wrapped behind a sign."""
    lines = wrap(text, max(8, width - len(first)))
    return [[(first if n == 0 else " " * len(first), first_style), (line, style)] for n, line in enumerate(lines)]


def finding_rows(item: Mapping[str, Any], width: int) -> list[Row]:
    """A finding: claim, arithmetic, what to do."""
    style = {"error": "bad", "warning": "warn"}.get(str(item.get("severity")), "accent")
    rows = hanging("● ", style, safe(item.get("claim", "")), "fg", width)
    if item.get("arithmetic"):
        for part in str(item["arithmetic"]).split("\n"):
            rows += hanging("  ", "fg", safe(part), "dim", width)
    if item.get("next_action"):
        rows += hanging("  → ", "accent", safe(item["next_action"]), "fg", width)
    return rows

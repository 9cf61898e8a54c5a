"""History: the stored runs, and the detail of the one under the cursor."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.widgets import DataTable, Static

from tokpit.domain.run import Level, Run
from tokpit.errors import TokpitError
from tokpit.ui import figures
from tokpit.ui.actions import bindings_for, key_of
from tokpit.ui.screens.base import PumpedScreen, open_history, tell
from tokpit.ui.text import Row, Span, content, crop, fit, safe
from tokpit.ui.view import View, model_name
from tokpit.ui.widgets.compare import ComparePanel
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.level_table import columns_for, head_text, level_text
from tokpit.ui.widgets.levels import LevelsChart
from tokpit.ui.widgets.runs_table import RunsTable, peak
from tokpit.ui.widgets.scrolled import ScrolledPanel

LIMIT = 200
CHART_ROWS = 8
"""Fewer say nothing."""
WIDE = 170
"""Columns from which table and run stand side by side."""
ORDERS = ("started", "peak tok/s", "target", "model", "kind", "status")
"""Columns by which runs can be ordered; times and rates with the largest first."""
_STATUS = {"done": "good", "failed": "bad", "stopped": "warn", "running": "accent"}


class RunPanel(ScrolledPanel):
    """One run: its levels and its context."""

    ages = False

    def __init__(self, run: Run | None = None) -> None:
        super().__init__(id="run")
        self.run = run

    def heading(self, width: int) -> tuple[Row, Row]:
        """Id and status."""
        if self.run is None:
            return [("run", "title")], []
        status: Span = (self.run.status, _STATUS.get(self.run.status, "dim"))
        place = self.place()
        return [(safe(self.run.id), "title")], [*place, ("  " if place else "", "fg"), status]

    def all_rows(self, width: int) -> Sequence[Row]:
        """Levels first, then what was frozen with them."""
        run = self.run
        if run is None:
            return []
        took = figures.duration(run.ended_at - run.started_at) if run.ended_at is not None else figures.NA
        columns = columns_for(width, run.levels)
        rows: list[Row] = [
            [
                (safe(run.target), "bold"),
                (f"  {model_name(run.model) if run.model else ''}", "fg"),
                (f"  took {took}", "dim"),
            ],
            [(head_text(columns), "dim")],
        ]
        rows += [[(level_text(level, columns), "fg")] for level in run.levels]
        if run.note:
            rows.append([("note ", "dim"), (safe(run.note), "fg")])
        for key, value in run.context.items():
            if isinstance(value, (str, int, float)) and value != "":
                said = f"{value:.4g}" if isinstance(value, float) else safe(value)
                rows.append([(fit(safe(key), 16), "dim"), (crop(said, max(4, width - 16)), "fg")])
        return rows


def _place(run: Run, order: str) -> tuple[object, ...]:
    words = {"target": run.target, "model": run.model and model_name(run.model), "kind": run.kind, "status": run.status}
    first = -(peak(run) or 0.0) if order == "peak tok/s" else words.get(order) or ""
    return (first, -run.started_at)


class HistoryScreen(PumpedScreen):
    """See the module docstring."""

    BINDINGS = bindings_for("history")
    CSS = """
    HistoryScreen .heading { text-style: bold; color: $primary; padding: 0 1; height: 1; }
    HistoryScreen DataTable { height: auto; max-height: 40%; min-height: 3; }
    HistoryScreen #none { height: auto; padding: 1 2; color: $text-muted; display: none; }
    HistoryScreen LevelsChart { height: 1fr; min-height: 5; }
    HistoryScreen RunPanel { height: 1fr; }
    HistoryScreen.empty DataTable, HistoryScreen.empty Panel { display: none; }
    HistoryScreen.empty #none, HistoryScreen.empty Footer { display: block; }
    HistoryScreen ComparePanel { display: none; }
    HistoryScreen.comparing ComparePanel { display: block; height: 2fr; }
    HistoryScreen.comparing DataTable { max-height: 25%; }
    HistoryScreen.comparing RunPanel { display: none; }
    HistoryScreen.wide { layout: grid; grid-size: 2; grid-columns: 98 1fr; grid-rows: 1 2fr 3fr; }
    HistoryScreen.wide .heading, HistoryScreen.wide LevelsChart { column-span: 2; }
    HistoryScreen.wide DataTable { height: 1fr; max-height: 100%; }
    """

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.runs: dict[str, Run] = {}
        self.picked: list[str] = []
        """Ids of at most two runs to compare, in the order in which they were picked."""
        self.order = ORDERS[0]
        self._levels: tuple[Level, ...] = ()
        self._other: tuple[Run, ...] = ()

    def compose(self) -> ComposeResult:
        """Table, detail, chart."""
        yield Static(content("Runs"), classes="heading", id="title")
        yield Static(
            content(
                f"no run is stored yet: press {key_of(self.app, 'cockpit.sweep')} on a server to sweep it; "
                "results of other tools come in by tokpit import"
            ),
            id="none",
        )
        yield RunsTable()
        yield RunPanel()
        yield ComparePanel()
        yield LevelsChart(self.view, lambda: self._levels, earlier=lambda: self._other)
        yield Footer("history")

    def on_mount(self) -> None:
        """Read them."""
        super().on_mount()
        self.query_one(RunsTable).focus()
        self.action_reload()

    def on_resize(self) -> None:
        """The run keeps what it needs, the chart takes the rest."""
        self._fold()

    def _fold(self) -> None:
        wide = self.size.width >= WIDE and bool(self.runs)
        self.set_class(wide, "wide")
        panel, chart = self.query_one(RunPanel), self.query_one(LevelsChart)
        room = self.size.height - 2 - min(len(self.runs) + 1, self.size.height * 2 // 5)
        wanted = len(panel.all_rows(max(20, self.size.width - 4))) + 2
        self.set_class(room - CHART_ROWS < min(wanted, 8) and self.pair() is None, "low")
        panel.styles.height = "1fr" if wide or self.has_class("low") else min(wanted, room - CHART_ROWS)
        chart.display = bool(self.runs) and (wide or not self.has_class("low"))
        if self.runs and not self.query_one(RunsTable).fits(self.size.width):
            self.fill(list(self.runs.values()))

    def action_reload(self) -> None:
        """Read the stored runs again."""
        self.run_worker(self._load(), exit_on_error=False)

    async def _load(self) -> None:
        try:
            store = await open_history(self.view.session)
            found: Sequence[Run] = await store.runs(limit=LIMIT)
        except TokpitError as error:
            tell(self.console, error.message, hint=error.hint, bad=True)
            return
        self.fill(found)

    def fill(self, found: Sequence[Run]) -> None:
        """Show these runs."""
        self.runs = {run.id: run for run in found}
        self.picked = [run_id for run_id in self.picked if run_id in self.runs]
        self.set_class(not found, "empty")
        table = self.query_one(RunsTable)
        here = self.query_one(RunPanel).run
        found = sorted(found, key=lambda run: _place(run, self.order))
        table.show(found, self.picked, self.size.width)
        if found:
            at = next((n for n, run in enumerate(found) if here is not None and run.id == here.id), 0)
            table.move_cursor(row=at)
            self._show(found[at])

    def action_sort(self) -> None:
        """By the next column."""
        self.order_by(ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)])

    def order_by(self, column: str) -> None:
        """Another order; the cursor stays on its run."""
        self.order = column
        said = "Runs" + (f"  by {column}" if column != ORDERS[0] else "")
        self.query_one("#title", Static).update(content(said))
        self.fill(list(self.runs.values()))

    @on(DataTable.HeaderSelected)
    def _header_clicked(self, event: DataTable.HeaderSelected) -> None:
        if (column := str(event.label)) in ORDERS:
            self.order_by(column)

    @on(DataTable.RowHighlighted)
    def _highlighted(self, event: DataTable.RowHighlighted) -> None:
        run = self.runs.get(str(event.row_key.value)) if self.runs else None  # an empty table's row has no key
        if run is not None:
            self._show(run)

    def _show(self, run: Run) -> None:
        pair = self.pair()
        self.set_class(pair is not None, "comparing")
        self._levels = pair[1].levels if pair else run.levels
        self._other = (pair[0],) if pair else ()
        panel, compare = self.query_one(RunPanel), self.query_one(ComparePanel)
        if pair is not None and (compare.pair is None or compare.pair[0].id != pair[0].id):
            self.run_worker(self._noise(pair[0]), exit_on_error=False)
        panel.run, compare.pair = run, pair
        self._fold()
        for one in (panel, compare, self.query_one(LevelsChart)):
            one.redraw()

    async def _noise(self, run: Run) -> None:
        """Read how much the older run's kind scatters; without it the usual noise is taken."""
        from tokpit.ops.records.baseline import baseline_for

        try:
            known = await baseline_for(await open_history(self.view.session), run)
        except TokpitError:
            return
        self.query_one(ComparePanel).take_noise(run.id, known)

    def pair(self) -> tuple[Run, Run] | None:
        """The two runs picked, the older one first."""
        if len(self.picked) != 2:
            return None
        one, other = sorted((self.runs[run_id] for run_id in self.picked), key=lambda run: run.started_at)
        return one, other

    def action_pick(self) -> None:
        """Pick the run under the cursor, or drop it; two picked ones are compared, a third replaces the first."""
        table = self.query_one(RunsTable)
        if not self.runs or not table.is_valid_coordinate(table.cursor_coordinate):
            return
        run_id = str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)
        before = list(self.picked)
        if run_id in self.picked:
            self.picked.remove(run_id)
        else:
            self.picked = [*self.picked, run_id][-2:]
        for one in {*before, *self.picked}:
            table.mark(one, one in self.picked)
        if len(self.picked) == 1:
            tell(self.console, f"one run is picked: {key_of(self.app, 'history.pick')} on another compares them")
        self._show(self.runs[run_id])

    def action_plan(self) -> None:
        """A job planned from the picked runs, else from the one under the cursor."""
        from tokpit.ops.sweep.advice import curve_points
        from tokpit.ui.screens.plan import PlanScreen

        here = self.query_one(RunPanel).run
        chosen = [self.runs[run_id] for run_id in self.picked] or ([here] if here is not None else [])
        if not chosen or not curve_points(chosen[0]):
            tell(self.console, "a job is planned from a sweep; this run measured no rate", bad=True)
            return
        self.app.push_screen(PlanScreen(self.view, chosen))

    def action_export(self) -> None:
        """The run under the cursor, or the two picked compared, as reports in every format."""
        from tokpit.insight.versus import versus
        from tokpit.ops.records.report import document_of
        from tokpit.report import FORMATS
        from tokpit.report.versus import versus_document
        from tokpit.ui.exporting import export

        run, pair = self.query_one(RunPanel).run, self.pair()
        if run is None:
            tell(self.console, "there is no run to export")
            return
        document = versus_document([versus(*pair)]) if pair else document_of(run)
        name = f"compare-{pair[0].id}-{pair[1].id}" if pair else f"run-{run.id}"
        export(self.console, name, {f"report.{kind}": render(document) for kind, render in FORMATS.items()})

    def action_measure(self) -> None:
        """The chart's next measure."""
        self.query_one(LevelsChart).next_measure()

    def action_leave(self) -> None:
        """Back."""
        self.app.pop_screen()

"""History: the stored runs, and the detail of the one under the cursor."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import DataTable, Static

from tokpit.domain.run import Level, Run
from tokpit.errors import TokpitError
from tokpit.ui import figures
from tokpit.ui.actions import bindings_for
from tokpit.ui.screens.base import PumpedScreen, tell
from tokpit.ui.text import Row, content, crop, fit, safe
from tokpit.ui.view import View, model_name
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.operation import COLUMNS, LevelsChart, level_text
from tokpit.ui.widgets.panel import Panel

LIMIT = 200
_STATUS = {"done": "good", "failed": "bad", "stopped": "warn", "running": "accent"}


class RunPanel(Panel):
    """One run: its levels and its context."""

    ages = False

    def __init__(self, run: Run | None = None) -> None:
        super().__init__(id="run")
        self.run = run

    def heading(self, width: int) -> tuple[Row, Row]:
        """Id and status."""
        if self.run is None:
            return [("run", "title")], []
        return [(safe(self.run.id), "title")], [(self.run.status, _STATUS.get(self.run.status, "dim"))]

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Levels first, then what was frozen with them."""
        run = self.run
        if run is None:
            return []
        took = figures.duration(run.ended_at - run.started_at) if run.ended_at is not None else figures.NA
        rows: list[Row] = [
            [
                (safe(run.target), "bold"),
                (f"  {model_name(run.model) if run.model else ''}", "fg"),
                (f"  took {took}", "dim"),
            ],
            [(" ".join(name.rjust(w) for name, w in COLUMNS), "dim")],
        ]
        rows += [[(level_text(level), "fg")] for level in run.levels]
        if run.note:
            rows.append([("note ", "dim"), (safe(run.note), "fg")])
        for key, value in run.context.items():
            if isinstance(value, (str, int, float)) and value != "":
                rows.append([(fit(safe(key), 16), "dim"), (crop(safe(value), max(4, width - 16)), "fg")])
        return rows


class HistoryScreen(PumpedScreen):
    """See the module docstring."""

    BINDINGS = bindings_for("history")
    CSS = """
    HistoryScreen .heading { text-style: bold; color: $primary; padding: 0 1; height: 1; }
    HistoryScreen DataTable { height: 40%; min-height: 5; background: $background; }
    HistoryScreen #none { height: auto; padding: 1 2; color: $text-muted; display: none; }
    HistoryScreen LevelsChart { height: 1fr; min-height: 5; }
    HistoryScreen RunPanel { height: 1fr; }
    HistoryScreen.empty DataTable, HistoryScreen.empty Panel { display: none; }
    HistoryScreen.empty #none, HistoryScreen.empty Footer { display: block; }
    HistoryScreen.low LevelsChart { display: none; }
    """

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.runs: dict[str, Run] = {}
        self._levels: tuple[Level, ...] = ()

    def compose(self) -> ComposeResult:
        """Table, detail, chart."""
        yield Static(content("Runs"), classes="heading")
        yield Static(content("no run is stored yet: press s on a server to sweep it"), id="none")
        yield DataTable(cursor_type="row", zebra_stripes=False)
        yield RunPanel()
        yield LevelsChart(self.view, lambda: self._levels)
        yield Footer("history")

    def on_mount(self) -> None:
        """Read them."""
        super().on_mount()
        table: DataTable[object] = self.query_one(DataTable)
        table.add_columns("started", "kind", "target", "model", "levels", "peak tok/s", "status", "run")
        table.focus()
        self.action_reload()

    def on_resize(self) -> None:
        """The chart needs height."""
        self.set_class(self.size.height < 34, "low")

    def action_reload(self) -> None:
        """Read the stored runs again."""
        self.run_worker(self._load(), exit_on_error=False)

    async def _load(self) -> None:
        try:
            history = self.view.session.history
            history = history() if callable(history) else history
            store = await history if inspect.isawaitable(history) else history
            found: Sequence[Run] = await store.runs(limit=LIMIT)
        except TokpitError as error:
            tell(self.console, error.message, hint=error.hint, bad=True)
            return
        self.fill(found)

    def fill(self, found: Sequence[Run]) -> None:
        """Show these runs."""
        self.runs = {run.id: run for run in found}
        self.set_class(not found, "empty")
        table: DataTable[object] = self.query_one(DataTable)
        table.clear()
        for run in found:
            peak = max((level.output_tps for level in run.levels), default=None)
            cells = (
                time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_at)),
                run.kind,
                run.target,
                model_name(run.model) if run.model else figures.NA,
                str(len(run.levels)),
                figures.fixed(peak),
                run.status,
                run.id,
            )
            table.add_row(*(Text(crop(safe(cell), 40)) for cell in cells), key=run.id)
        if found:
            self._show(found[0])

    @on(DataTable.RowHighlighted)
    def _highlighted(self, event: DataTable.RowHighlighted) -> None:
        run = self.runs.get(str(event.row_key.value))
        if run is not None:
            self._show(run)

    def _show(self, run: Run) -> None:
        self._levels = run.levels
        panel = self.query_one(RunPanel)
        panel.run = run
        panel.redraw()
        self.query_one(LevelsChart).redraw()

    def action_leave(self) -> None:
        """Back."""
        self.app.pop_screen()

"""Sweep: which levels, then a live table and a chart of throughput against concurrency; esc stops and keeps."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.widgets import Input, Static

from tokpit.domain.run import Level, Run
from tokpit.errors import TokpitError, UsageError
from tokpit.ui.actions import bindings_for
from tokpit.ui.charts.panel import LIVE_CHARTS, ChartPanel
from tokpit.ui.forms import SWEEP_FIELDS, sweep_plan
from tokpit.ui.levels import EARLIER_STYLES, findings_of, same_subject
from tokpit.ui.screens.base import OperationScreen, open_history, tell
from tokpit.ui.screens.launch import FORM_CSS
from tokpit.ui.screens.pickruns import PickRuns
from tokpit.ui.text import content
from tokpit.ui.view import View, model_name
from tokpit.ui.widgets.beside import BesidePanel
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.header import Header
from tokpit.ui.widgets.levels import LevelsChart, LevelsPanel, NotesPanel

BESIDE_CHARTS = ("chart-gen", "chart-batch", "chart-cache", "chart-accept")
"""What the server does meanwhile; the last two where the screen is broad."""
TALL, BROAD, WIDE = 36, 110, 170
"""Rows and columns from which the live charts, two more of them, and table and chart side by side are shown."""


class SweepScreen(OperationScreen):
    """See the module docstring."""

    BINDINGS = bindings_for("sweep")
    AUTO_FOCUS = "#field-levels"
    CSS = (
        FORM_CSS
        + """
    SweepScreen #curve { height: 1fr; }
    SweepScreen #told { height: auto; }
    SweepScreen LevelsPanel { height: 12; }
    SweepScreen LevelsChart { height: 1fr; min-height: 4; }
    SweepScreen.wide #curve { layout: horizontal; }
    SweepScreen.wide #told { width: 1fr; height: 1fr; }
    SweepScreen.wide LevelsChart { width: 1fr; }
    SweepScreen NotesPanel { display: none; }
    SweepScreen BesidePanel { height: 4; display: none; }
    SweepScreen.running BesidePanel { display: block; }
    SweepScreen #live { height: 9; display: none; }
    SweepScreen.started.tall #live { display: block; }
    SweepScreen #live .wide { display: none; }
    SweepScreen.broad #live .wide { display: block; }
    SweepScreen.started .form, SweepScreen.started .heading { display: none; }
    """
    )

    def __init__(self, view: View, server_id: str) -> None:
        super().__init__(view)
        self.server_id = server_id
        self.earlier: tuple[Run, ...] = ()
        """Sweeps behind the chart: the picked ones, else the newest earlier ones of the same model on the same host."""
        self._picked: tuple[str, ...] | None = None
        self._explained = False

    def compose(self) -> ComposeResult:
        """Fields, table, chart."""
        info = self.view.store.servers[self.server_id].info
        yield Header(self.view)
        yield Static(content(f"Sweep {info.label}  {info.served_name or model_name(info.model)}"), classes="heading")
        with VerticalScroll(classes="form", can_focus=False):
            for name, label, value, hint in SWEEP_FIELDS:
                with Horizontal():
                    yield Static(content(label), classes="label")
                    yield Input(value=value, placeholder=hint, id=f"field-{name}", compact=True)
        with Container(id="curve"):
            with Vertical(id="told"):
                yield LevelsPanel(self.view, self.operation)
                yield BesidePanel(self.view)
                yield NotesPanel(self.view, self.operation)
            yield LevelsChart(self.view, self.levels, earlier=lambda: self.earlier)
        with Horizontal(id="live"):
            for place, name in enumerate(BESIDE_CHARTS):
                chart = ChartPanel(self.view, next(spec for spec in LIVE_CHARTS if spec.id == name))
                chart.set_class(place > 1, "wide")
                yield chart
        yield Footer("sweep")

    def on_mount(self) -> None:
        """Take up a sweep of this server that is under way; look for earlier runs to compare with."""
        super().on_mount()
        under_way = (o for o in self.view.store.operations.values() if o.kind == "sweep" and o.status == "running")
        self.operation_id = next((o.id for o in under_way if o.target == self.server_id), self.operation_id)
        self.run_worker(self._find_earlier(), exit_on_error=False)

    async def _find_earlier(self) -> None:
        try:
            store = await open_history(self.view.session)
            found: Sequence[Run] = await store.runs(limit=100)
        except TokpitError as error:
            tell(self.console, error.message, hint=error.hint, bad=True)
            return
        self._lay_over(found)

    def _lay_over(self, found: Sequence[Run]) -> None:
        info = self.view.store.servers[self.server_id].info
        models = frozenset(name for name in (info.served_name, info.model, model_name(info.model)) if name)
        mine = op.result.get("run") if (op := self.operation()) else None
        if self._picked is None:
            fitting = [
                run
                for run in found
                if run.id != mine and same_subject(run, host=info.host, label=info.label, models=models)
            ]
        else:
            fitting = [run for run in found if run.id in self._picked]
        self.earlier = tuple(fitting[: len(EARLIER_STYLES)])
        self.query_one(LevelsChart).redraw()

    async def action_overlay(self) -> None:
        """Pick the earlier runs behind the chart, from all that have levels."""
        try:
            store = await open_history(self.view.session)
            found: Sequence[Run] = await store.runs(limit=100)
        except TokpitError as error:
            tell(self.console, error.message, hint=error.hint, bad=True)
            return
        mine = op.result.get("run") if (op := self.operation()) else None
        runs = [run for run in found if run.levels and run.id != mine]
        if not runs:
            tell(self.console, "no earlier run with levels is stored")
            return

        def picked(ids: tuple[str, ...] | None) -> None:
            if ids is not None:
                self._picked = ids
                self._lay_over(runs)

        self.app.push_screen(PickRuns(runs, [run.id for run in self.earlier], len(EARLIER_STYLES)), picked)

    async def _explain(self, run_id: str) -> None:
        try:
            store = await open_history(self.view.session)
            run: Run = await store.run(run_id)
        except TokpitError as error:
            tell(self.console, error.message, hint=error.hint, bad=True)
            return
        notes = self.query_one(NotesPanel)
        notes.findings = findings_of(run)
        notes.redraw()
        if self.focused is None:
            notes.focus()  # the arrows move it

    def levels(self) -> Sequence[Level]:
        """The levels measured so far."""
        operation = self.operation()
        return operation.levels if operation is not None else ()

    def on_resize(self) -> None:
        """The table keeps what it needs, the chart takes the rest."""
        self._fold()

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_start_sweep()

    def action_start_sweep(self) -> None:
        """Through the gate."""
        if self.running:
            return
        fields = {name: self.query_one(f"#field-{name}", Input).value for name, _, _, _ in SWEEP_FIELDS}
        try:
            plan = sweep_plan(fields)
        except UsageError as error:
            tell(self.console, error.message, bad=True)
            return
        if f"sweep.start {self.server_id}" in self.console.busy:
            tell(self.console, "a sweep of this server is under way already")
            return
        self._explained = False
        self.query_one(NotesPanel).findings = ()
        if self.operation_id:
            self.run_worker(self._find_earlier(), exit_on_error=False)
        self.operation_id = f"sweep-{secrets.token_hex(4)}"
        self.console.start_command("sweep.start", target=self.server_id, operation_id=self.operation_id, **plan)

    def before_pump(self) -> None:
        """The form gives way to the figures."""
        self.set_class(self.operation() is not None, "started")
        if self.operation() is not None and isinstance(self.focused, Input):
            self.set_focus(None)
        operation = self.operation()
        ended = operation is not None and operation.status != "running"
        if ended and not self._explained and operation is not None and (run := operation.result.get("run")):
            self._explained = True
            self.run_worker(self._explain(run), exit_on_error=False)
        self._fold()

    def _fold(self) -> None:
        self.set_class(self.running, "running")
        self.set_class(self.size.height >= TALL and self.running, "tall")
        self.set_class(self.size.width >= BROAD, "broad")
        wide = self.size.width >= WIDE
        self.set_class(wide, "wide")
        panel, notes, beside = self.query_one(LevelsPanel), self.query_one(NotesPanel), self.query_one(BesidePanel)
        frame = 2 if panel.roomy else 1
        beside.styles.height = 2 + frame
        height = self.size.height - 3 - (2 + frame if self.running else 0)
        width = self.size.width // (2 if wide else 1) - 4
        rows = len(panel.body(max(20, width), 1000)) + frame
        wanted = len(notes.all_rows(max(20, width)))
        notes.display = wanted > 0
        if wide:
            panel.styles.height = rows if notes.display else "1fr"
            notes.styles.height = "1fr"
        else:
            panel.styles.height = max(5 if height >= 16 else 3, min(rows, max(5, height * 3 // 5)))
            notes.styles.height = max(4, min(wanted + frame, height // 3))

    def now_keys(self) -> Sequence[tuple[str, str, str]]:
        """What escape does while it runs, and once it is over."""
        operation = self.operation()
        if operation is None:
            return (("escape", "esc", "back"),)
        return (("escape", "esc", "stop, keep the levels" if self.running else "back"),)

    def action_measure(self) -> None:
        """The chart's next measure."""
        self.query_one(LevelsChart).next_measure()

    def action_stop_or_leave(self) -> None:
        """Stop at once and keep what was measured; once nothing runs, back."""
        if self.running:
            self.console.start_command("sweep.stop", op_id=self.operation_id)
        else:
            self.app.pop_screen()

"""Sweep: which levels, then a live table and a chart of throughput against concurrency; esc stops and keeps."""

from __future__ import annotations

import secrets

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Input, Static

from tokpit.domain.records import Operation
from tokpit.errors import UsageError
from tokpit.ui.actions import bindings_for
from tokpit.ui.charts.panel import LIVE_CHARTS, ChartPanel
from tokpit.ui.forms import SWEEP_FIELDS, sweep_plan
from tokpit.ui.screens.base import PumpedScreen, tell
from tokpit.ui.screens.launch import FORM_CSS
from tokpit.ui.text import content
from tokpit.ui.view import View, model_name
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.header import Header
from tokpit.ui.widgets.operation import LevelsChart, LevelsPanel


class SweepScreen(PumpedScreen):
    """See the module docstring."""

    BINDINGS = bindings_for("sweep")
    AUTO_FOCUS = "#field-levels"
    CSS = (
        FORM_CSS
        + """
    SweepScreen LevelsPanel { height: 12; }
    SweepScreen LevelsChart { height: 1fr; min-height: 5; }
    SweepScreen #live { height: 9; display: none; }
    SweepScreen.started.tall #live { display: block; }
    SweepScreen.started .form, SweepScreen.started .heading { display: none; }
    """
    )

    def __init__(self, view: View, server_id: str) -> None:
        super().__init__(view)
        self.server_id = server_id
        self.operation_id = ""

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
        yield LevelsPanel(self.view, self.operation)
        with Horizontal(id="live"):
            for spec in LIVE_CHARTS[:2]:
                yield ChartPanel(self.view, spec)
        yield LevelsChart(self.view, lambda: op.levels if (op := self.operation()) else ())
        yield Footer("sweep")

    def on_resize(self) -> None:
        """The table keeps what it needs, the chart takes the rest."""
        self._fold()

    def operation(self) -> Operation | None:
        """The sweep that this screen started."""
        return self.view.store.operations.get(self.operation_id)

    @property
    def running(self) -> bool:
        """Whether it is under way."""
        operation = self.operation()
        return operation is not None and operation.status == "running"

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
        self.operation_id = f"sweep-{secrets.token_hex(4)}"
        self.console.start_command("sweep.start", target=self.server_id, operation_id=self.operation_id, **plan)

    def before_pump(self) -> None:
        """The form gives way to the figures."""
        self.set_class(self.operation() is not None, "started")
        if self.operation() is not None and isinstance(self.focused, Input):
            self.set_focus(None)
        self._fold()

    def _fold(self) -> None:
        self.set_class(self.size.height >= 36, "tall")
        panel = self.query_one(LevelsPanel)
        rows = len(panel.body(max(20, self.size.width - 4), 1000)) + 2
        panel.styles.height = max(5, min(rows, max(6, (self.size.height - 3) * 3 // 5)))

    def action_stop_or_leave(self) -> None:
        """Stop at once and keep what was measured; once nothing runs, back."""
        if self.running:
            self.console.start_command("sweep.stop", op_id=self.operation_id)
        else:
            self.app.pop_screen()

"""Tune: which settings and values, then leaderboard, Pareto chart and what was left out; esc stops and puts back."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Input, Static

from tokpit.domain.tuning import Tuning
from tokpit.errors import UsageError
from tokpit.tune.target import check_target
from tokpit.ui.actions import bindings_for, key_of
from tokpit.ui.screens.base import PumpedScreen, copy, tell
from tokpit.ui.screens.launch import FORM_CSS
from tokpit.ui.text import content
from tokpit.ui.tuning import ENDED, TUNE_FIELDS, VARIED, experiment_of
from tokpit.ui.view import View, model_name
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.header import Header
from tokpit.ui.widgets.tuning import BoardPanel, OutcomePanel, TuneChart

WIDE = 110
"""Cells from which chart and reasons stand side by side."""
_WELCOME = (
    "Give values for at least one setting. The server is measured as it runs, then restarted with the candidates that "
    "can still win; what cannot is left out with the reason. The plan is shown first, the first server is put back."
)


class TuneScreen(PumpedScreen):
    """See the module docstring. Leaving the screen ends no experiment."""

    BINDINGS = bindings_for("tune")
    AUTO_FOCUS = "#field-mtp_steps"
    CSS = (
        FORM_CSS
        + """
    TuneScreen #plan { height: auto; padding: 1 1 0 2; color: $text-muted; }
    TuneScreen #plan.off { color: $warning; }
    TuneScreen BoardPanel, TuneScreen #below { display: none; }
    TuneScreen #below { height: 1fr; min-height: 7; }
    TuneScreen.started BoardPanel, TuneScreen.started #below { display: block; }
    TuneScreen.started .form, TuneScreen.started .heading, TuneScreen.started #plan { display: none; }
    """
    )

    def __init__(self, view: View, server_id: str) -> None:
        super().__init__(view)
        self.server_id = server_id
        self.tuning_id = ""
        self.reasons = False
        """In a narrow terminal: reasons, or at the end the report, instead of the chart."""
        self._told = ""
        """The experiment whose report was brought forward."""
        self._before: frozenset[str] = frozenset()
        self._asked = False
        self._reported = ""
        """The experiment whose report has been shown."""

    def compose(self) -> ComposeResult:
        """Fields and plan, or leaderboard, chart and reasons."""
        info = self.view.store.servers[self.server_id].info
        yield Header(self.view)
        yield Static(content(f"Tune {info.label}  {info.served_name or model_name(info.model)}"), classes="heading")
        with VerticalScroll(classes="form", can_focus=False):
            for name, label, value, hint in TUNE_FIELDS:
                with Horizontal():
                    yield Static(content(label), classes="label")
                    yield Input(value=value, placeholder=hint, id=f"field-{name}", compact=True)
        yield Static(content(""), id="plan")
        yield BoardPanel(self.view, self.tuning)
        with Horizontal(id="below"):
            yield TuneChart(self.view, self.tuning)
            yield OutcomePanel(self.view, self.tuning)
        yield Footer("tune")

    def on_mount(self) -> None:
        """Take up what runs on this server already, or what was the last."""
        super().on_mount()
        mine = [t for t in self.view.store.tunings.values() if self._is_mine(t)]
        if mine:
            self.tuning_id = mine[-1].id
        self.update_plan()

    def _is_mine(self, tuning: Tuning) -> bool:
        info = self.view.store.servers[self.server_id].info
        return tuning.target == info.label

    def tuning(self) -> Tuning | None:
        """The experiment that is shown."""
        return self.view.store.tunings.get(self.tuning_id)

    @property
    def running(self) -> bool:
        """Whether it is under way."""
        tuning = self.tuning()
        return tuning is not None and tuning.phase not in ENDED

    def fields(self) -> dict[str, str]:
        """What the form holds."""
        return {name: self.query_one(f"#field-{name}", Input).value for name, _, _, _ in TUNE_FIELDS}

    @on(Input.Changed)
    def update_plan(self) -> None:
        """How many candidates the form makes, or what is off."""
        plan = self.query_one("#plan", Static)
        try:
            check_target(self.view.store.servers[self.server_id].info)
        except UsageError as error:
            plan.set_class(True, "off")
            plan.update(content(f"{error.message}. {error.hint}"))
            return
        try:
            experiment = experiment_of(self.server_id, self.fields())
        except UsageError as error:
            untouched = not any(self.fields()[name].strip() for name, _, _ in VARIED)
            plan.set_class(not untouched, "off")
            said = f"{error.message}. {error.hint}" if error.hint else error.message
            plan.update(content(_WELCOME if untouched else said))
            return
        plan.set_class(False, "off")
        start = key_of(self.app, "tune.start_tune")
        plan.update(
            content(
                f"{experiment.space().told} before rules and memory are asked. {start} looks at server and host "
                "and shows restarts and minutes; nothing is restarted before you agree. "
                "The first server is put back at the end."
            )
        )

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_start_tune()

    def action_start_tune(self) -> None:
        """Through the gate, which shows the plan."""
        if self.tuning_id and self.tuning() is not None:
            if not self.running:
                self._form_again()
            return
        if self.view.session.read_only:
            tell(self.console, "tokpit runs in read-only mode", hint="start it without --read-only to tune", bad=True)
            return
        try:
            experiment = experiment_of(self.server_id, self.fields())
        except UsageError as error:
            tell(self.console, error.message, hint=error.hint, bad=True)
            return
        self._before = frozenset(self.view.store.tunings)
        self._asked = True
        tell(self.console, "looking at the server, its host and its candidates")
        self.console.start_command("tune.start", target=self.server_id, experiment=experiment, then=self._answered)

    def _answered(self, result: object) -> None:
        del result
        self._asked = False

    def _form_again(self) -> None:
        """Another experiment, once this one is over."""
        self.tuning_id = ""
        self.set_class(False, "started")
        self.query_one("#field-mtp_steps", Input).focus()

    def before_pump(self) -> None:
        """The form gives way to the figures; the server may have another process by now."""
        if self._asked and not self.tuning_id:
            fresh = [key for key in self.view.store.tunings if key not in self._before]
            self.tuning_id = fresh[-1] if fresh else ""
        tuning = self.tuning()
        started = tuning is not None
        if tuning is not None and tuning.report and self._reported != tuning.id:
            self._reported, self.reasons = tuning.id, self.size.width < WIDE
        self._follow()
        self.set_class(started, "started")
        tuning = self.tuning()
        if tuning is not None and tuning.report and self._told != tuning.id:
            self._told, self.reasons = tuning.id, True
        if started and isinstance(self.focused, Input):
            self.query_one(BoardPanel).focus()
        self._fold()

    def _follow(self) -> None:
        """The header tells of the process that runs now: each restart makes another."""
        tuning = self.tuning()
        if tuning is None or tuning.server == self.view.server_id or tuning.server not in self.view.store.servers:
            return
        self.console.select(self.view.store.servers[tuning.server].info.host, tuning.server)

    def on_resize(self) -> None:
        """The leaderboard keeps what it needs, the rest is shared."""
        self._fold()

    def _fold(self) -> None:
        board = self.query_one(BoardPanel)
        height = self.size.height - 3
        rows = len(board.all_rows(max(20, self.size.width - 4))) + 2
        board.styles.height = max(5, min(rows, max(6, height // 2)))
        wide = self.size.width >= WIDE
        self.query_one(TuneChart).display = wide or not self.reasons
        self.query_one(OutcomePanel).display = wide or self.reasons

    def action_measure(self) -> None:
        """The next view: Pareto chart, sweep curves and, in a narrow terminal, reasons or report."""
        chart = self.query_one(TuneChart)
        if self.size.width < WIDE and chart.curves and not self.reasons:
            self.reasons = True
        elif self.reasons:
            self.reasons, chart.curves = False, False
        else:
            chart.curves = not chart.curves
        self._fold()
        self.redraw_all()

    def action_copy_line(self) -> None:
        """The command line of what is ahead, else of the server as it ran."""
        tuning = self.tuning()
        if tuning is None or not tuning.report:
            tell(self.console, "the command line stands in the report, once the experiment is over")
            return
        blocks = tuning.report.split("```")
        copy(
            self.console,
            blocks[1].removeprefix("text").strip() if len(blocks) > 1 else tuning.report,
            "the command line",
        )

    def action_export(self) -> None:
        """The report, into a file."""
        from tokpit.ui.exporting import export

        tuning = self.tuning()
        if tuning is None or not tuning.report:
            tell(self.console, "there is no report before the experiment is over")
            return
        texts = {f"tune-{tuning.id}.md": tuning.report, f"tune-{tuning.id}.html": tuning.page}
        export(self.console, f"tune-{tuning.target}", {name: text for name, text in texts.items() if text})

    def action_stop_tune(self) -> None:
        """End it in order: what was measured is kept, the first server is put back."""
        if self.running:
            self.console.start_command("tune.stop", id=self.tuning_id)
            tell(self.console, "stopping: the first server is put back")
        else:
            tell(self.console, "no experiment is under way")

    def action_leave(self) -> None:
        """Back; an experiment under way goes on."""
        if self.running:
            tell(self.console, "the experiment goes on", hint="5 shows it again; x there stops it")
        self.app.pop_screen()

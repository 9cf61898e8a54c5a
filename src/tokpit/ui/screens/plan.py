"""Plan: a job of many requests from a stored sweep; every figure follows the fields as they are typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Input, Static

from tokpit.domain.run import Run
from tokpit.errors import UsageError
from tokpit.insight import planwords as words
from tokpit.insight.jobplan import Job, Plan, make_plan
from tokpit.ops.jobplan import measured_run, read_count, read_hours
from tokpit.ui.actions import bindings_for
from tokpit.ui.screens.base import PumpedScreen
from tokpit.ui.screens.launch import FORM_CSS
from tokpit.ui.text import Row, content, fit, safe
from tokpit.ui.view import View
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.header import Header
from tokpit.ui.widgets.levels import hanging
from tokpit.ui.widgets.scrolled import ScrolledPanel

FIELDS = (
    ("requests", "requests", "902K", "such as 902000 or 902K"),
    ("output_tokens", "output tokens", "1024", "of a request, in the mean"),
    ("hosts", "hosts", "1", "that share the job"),
    ("within", "within", "", "72h, 3d: how many hosts would do it"),
    ("price", "price", "", "of one GPU for one hour"),
)


def job_of(fields: dict[str, str]) -> Job:
    """The job that the fields stand for. Raises UsageError with the field's name."""
    try:
        tokens, hosts = float(fields["output_tokens"]), int(fields["hosts"])
        price = float(fields["price"]) if fields["price"].strip() else None
    except ValueError as error:
        raise UsageError(f"a field is no number: {error}") from None
    if not tokens >= 1 or hosts < 1 or (price is not None and price < 0):
        raise UsageError("output tokens and hosts are at least 1, a price at least 0")
    return Job(
        requests=read_count(fields["requests"]),
        output_tokens=tokens,
        hosts=hosts,
        within_h=read_hours(fields["within"]) if fields["within"].strip() else None,
        price=price,
    )


class PlanPanel(ScrolledPanel):
    """The answer, what it rests on, every measured level, the levers, the notes."""

    def __init__(self) -> None:
        super().__init__(id="plan")
        self.plan: Plan | None = None
        self.problem = ""

    def heading(self, width: int) -> tuple[Row, Row]:
        """The answer, or what is wrong."""
        if self.plan is None:
            return [("plan", "title")], [(safe(self.problem), "bad")] if self.problem else []
        return [("plan", "title"), (f"  {safe(words.headline(self.plan))}", "good-bold")], []

    def all_rows(self, width: int) -> list[Row]:
        """See the class."""
        plan = self.plan
        if plan is None:
            return [[(safe(self.problem) or "type what is to be done", "dim")]]
        rows: list[Row] = []
        rows += hanging("", "fg", safe(words.job_line(plan)), "bold", width)
        for line in words.reasons(plan):
            rows += hanging("  ", "fg", safe(line), "fg", width)
        rows += [[], *_table(plan, width), []]
        for lever in plan.levers:
            style = "fg" if lever.basis == "measured" else "warn"
            rows += hanging("", "fg", safe(words.lever_line(lever)), style, width)
            rows += hanging("  ", "dim", safe(lever.note), "dim", width) if lever.note else []
        for note in plan.notes:
            rows += hanging("! ", "warn", safe(note), "dim", width)
        return rows


def _table(plan: Plan, width: int) -> list[Row]:
    head = tuple(name if len(name) == 1 else name.lower() for name in words.HEAD[:4])
    cells = [head, *(words.row(plan, option)[:4] for option in plan.options)]
    chosen = [False, *(option is plan.chosen for option in plan.options)]
    widths = [max(len(row[i]) for row in cells) for i in range(4)]
    rows: list[Row] = []
    for row, here in zip(cells, chosen, strict=True):
        parts = [fit(safe(cell), widths[i], right=i in words.RIGHT) for i, cell in enumerate(row)]
        style = "bold" if here else "dim" if row is cells[0] else "fg"
        rows.append([("▸ " if here else "  ", "accent"), ("  ".join(parts)[: max(0, width - 2)], style)])
    return rows


class PlanScreen(PumpedScreen):
    """See the module docstring. `runs`: the first is planned with, the others are compared as other flags."""

    BINDINGS = bindings_for("plan")
    AUTO_FOCUS = "#field-requests"
    CSS = FORM_CSS + "\nPlanScreen PlanPanel { height: 1fr; }\n"

    def __init__(self, view: View, runs: Sequence[Run]) -> None:
        super().__init__(view)
        self.runs = tuple(runs)
        self._measured = [measured_run(run) for run in runs]

    def compose(self) -> ComposeResult:
        """Fields, the plan, keys."""
        yield Header(self.view)
        yield Static(content(f"Plan a job from {self._measured[0].label}"), classes="heading")
        with VerticalScroll(classes="form", can_focus=False):
            for name, label, value, hint in FIELDS:
                with Horizontal():
                    yield Static(content(label), classes="label")
                    yield Input(value=self._first(name, value), placeholder=hint, id=f"field-{name}", compact=True)
        yield PlanPanel()
        yield Footer("plan")

    def _first(self, name: str, value: str) -> str:
        asked: dict[str, Any] = self.runs[0].context.get("plan") or {}
        return str(asked.get("max_tokens") or value) if name == "output_tokens" else value

    def on_mount(self) -> None:
        """A plan at once."""
        super().on_mount()
        self.replan()

    @on(Input.Changed)
    def replan(self) -> None:
        """The plan for the fields as they are."""
        panel = self.query_one(PlanPanel)
        try:
            job = job_of({name: self.query_one(f"#field-{name}", Input).value for name, *_ in FIELDS})
            panel.plan = make_plan(job, self._measured)
            panel.problem = "" if panel.plan is not None else "no level of this run has a rate"
        except UsageError as error:
            panel.plan, panel.problem = None, error.message
        panel.redraw()

    def action_leave(self) -> None:
        """Back to the runs."""
        self.app.pop_screen()

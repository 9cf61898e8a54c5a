"""Earlier: the servers that ran on a host before, in time; how each differs from what runs; start one again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import DataTable, Static

from tokpit.domain.text import mask_secrets
from tokpit.errors import TokpitError
from tokpit.store.masking import masked
from tokpit.transport.base import quote
from tokpit.ui.actions import bindings_for
from tokpit.ui.screens.base import PumpedScreen, copy, tell
from tokpit.ui.text import Row, content, crop, fit, safe
from tokpit.ui.view import View, engine_title, model_name
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.header import Header
from tokpit.ui.widgets.levels import hanging
from tokpit.ui.widgets.scrolled import ScrolledPanel

if TYPE_CHECKING:
    from tokpit.ops.host.deployments import Past
    from tokpit.ops.host.remembered import Deployment


class DeploymentPanel(ScrolledPanel):
    """One earlier server: what changed since, its settings, its command line, what is to know."""

    ages = False

    def __init__(self) -> None:
        super().__init__(id="deployment")
        self.past: Past | None = None
        self.one: Deployment | None = None

    def heading(self, width: int) -> tuple[Row, Row]:
        """Where it is remembered."""
        if self.one is None:
            return [("earlier server", "title")], []
        return [(safe(f"{self.one.source} {self.one.where}"), "title")], self.place()

    def all_rows(self, width: int) -> list[Row]:
        """The difference first."""
        one, past = self.one, self.past
        if one is None or past is None:
            return []
        from tokpit.ops.host.deployments import same

        rows: list[Row] = []
        for server in past.running:
            if same(one, server):
                rows += [[(safe(f"this is {server.label}, which runs now"), "good")], []]
        for pair in past.compared:
            if pair.deployment is not one:
                continue
            rows.append([(safe(f"from then to {pair.server.label}, which runs now"), "bold")])
            if not pair.akin:
                rows.append([("  another model", "dim")])
            elif not pair.changes:
                rows.append([("  no difference", "good")])
            for change in pair.changes if pair.akin else ():
                rows += hanging("  ± ", "accent", safe(change.text), "fg", width)
            rows.append([])
        given = {**one.settings.given(), **({"image": one.image} if one.image else {})}
        for name, value in masked({**given, **one.env}).items():
            rows.append(
                [(fit(safe(name.replace("_", " ") if name in given else name), 22), "dim"), (safe(value), "fg")]
            )
        if one.settings.raw:
            rows += hanging(fit("more flags", 22), "dim", safe(quote(masked(list(one.settings.raw)))), "fg", width)
        for text in (version_words(one), one.state, *one.notes):
            if text:
                rows += hanging("! ", "warn", safe(mask_secrets(text)), "fg", width)
        return rows


class EarlierScreen(PumpedScreen):
    """See the module docstring."""

    BINDINGS = bindings_for("earlier")
    CSS = """
    EarlierScreen .heading { text-style: bold; color: $primary; padding: 0 1; height: 1; }
    EarlierScreen DataTable { height: auto; max-height: 45%; min-height: 4; background: $background;
        scrollbar-size-horizontal: 0; }
    EarlierScreen #none { height: auto; padding: 1 2; color: $text-muted; }
    EarlierScreen #remarks { height: auto; max-height: 5; padding: 0 1; color: $text-muted; }
    EarlierScreen DeploymentPanel { height: 1fr; }
    EarlierScreen.empty DataTable, EarlierScreen.empty DeploymentPanel { display: none; }
    EarlierScreen #none { display: none; }
    EarlierScreen.empty #none { display: block; }
    """

    def __init__(self, view: View, host: str) -> None:
        super().__init__(view)
        self.host = host
        self.listed: tuple[Deployment, ...] = ()
        """As in the table: the newest first."""

    def compose(self) -> ComposeResult:
        """Table, detail, remarks."""
        yield Header(self.view)
        yield Static(content(f"Earlier servers on {self.host}"), classes="heading")
        yield Static(content(""), id="none")
        yield DataTable(cursor_type="row", zebra_stripes=False)
        yield DeploymentPanel()
        yield Static(content(""), id="remarks")
        yield Footer("earlier")

    def on_mount(self) -> None:
        """Search at once."""
        super().on_mount()
        table: DataTable[object] = self.query_one(DataTable)
        table.add_columns("when", "source", "engine", "model", "settings", "where")
        table.focus()
        self.action_reload()

    def action_reload(self) -> None:
        """Search the host (again)."""
        self.set_class(True, "empty")
        self.query_one("#none", Static).update(
            content("searching units, journals, shell histories, containers, compose files, scripts and logs …")
        )
        self.run_worker(self._look(), exclusive=True, exit_on_error=False)

    async def _look(self) -> None:
        from tokpit.ops.host.deployments import look_back

        try:
            past = await look_back(self.view.session, self.host, compare=True)  # type: ignore[arg-type]  # a session of ops
        except TokpitError as error:
            said = error.message + (f"\n{error.hint}" if error.hint else "")
            self.query_one("#none", Static).update(content(said))
            return
        self.fill(past)

    def fill(self, past: Past) -> None:
        """Show these."""
        self.listed = tuple(reversed(past.deployments))
        self.query_one(DeploymentPanel).past = past
        remarks = list(past.remarks)
        if past.cut:
            remarks.append("the search was cut short: large or slow file systems")
        self.query_one("#remarks", Static).update(content("\n".join(remarks)))
        self.query_one("#none", Static).update(content(f"no earlier server is remembered on {self.host}"))
        self.set_class(not self.listed, "empty")
        table: DataTable[object] = self.query_one(DataTable)
        table.clear()
        for n, one in enumerate(self.listed):
            cells = (when(one), one.source, engine_words(one), model_name(one.settings.model),
                     short_settings(one), one.where)  # fmt: skip
            widths = (24, 8, 20, 24, 44, 60)
            table.add_row(
                *(Text(crop(safe(cell), width)) for cell, width in zip(cells, widths, strict=True)), key=str(n)
            )
        if self.listed:
            self._show(self.listed[0])
            table.focus()

    @on(DataTable.RowHighlighted)
    def _highlighted(self, event: DataTable.RowHighlighted) -> None:
        if not self.listed:  # an empty table's row has no key
            return
        n = int(str(event.row_key.value))
        if n < len(self.listed):
            self._show(self.listed[n])

    @on(DataTable.RowSelected)
    def _selected(self) -> None:
        self.action_again()

    def _show(self, one: Deployment) -> None:
        panel = self.query_one(DeploymentPanel)
        panel.one, panel.top = one, 0
        panel.redraw()

    def action_again(self) -> None:
        """The launch form with what this one was started with."""
        from tokpit.ops.host.deployments import spec_of

        one = self.query_one(DeploymentPanel).one
        if one is None:
            tell(self.console, "there is none to start again")
            return
        if one.resolved:
            tell(self.console, "from a log's own print: what the engine chose itself then is left to it again")
        self.console.open_launch(spec_of(one, self.host), f"{one.source} {one.where}")

    def action_copy_line(self) -> None:
        """Its command line, to the terminal's clipboard."""
        one = self.query_one(DeploymentPanel).one
        if one is None or not one.argv:
            tell(self.console, "its command line is not known, only its settings")
        else:
            copy(self.console, quote(one.argv), "the command line")

    def action_leave(self) -> None:
        """Back."""
        self.app.pop_screen()


def when(one: Deployment) -> str:
    """Its time, or the latest that it can have been."""
    if one.t is not None:
        return _date(one.t)
    return f"before {_date(one.before)}" if one.before is not None else "time not known"


def _date(t: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(t))


def engine_words(one: Deployment) -> str:
    """Engine and the version that ran, as far as it is known."""
    return f"{engine_title(one.engine)} {one.version}" if one.version else engine_title(one.engine)


def version_words(one: Deployment) -> str:
    """What its environment holds now, where that says something."""
    if not one.version_now or one.version_now == one.version:
        return ""
    since = ", installed since" if one.changed_since else ""
    return f"its environment holds {engine_title(one.engine)} {one.version_now} now{since}"


def short_settings(one: Deployment) -> str:
    """What sets it apart at a glance."""
    names: Sequence[str] = ("tp", "spec_steps", "hicache_gb", "max_running", "context_len", "quantization", "port")
    given = one.settings.given()
    return " ".join(f"{name}={given[name]:g}" if isinstance(given[name], float) else f"{name}={given[name]}"
                    for name in names if name in given)  # fmt: skip

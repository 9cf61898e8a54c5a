"""Launch: a form with the exact command line and what the host says of it; then the milestones of the start."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Input, Select, Static

from tokpit.config.profiles import load_profiles
from tokpit.domain.settings import LaunchSpec
from tokpit.domain.text import mask_secrets
from tokpit.engines.registry import titles
from tokpit.errors import TokpitError
from tokpit.ops.lifecycle.profiles import spec_of
from tokpit.ui.actions import bindings_for
from tokpit.ui.examining import Examiner
from tokpit.ui.forms import LAUNCH_FIELDS, command_line, described, first_values, preview
from tokpit.ui.picking import pickable
from tokpit.ui.relaunching import spec_on, spec_values
from tokpit.ui.screens.base import OperationScreen, copy, tell
from tokpit.ui.text import content, safe
from tokpit.ui.view import View
from tokpit.ui.widgets.checks import ChecksPanel
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.header import Header
from tokpit.ui.widgets.operation import StepsPanel

FORM_CSS = """
.form { height: auto; max-height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
.form Horizontal { height: 1; }
.form .label { width: 20; color: $text-muted; text-align: right; padding-right: 2; }
.form Input { width: 1fr; max-width: 72; height: 1; border: none; padding: 0 1; background: $surface; }
.form Input:focus { background: $panel; }
.form Input.off { background: $error 25%; }
.form Select { width: 24; }
.heading { text-style: bold; color: $primary; padding: 0 1; height: 1; margin-top: 1; }
"""

START_CSS = (
    FORM_CSS
    + """
{name} #preview-title { margin-top: 1; }
{name} #preview { height: auto; max-height: 9; padding: 0 1; margin: 0 1; background: $surface; }
{name} #preview.off { color: $warning; }
{name} #steps { display: none; height: 1fr; }
{name}.running .form, {name}.running .heading, {name}.running #preview,
{name}.running .diff, {name}.running #checks { display: none; }
{name}.running #steps { display: block; }
"""
)
"""For `{name}`, because a screen's rules are bound to its own class."""


class StartForm(OperationScreen):
    """A form, what would be started as it stands, and the steps once it has been. Leaving ends no launch under way."""

    FIELDS = LAUNCH_FIELDS
    command = "server.launch"

    def __init__(self, view: View, host: str) -> None:
        super().__init__(view)
        self.host = host
        self.problem = ""

    def fields(self) -> dict[str, str]:
        """What the form holds."""
        return {name: self.query_one(f"#field-{name}", Input).value for name, _, _ in self.FIELDS}

    def inputs(self, values: Mapping[str, str]) -> ComposeResult:
        """One labelled line a field."""
        for name, label, hint in self.FIELDS:
            with Horizontal():
                yield Static(content(label), classes="label")
                yield Input(value=values.get(name, ""), placeholder=hint, id=f"field-{name}", compact=True)

    # What subclasses give ------------------------------------------------------------------

    def checked(self) -> bool:
        """Read the form; whether it can be started, else `problem` says why not."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it."""
        raise NotImplementedError

    def target(self) -> str:
        """What the command is about, as the console's list of commands under way names it."""
        return self.host

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_start_launch()

    def action_start_launch(self) -> None:
        """Through the gate, which shows the lines and asks; then the steps."""
        if self.running:
            return
        if not self.checked():
            tell(self.console, self.problem, bad=True)
        elif f"{self.command} {self.target()}" in self.console.busy:
            tell(self.console, "already under way: looking at the host, or waiting for your answer")
        else:
            self.start()

    def show_problem(self, problem: str) -> None:
        """Mark the field that a sentence names."""
        self.problem = problem
        named = problem.partition(":")[0]
        for name, label, _ in self.FIELDS:
            field = self.query_one(f"#field-{name}", Input)
            field.set_class(bool(problem) and label == named and bool(field.value), "off")

    def before_pump(self) -> None:
        """Steps as soon as the launch has begun; the new server becomes the selected one."""
        operation = self.operation()
        self.set_class(operation is not None, "running")
        if operation is not None and (server := operation.result.get("server")) and server != self.view.server_id:
            self.console.select(self.host, server)

    def now_keys(self) -> Sequence[tuple[str, str, str]]:
        """Once it is started: where escape leads."""
        operation = self.operation()
        if operation is None:
            return ()
        where = {"failed": "back to the form", "running": "leave, it goes on"}
        return (("escape", "esc", where.get(operation.status, "to the cockpit")),)

    def action_leave(self) -> None:
        """Back; a launch under way goes on, one that failed gives its form back first."""
        operation = self.operation()
        if operation is not None and operation.status == "failed":
            self.operation_id = ""
            self.before_pump()
            self.query_one("#field-raw", Input).focus()
            return
        if operation is not None and operation.status == "running":
            tell(self.console, "the launch goes on; its server is in the tree")
        self.app.pop_screen()


class LaunchScreen(StartForm):
    """A new server on a host: from nothing, from a profile, or from an earlier launch."""

    BINDINGS = bindings_for("launch")
    AUTO_FOCUS = "#field-model"
    CSS = (
        START_CSS.replace("{name}", "LaunchScreen")
        + """
        LaunchScreen ChecksPanel { height: 1fr; min-height: 4; margin-top: 1; }
        LaunchScreen #preview { max-height: 6; }
        LaunchScreen.low .heading, LaunchScreen.low #preview-title { margin-top: 0; }
        LaunchScreen.low .form { max-height: 8; }
        LaunchScreen.low #preview { max-height: 5; }
        LaunchScreen.low ChecksPanel { margin-top: 0; }
        """
    )

    def __init__(self, view: View, host: str, *, base: LaunchSpec | None = None, origin: str = "") -> None:
        super().__init__(view, host)
        self.spec: LaunchSpec | None = None
        self.base, self.origin = base, origin
        """A launch that the form changes, and what it is called; None: it starts from nothing."""
        self.profiles = load_profiles()
        running = view.server
        self._engine = running.info.engine if running else next(iter(titles()))
        host_spec = view.session.host_specs.get(host)
        if running is None and host_spec is not None and host_spec.programs:
            self._engine = next((e for e in host_spec.programs if e in titles()), self._engine)
        self._values = first_values(host_spec, self._engine)
        if running is not None and running.info.model:
            self._values["model"] = safe(running.info.model)
        if base is not None:
            self._engine, self._values = base.engine, spec_values(base)
        self.examiner = Examiner(self)

    def compose(self) -> ComposeResult:
        """Fields, the command line, what the host says, the steps."""
        yield Header(self.view)
        title = f"Launch on {self.host}" + (f", from {self.origin}" if self.origin else "")
        yield Static(content(title), classes="heading", id="title")
        with VerticalScroll(classes="form", can_focus=False):
            if self.profiles.profiles:
                with Horizontal():
                    yield Static(content("profile"), classes="label")
                    names = [(name, name) for name in self.profiles.profiles]
                    yield Select(names, prompt="none", id="profile", compact=True)
            with Horizontal():
                yield Static(content("engine"), classes="label")
                choices = [(title, name) for name, title in titles().items()]
                yield Select(choices, value=self._engine, allow_blank=False, id="engine", compact=True)
            yield from self.inputs(self._values)
        yield Static(content("Command line"), classes="heading", id="preview-title")
        yield Static(content(""), id="preview")
        yield ChecksPanel()
        yield StepsPanel(self.view, self.operation)
        yield Footer("launch")

    def on_mount(self) -> None:
        """Show the command line as the form stands."""
        super().on_mount()
        for problem in self.profiles.problems:
            tell(self.console, f"left out: {problem}", bad=True)
        self.update_preview()

    def on_resize(self) -> None:
        """Little room: the form scrolls."""
        self.set_class(self.size.height < 34, "low")

    @on(Input.Changed)
    def update_preview(self) -> None:
        """The command line as it stands, or what is off; what is whole is shown to the host."""
        base, fields = self.base, self.fields()
        if base is None:
            self.spec, text = preview(self.host, str(self.query_one("#engine", Select).value), fields)
        else:
            self.spec, text = described(lambda: spec_on(base, fields))
        shown = self.query_one("#preview", Static)
        shown.set_class(self.spec is None, "off")
        shown.update(content(mask_secrets(text)))
        self.show_problem("" if self.spec else text)
        self.examiner.ask(self.spec)

    def show_command(self, command: str) -> None:
        """The command line with the program that the host offers."""
        self.query_one("#preview", Static).update(content(mask_secrets(command)))

    @on(Select.Changed, "#engine")
    def _engine_changed(self, event: Select.Changed) -> None:
        if str(event.value) != self._engine:
            self.start_from(None, "")
            self._engine = str(event.value)
            self.fill(first_values(self.view.session.host_specs.get(self.host), self._engine))
        self.update_preview()

    @on(Select.Changed, "#profile")
    def _profile_changed(self, event: Select.Changed) -> None:
        if event.value is Select.NULL:
            return
        name = str(event.value)
        try:
            spec = spec_of(self.profiles.profiles[name], self.host, name=name)
        except TokpitError as error:
            tell(self.console, error.message, hint=error.hint, bad=True)
            return
        self.start_from(spec, f"profile {name}")
        self._engine = spec.engine
        self.query_one("#engine", Select).value = spec.engine
        self.fill(spec_values(spec))
        self.update_preview()

    def start_from(self, base: LaunchSpec | None, origin: str) -> None:
        """What the form changes from now on."""
        self.base, self.origin = base, origin
        said = f"Launch on {self.host}" + (f", from {origin}" if origin else "")
        self.query_one("#title", Static).update(content(said))
        if base is None and self.profiles.profiles:
            self.query_one("#profile", Select).clear()

    def fill(self, values: Mapping[str, str]) -> None:
        """Put these into the fields; a field that is not named keeps what it holds."""
        for name, value in values.items():
            self.query_one(f"#field-{name}", Input).value = value

    def action_pick(self) -> None:
        """Environments or models of the host, for the field under the cursor."""
        field = self.focused.id if self.focused is not None else None
        what = "program" if field == "field-program" else "model"
        self.run_worker(self._pick(what), exit_on_error=False)

    async def _pick(self, what: str) -> None:
        from tokpit.ui.screens.picker import AGAIN, PickScreen

        chosen: str | None = AGAIN
        fresh = False
        while chosen == AGAIN:
            tell(self.console, f"looking on {self.host} …") if fresh else None
            try:
                title, choices = await pickable(self.view.session, self.host, self._engine, what, fresh=fresh)
            except TokpitError as error:
                tell(self.console, error.message, hint=error.hint, bad=True)
                return
            chosen = await self.app.push_screen_wait(PickScreen(title, choices, again="look on the host again"))
            fresh = True
        if chosen is not None:
            self.query_one(f"#field-{what}", Input).value = chosen

    def checked(self) -> bool:
        """The command line is whole."""
        self.update_preview()
        return self.spec is not None

    def start(self) -> None:
        """Launch; the gate asks."""
        self.operation_id = f"launch-{secrets.token_hex(4)}"
        self.console.start_command(self.command, spec=self.spec, operation_id=self.operation_id)

    def action_copy_line(self) -> None:
        """The command line as it stands, to the terminal's clipboard."""
        if self.spec is None:
            tell(self.console, self.problem, bad=True)
        else:
            copy(self.console, self.examiner.command or command_line(self.spec), "the command line")

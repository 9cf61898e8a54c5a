"""What every screen shares: the pump that redraws what changed, and the running of commands."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from textual.screen import Screen
from textual.widgets import Input

from tokpit.domain.records import Operation
from tokpit.domain.text import mask_secrets
from tokpit.errors import TokpitError
from tokpit.ui import clipboard
from tokpit.ui.session_protocol import SessionLike
from tokpit.ui.text import content
from tokpit.ui.view import View
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.panel import Panel

if TYPE_CHECKING:
    from tokpit.ui.app import TokpitApp

PUMP_HZ = 8


class PumpedScreen(Screen[None]):
    """A screen whose panels read the live store, at most PUMP_HZ times a second."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

    @property
    def console(self) -> TokpitApp:
        """The application, typed."""
        return cast("TokpitApp", self.app)

    def on_mount(self) -> None:
        """Start the pump."""
        self.set_interval(1 / PUMP_HZ, self.pump)

    def pump(self) -> None:
        """Redraw panels whose topics changed; nothing while another screen is on top."""
        if not self.is_current:
            return
        self.before_pump()
        for footer in self.query(Footer):
            footer.follow()
        for panel in self.query(Panel):
            if panel.display:
                panel.pull(self.view.store, panel.now)

    def before_pump(self) -> None:
        """Hook: follow the store before the panels are drawn."""

    def now_keys(self) -> Sequence[tuple[str, str, str]]:
        """Keys that mean something else just now: key, as written, what it does. They lead the footer."""
        return ()

    @property
    def typing(self) -> bool:
        """Whether letters are typed into something."""
        return isinstance(self.focused, Input)

    def redraw_all(self) -> None:
        """Everything anew: the selection or the theme has changed."""
        for panel in self.query(Panel):
            panel.redraw()

    def action_command_palette(self) -> None:
        """The command palette, also where a widget has the focus."""
        self.app.action_command_palette()


class OperationScreen(PumpedScreen):
    """A screen that starts an operation and follows it by its id."""

    operation_id = ""

    def operation(self) -> Operation | None:
        """What this screen started."""
        return self.view.store.operations.get(self.operation_id)

    @property
    def running(self) -> bool:
        """Whether it is under way."""
        operation = self.operation()
        return operation is not None and operation.status == "running"


async def attempt(console: TokpitApp, command_id: str, **args: Any) -> Any:
    """Run a command; None where it failed, with the sentence shown and kept as the console's `problems`."""
    console.problems.pop(command_id, None)
    try:
        return await console.session.execute(command_id, **args)
    except TokpitError as error:
        console.problems[command_id] = error.message + (f" ({error.hint})" if error.hint else "")
        tell(console, error.message, hint=error.hint, bad=True)
    return None


async def open_history(session: SessionLike) -> Any:
    """The session's history. Raises StoreError."""
    history = session.history
    history = history() if callable(history) else history
    return await history if inspect.isawaitable(history) else history


def tell(console: TokpitApp, message: str, *, hint: str = "", bad: bool = False) -> None:
    """A notice; its text is only text."""
    text = f"{message}\n{hint}" if hint else message
    if bad:
        text = f"✗ {text}"  # the colour of its edge says the same
    severity = "error" if bad else "information"
    console.notify(str(content(text)), severity=cast(Any, severity), markup=False, timeout=8 if bad else 4)


def copy(console: TokpitApp, text: str, what: str) -> bool:
    """Put `text`, secrets masked, on the terminal's clipboard (OSC 52); whether it was short enough for that."""
    masked = mask_secrets(text)
    if (size := len(masked.encode())) > clipboard.MAX_BYTES:
        said = (
            f"{what}: {size / 1024:,.0f} KiB are more than the {clipboard.MAX_BYTES // 1024} KiB that a terminal takes"
        )
        tell(console, said, hint="nothing was copied; export writes files", bad=True)
        return False
    also = clipboard.put(console, masked)
    hidden = "; secrets are masked in it" if masked != text else ""
    tell(console, f"copied {what} ({len(masked)} characters){hidden}", hint=f"it is in {also} as well" if also else "")
    return True

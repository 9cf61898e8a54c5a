"""Questions: a confirmation with the exact command lines, and a prompt for a password or a host key."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from tokpit.domain.text import mask_secrets
from tokpit.ui.session_protocol import ConfirmRequest
from tokpit.ui.text import content, wrap

_CSS = """
{name} { align: center middle; background: $background 60%; }
{name} #box { width: 90%; max-width: 110; height: auto; max-height: 90%; background: $surface;
    border: round $primary; padding: 1 2; }
{name} #what { height: auto; margin-top: 1; scrollbar-size-vertical: 1; }
{name} #lines { height: auto; background: $background; padding: 0 1; }
{name} .title { text-style: bold; }
{name} .risk { color: $warning; }
{name} .destructive { color: $error; text-style: bold; }
{name} Input { height: 1; border: none; background: $panel; padding: 0 1; margin-top: 1; }
{name} Input:focus { background: $primary 30%; }
{name} #buttons { height: auto; margin-top: 1; align-horizontal: right; }
{name} Button { margin-left: 2; min-width: 12; }
{name}.low #box { padding: 0 1; max-height: 100%; }
{name}.low Input, {name}.low #buttons, {name}.low #what { margin-top: 0; }
"""


LOW = 34
"""Terminals with fewer rows get a question without empty lines."""


class ConfirmScreen(ModalScreen[bool]):
    """Cancel has the focus; a destructive command wants its word typed first.

    However much there is to read, the question and its buttons stay in view: warnings and lines scroll.
    """

    AUTO_FOCUS = "#cancel"

    CSS = _CSS.replace("{name}", "ConfirmScreen")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        *(Binding(key, f"read({step})", show=False) for key, step in
          (("up", -1), ("down", 1), ("pageup", -8), ("pagedown", 8), ("home", -9999), ("end", 9999))),
    ]  # fmt: skip

    def __init__(self, request: ConfirmRequest) -> None:
        super().__init__()
        self.request = request

    def compose(self) -> ComposeResult:
        """Title, risk, the command lines, the word, the buttons."""
        request = self.request
        with Vertical(id="box"):
            yield Static(content(request.title), classes="title")
            yield Static(content(risk_text(request.risk)), classes="destructive" if request.typed_word else "risk")
            with VerticalScroll(id="what", can_focus=False):
                for warning in request.warnings:
                    yield Static(content(f"! {warning}"), classes="risk")
                if request.lines:
                    yield Static(content("\n".join(mask_secrets(line) for line in request.lines)), id="lines")
            if request.typed_word:
                yield Static(content(f"Type {request.typed_word} to go on:"))
                yield Input(id="word", placeholder=request.typed_word, compact=True, select_on_focus=False)
            with Horizontal(id="buttons"):
                yield Button("Cancel", id="cancel")
                yield Button("Do it", id="go", variant="error" if request.typed_word else "primary")

    def on_mount(self) -> None:
        """A word that must be typed locks the button."""
        self.query_one("#go", Button).disabled = bool(self.request.typed_word)

    def on_resize(self) -> None:
        """What is to be read gets the room that the question leaves."""
        low = self.size.height < LOW
        self.set_class(low, "low")
        title = len(wrap(self.request.title, max(10, min(110, self.size.width * 9 // 10) - 6)))
        fixed = title + 1 + 3 + (2 if self.request.typed_word else 0) + (2 if low else 8)
        room = self.size.height if low else self.size.height * 9 // 10
        self.query_one("#what").styles.max_height = max(3, room - fixed)
        self.call_after_refresh(self._tell_more)

    def _tell_more(self) -> None:
        what = self.query_one("#what")
        more = what.virtual_size.height > what.size.height
        self.query_one("#box").border_subtitle = "↑ ↓ read on · esc cancels" if more else "esc cancels"

    def action_read(self, step: int) -> None:
        """Up or down in what is to be read."""
        self.query_one("#what").scroll_relative(y=step, animate=False)

    def on_key(self, event: events.Key) -> None:
        """What is typed goes into the line although Cancel has the focus."""
        word = self.query("#word").first(Input) if self.request.typed_word else None
        if word is not None and not word.has_focus and event.is_printable and event.character and event.key != "space":
            event.stop()
            word.focus()
            word.insert_text_at_cursor(event.character)

    @on(Input.Changed, "#word")
    def _typed(self, event: Input.Changed) -> None:
        self.query_one("#go", Button).disabled = event.value != self.request.typed_word

    @on(Input.Submitted, "#word")
    def _entered(self, event: Input.Submitted) -> None:
        if event.value == self.request.typed_word:
            self.dismiss(True)

    @on(Button.Pressed, "#go")
    def _go(self) -> None:
        self.dismiss(True)

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        """Do nothing."""
        self.dismiss(False)


class PromptScreen(ModalScreen["str | None"]):
    """One line of text: a password or passphrase (hidden), a name, or yes to a host key's fingerprint.

    `kind`: `password`, `passphrase`, `hostkey`, or a title of its own.
    """

    AUTO_FOCUS = "#answer, #cancel"

    CSS = _CSS.replace("{name}", "PromptScreen")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", show=False)]

    def __init__(self, kind: str, question: str) -> None:
        super().__init__()
        self.kind = kind
        self.question = question

    def compose(self) -> ComposeResult:
        """The question, and a line or two buttons to answer it."""
        hostkey = self.kind == "hostkey"
        title = {"hostkey": "Unknown host key", "password": "Password", "passphrase": "Key passphrase"}
        with Vertical(id="box"):
            yield Static(content(title.get(self.kind, self.kind)), classes="title")
            yield Static(content(self.question), id="question")
            if hostkey:
                yield Static(
                    content("Compare it with what the host's owner gave you before you accept."), classes="risk"
                )
            else:
                yield Input(password=self.kind in title, id="answer", compact=True)
            with Horizontal(id="buttons"):
                yield Button("Refuse" if hostkey else "Cancel", id="cancel")
                yield Button("Accept" if hostkey else "OK", id="go", variant="warning" if hostkey else "primary")

    @on(Input.Submitted, "#answer")
    def _entered(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    @on(Button.Pressed, "#go")
    def _go(self) -> None:
        self.dismiss("yes" if self.kind == "hostkey" else self.query_one("#answer", Input).value)

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        """Refuse."""
        self.dismiss(None)


def risk_text(risk: Any) -> str:
    """The risk as a sentence; an enum's value, or the text itself."""
    word = str(getattr(risk, "value", risk) or "").lower()
    return {
        "read": "This only reads.",
        "load": "This sends requests to the server.",
        "change": "This changes something on the host.",
        "destructive": "This ends something that may serve people.",
    }.get(word, word)

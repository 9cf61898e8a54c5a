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
from tokpit.ui.text import content

_CSS = """
{name} { align: center middle; background: $background 60%; }
{name} #box { width: 90%; max-width: 110; height: auto; max-height: 90%; background: $surface;
    border: round $primary; padding: 1 2; }
{name} #lines { height: auto; max-height: 14; margin: 1 0; background: $background; padding: 0 1; }
{name} .title { text-style: bold; }
{name} .risk { color: $warning; }
{name} .destructive { color: $error; text-style: bold; }
{name} Input { height: 1; border: none; background: $panel; padding: 0 1; margin-top: 1; }
{name} Input:focus { background: $primary 30%; }
{name} #buttons { height: auto; margin-top: 1; align-horizontal: right; }
{name} Button { margin-left: 2; min-width: 12; }
"""


_SCROLLS = {"up": "scroll_up", "down": "scroll_down", "pageup": "scroll_page_up", "pagedown": "scroll_page_down"}
_WARNINGS = 3
"""So many stand above the lines; more of them, as of many servers at once, scroll with these."""
_LEAST_LINES = 3


class ConfirmScreen(ModalScreen[bool]):
    """Cancel has the focus; a destructive command wants its word typed first."""

    AUTO_FOCUS = "#cancel"

    CSS = _CSS.replace("{name}", "ConfirmScreen")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", show=False)]

    def __init__(self, request: ConfirmRequest) -> None:
        super().__init__()
        self.request = request

    def compose(self) -> ComposeResult:
        """Title, risk, the command lines, the word, the buttons."""
        request = self.request
        with Vertical(id="box"):
            yield Static(content(request.title), classes="title")
            yield Static(content(risk_text(request.risk)), classes="destructive" if request.typed_word else "risk")
            warnings = [f"! {warning}" for warning in request.warnings]
            for warning in warnings[:_WARNINGS]:
                yield Static(content(warning), classes="risk")
            if request.lines:
                with VerticalScroll(id="lines", can_focus=False):
                    if warnings[_WARNINGS:]:
                        yield Static(content("\n".join(warnings[_WARNINGS:])), classes="risk")
                    yield Static(content("\n".join(mask_secrets(line) for line in request.lines)))
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
        """The lines take what is left: the word and the buttons are always to be seen."""
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        for lines in self.query("#lines"):
            box = self.query_one("#box")
            others = (child for child in box.children if child is not lines)
            taken = sum(child.outer_size.height + child.styles.margin.height for child in others)
            frame = box.outer_size.height - box.content_size.height + lines.styles.margin.height
            room = max(_LEAST_LINES, int(self.size.height * 0.9) - frame - taken)
            lines.styles.max_height = room
            box.border_subtitle = "↑ ↓ read on" if lines.virtual_size.height > room else ""

    def on_key(self, event: events.Key) -> None:
        """What is typed goes into the line although Cancel has the focus; arrows scroll the lines."""
        for lines in self.query("#lines").results(VerticalScroll):
            if event.key in _SCROLLS:
                event.stop()
                getattr(lines, _SCROLLS[event.key])(animate=False)
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

"""A list to choose from, over the screen that asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from tokpit.ui.text import content

AGAIN = "\0again"


class PickScreen(ModalScreen["str | None"]):
    """Gives the chosen value, `AGAIN` to look again, None for none."""

    AUTO_FOCUS = "OptionList"
    CSS = """
    PickScreen { align: center middle; background: $background 60%; }
    PickScreen #box { width: 90%; max-width: 110; height: auto; max-height: 90%; background: $surface;
        border: round $primary; padding: 1 2; }
    PickScreen .title { text-style: bold; }
    PickScreen OptionList { height: auto; max-height: 16; margin-top: 1; border: none; background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", show=False)]

    def __init__(self, title: str, choices: Sequence[tuple[str, str]], *, again: str = "") -> None:
        """`choices`: what is shown, and the value; `again`: words for looking once more, as the last line."""
        super().__init__()
        self.heading = title
        self.choices = [*choices, *([(again, AGAIN)] if again else [])]

    def compose(self) -> ComposeResult:
        """The title and the list."""
        with Vertical(id="box"):
            yield Static(content(self.heading), classes="title")
            yield OptionList(*(Option(content(shown)) for shown, _ in self.choices))

    def on_mount(self) -> None:
        """What its keys are, where no list is too long for it."""
        self.query_one("#box").border_subtitle = "enter takes · esc leaves"

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self.choices[event.option_index][1])

    def action_cancel(self) -> None:
        """None of them."""
        self.dismiss(None)

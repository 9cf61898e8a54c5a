"""The first-run tour: five lines, then never again unless asked for."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from tokpit.ui.text import content

LINES = (
    ("↑ ↓", "choose a host or a server on the left; all else follows it"),
    ("? :", "every key of a screen; everything by name"),
    ("space", "hold everything still; [ ] read all panels earlier or later"),
    ("l s d", "launch, sweep, diagnose: each shows what it will run first"),
    ("q", "leave; servers and launches live on"),
)


class TourScreen(ModalScreen[None]):
    """Any key closes it."""

    CSS = """
    TourScreen { align: center middle; background: $background 40%; }
    TourScreen Vertical { width: 76; max-width: 100%; height: auto; padding: 1 2; background: $panel;
                          border: round $primary; }
    TourScreen .last { color: $text-muted; margin-top: 1; }
    """

    def compose(self) -> ComposeResult:
        """Five lines, and how to close and reopen them."""
        with Vertical():
            for key, text in LINES:
                yield Static(content(f"{key:<7}{text}"))
            yield Static(content("any key closes this; T shows it again"), classes="last")

    def on_key(self, event: events.Key) -> None:
        """Close."""
        event.stop()
        self.dismiss()

    def on_click(self) -> None:
        """Close."""
        self.dismiss()

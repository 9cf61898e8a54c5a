"""The first-run tour: five lines, then never again unless asked for."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from tokpit.ui.actions import actions_for
from tokpit.ui.text import content

LINES: tuple[tuple[tuple[str, ...], str], ...] = (
    ((), "choose a host or a server on the left; all else follows it"),
    (("help", "jump"), "every key of a screen; everything by name"),
    (("pause",), "hold everything still; {earlier} {later} read all panels earlier or later"),
    (("launch", "sweep", "diagnose"), "launch, sweep, diagnose: each shows what it will run first"),
    (("quit",), "leave; servers and launches live on"),
)
"""Names of the cockpit's actions, and what to know."""


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
            shown = {a.name: a.key_text for a in actions_for("cockpit", getattr(self.app, "own_keys", None))}
            for names, text in LINES:
                keys = " ".join(shown[name] for name in names) or "↑ ↓"
                yield Static(content(f"{keys:<7}{text.format_map(shown)}"))
            yield Static(content(f"any key closes this; {shown['tour']} shows it again"), classes="last")

    def on_key(self, event: events.Key) -> None:
        """Close."""
        event.stop()
        self.dismiss()

    def on_click(self) -> None:
        """Close."""
        self.dismiss()

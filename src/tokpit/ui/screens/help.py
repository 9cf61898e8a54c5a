"""Keys of a screen, by group, made from the action table."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult

from tokpit.ui.actions import actions_for, bindings_for
from tokpit.ui.screens.base import PumpedScreen
from tokpit.ui.text import Row, Span
from tokpit.ui.view import View
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.panel import Panel

GLYPHS: tuple[tuple[str, str, str], ...] = (
    ("●", "good", "link up, server ready"),
    ("◌ ◐", "warn", "connecting; server starting, loading, capturing"),
    ("✗", "bad", "link lost or failed, server failed or gone"),
    ("┊", "mark", "an event on a chart: launch, ready, sweep level"),
    ("stale", "stale", "a figure older than it should be"),
)


class HelpPanel(Panel):
    """The table."""

    ages = False

    def __init__(self, screen_name: str) -> None:
        super().__init__(id="help")
        self.screen_name = screen_name

    def heading(self, width: int) -> tuple[Row, Row]:
        """Of which screen."""
        return [(f"keys of the {self.screen_name}", "title")], [("esc closes", "dim")]

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Groups one after the other, in two columns where there is room."""
        rows: list[list[Span]] = []
        actions = actions_for(self.screen_name, getattr(self.app, "own_keys", None))
        for group in dict.fromkeys(a.group for a in actions):
            rows.append([(group, "dim")])
            for a in actions:
                if a.group == group:
                    rows.append([(f"  {a.key_text:<7}", "key"), (a.help, "fg")])
        rows.append([("in the log and the tree", "dim")])
        rows.append([("  ↑ ↓    ", "key"), ("line or node; page up, page down, home, end; ← → long lines", "fg")])
        rows.append([("signs", "dim")])
        rows += [[(f"  {sign:<7}", style), (text, "fg")] for sign, style, text in GLYPHS]
        if len(rows) <= height or width < 90:
            return rows
        half = -(-len(rows) // 2)
        column = width // 2
        joined: list[Row] = []
        for n in range(half):
            left = rows[n]
            pad = column - sum(len(text) for text, _ in left)
            right = rows[n + half] if n + half < len(rows) else []
            joined.append([*left, (" " * max(1, pad), "fg"), *right])
        return joined


class HelpScreen(PumpedScreen):
    """See the module docstring."""

    BINDINGS = bindings_for("help")

    def __init__(self, view: View, screen_name: str) -> None:
        super().__init__(view)
        self.screen_name = screen_name

    def compose(self) -> ComposeResult:
        """The table and the keys that work here."""
        yield HelpPanel(self.screen_name)
        yield Footer("help")

    def action_leave(self) -> None:
        """Back."""
        self.app.pop_screen()

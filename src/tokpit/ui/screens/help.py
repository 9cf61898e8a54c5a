"""Keys of a screen, by group, made from the action table."""

from __future__ import annotations

from textual.app import ComposeResult

from tokpit.ui.actions import actions_for, bindings_for
from tokpit.ui.screens.base import PumpedScreen
from tokpit.ui.text import Row, Span, row_width, wrap
from tokpit.ui.view import View
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.scrolled import ScrolledPanel

GLYPHS: tuple[tuple[str, str, str], ...] = (
    ("●", "good", "link up, server ready"),
    ("◌ ◐", "warn", "connecting; server starting, loading, capturing"),
    ("✗", "bad", "link lost or failed, server failed or gone"),
    ("▲ △", "bad", "alarms; all of them acknowledged"),
    ("┊", "mark", "an event on a chart: launch, ready, sweep level"),
    ("stale", "stale", "a figure older than it should be"),
)


class HelpPanel(ScrolledPanel):
    """The table."""

    ages = False

    def __init__(self, screen_name: str) -> None:
        super().__init__(id="help")
        self.screen_name = screen_name

    def heading(self, width: int) -> tuple[Row, Row]:
        """Of which screen."""
        return [(f"keys of the {self.screen_name}", "title")], [*self.place(), ("  esc closes", "dim")]

    def all_rows(self, width: int) -> list[Row]:
        """Groups one after the other, in two columns where they do not fit into one and there is room."""
        rows = self._rows(width)
        if len(rows) <= self.inner_size().height or width < 90:
            return list(rows)
        column = (width - 2) // 2
        rows = self._rows(column)
        half = -(-len(rows) // 2)
        joined: list[Row] = []
        for n in range(half):
            left = rows[n]
            right = rows[n + half] if n + half < len(rows) else []
            joined.append([*left, (" " * (column + 2 - row_width(left)), "fg"), *right])
        return joined

    def _rows(self, width: int) -> list[list[Span]]:
        rows: list[list[Span]] = []
        actions = actions_for(self.screen_name, getattr(self.app, "own_keys", None))
        for group in dict.fromkeys(a.group for a in actions):
            rows.append([(group, "dim")])
            for a in actions:
                if a.group == group:
                    rows += _hanging(a.key_text, "key", a.help, width)
        rows.append([("in the log and the tree", "dim")])
        rows += _hanging("↑ ↓", "key", "line or node; ← → long lines", width)
        rows += _hanging("pgup", "key", "page up, page down, home, end: the log, wherever the cursor is", width)
        rows.append([("signs", "dim")])
        for sign, style, text in GLYPHS:
            rows += _hanging(sign, style, text, width)
        return rows


def _hanging(first: str, style: str, text: str, width: int) -> list[list[Span]]:
    lines = wrap(text, max(8, width - 9))
    return [[(f"  {first if n == 0 else '':<7}", style), (line, "fg")] for n, line in enumerate(lines)]


class HelpScreen(PumpedScreen):
    """See the module docstring."""

    BINDINGS = bindings_for("help")
    AUTO_FOCUS = "#help"

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

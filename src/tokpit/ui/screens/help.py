"""Keys of a screen, by group, made from the action table."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult

from tokpit.ui.actions import actions_for, bindings_for
from tokpit.ui.screens.base import PumpedScreen
from tokpit.ui.text import Row, Span, row_width, wrap
from tokpit.ui.view import View
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.scrolled import ScrolledPanel

COLUMN = 45
"""Cells that a column needs at least."""
GLYPHS: tuple[tuple[str, str, str], ...] = (
    ("●", "good", "link up, server ready"),
    ("◌ ◐", "warn", "connecting; server starting, loading, capturing"),
    ("✗", "bad", "link lost or failed, server failed or gone"),
    ("▲ △", "bad", "alarms; all of them acknowledged"),
    ("?", "dim", "not known: no link, or nothing has said so yet"),
    ("⚠", "bad", "a GPU is throttled"),
    ("▸", "title", "the panel or row that the keys go to"),
    ("◆", "accent", "picked"),
    ("✧", "accent", "a simulated host, not a real one"),
    ("+2", "dim", "so many more figures or servers found no room"),
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
        """Groups one after the other, in columns where they do not fit into one and there is room."""
        height = self.inner_size().height
        for count in range(1, max(1, width // COLUMN) + 1):
            room = (width - 2 * (count - 1)) // count
            columns = _split(self._blocks(room), count)
            if max(map(len, columns)) <= height:
                break
        joined: list[Row] = []
        for n in range(max(map(len, columns))):
            row: list[Span] = []
            for place, column in enumerate(columns):
                row.append((" " * ((room + 2) * place - row_width(row)), "fg"))
                row += column[n] if n < len(column) else []
            joined.append(row)
        return joined

    def _blocks(self, width: int) -> list[list[list[Span]]]:
        """What must stay together: an entry with all its lines, a heading with its first entry."""
        actions = actions_for(self.screen_name, getattr(self.app, "own_keys", None))
        groups = {
            group: [_hanging(a.key_text, "key", a.help, width) for a in actions if a.group == group]
            for group in dict.fromkeys(a.group for a in actions)
        }
        groups["in the log and the tree"] = [
            _hanging("↑ ↓", "key", "line or node; ← → long lines", width),
            _hanging("pgup", "key", "page up, page down, home, end: the log, wherever the cursor is", width),
        ]
        groups["signs"] = [_hanging(sign, style, text, width) for sign, style, text in GLYPHS]
        blocks: list[list[list[Span]]] = []
        for group, entries in groups.items():
            blocks += [[[(group, "title")], *entries[0]], *entries[1:]]
        return blocks


def _split(blocks: Sequence[list[list[Span]]], count: int) -> list[list[list[Span]]]:
    """The blocks in `count` columns of about the same length."""
    most = -(-sum(map(len, blocks)) // count)
    columns: list[list[list[Span]]] = [[]]
    for block in blocks:
        if len(columns[-1]) + len(block) > most + 1 and len(columns) < count:
            columns.append([])
        columns[-1] += block
    return columns


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

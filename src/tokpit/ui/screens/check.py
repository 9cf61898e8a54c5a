"""Check: does the server answer, with sense, as configured, as fast as it was, without errors in its log?"""

from __future__ import annotations

import secrets
from typing import Any

from textual.app import ComposeResult

from tokpit.domain.server import ServerInfo
from tokpit.ui import figures
from tokpit.ui.actions import bindings_for, keycap
from tokpit.ui.screens.base import PumpedScreen
from tokpit.ui.text import Row, safe, wrap_row
from tokpit.ui.view import View
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.header import Header
from tokpit.ui.widgets.levels import hanging
from tokpit.ui.widgets.scrolled import ScrolledPanel

_SIGNS = {True: ("● ", "good"), False: ("✗ ", "bad"), None: ("○ ", "dim")}


class CheckPanel(ScrolledPanel):
    """One item after the other, then the verdict."""

    def __init__(self, label: str) -> None:
        super().__init__(id="check")
        self.label = label
        self.checked: Any = None
        self.under_way = True
        self.problem = ""

    def heading(self, width: int) -> tuple[Row, Row]:
        """What is checked, and how it went."""
        left: Row = [(f"check {safe(self.label)}", "title")]
        if self.under_way:
            return left, [("◐ asking it", "warn")]
        if self.checked is None:
            return left, [("✗ not finished", "bad-bold")]
        took = figures.seconds(self.checked.elapsed_s)
        return left, [("● ok" if self.checked.ok else "✗ failed", "good-bold" if self.checked.ok else "bad-bold"),
                      (f"  after {took}", "dim")]  # fmt: skip

    def all_rows(self, width: int) -> list[Row]:
        """Items with their sentences."""
        if self.under_way:
            return [[("a token, answers, the flags in effect, speed, the log: under 20 seconds", "dim")]]
        if self.checked is None:
            why = hanging("✗ ", "bad", safe(self.problem), "bad", width) if self.problem else []
            again = [("it could not be checked; ", "dim"), keycap(self.app, "check.again"), (" tries again", "dim")]
            return [*why, *wrap_row(again, width)]
        rows: list[Row] = []
        for item in self.checked.items:
            sign, style = _SIGNS[item.ok]
            rows.append([(sign, style), (safe(item.name), "bold")])
            rows += hanging("  ", "fg", safe(item.sentence), "bad" if item.ok is False else "fg", width)
        if self.checked.run:
            rows += [[], [("stored as ", "dim"), (safe(self.checked.run), "fg")]]
        return rows


class CheckScreen(PumpedScreen):
    """See the module docstring."""

    BINDINGS = bindings_for("check")
    AUTO_FOCUS = "#check"

    def __init__(self, view: View, info: ServerInfo) -> None:
        super().__init__(view)
        self.info = info

    def compose(self) -> ComposeResult:
        """Header, items, keys."""
        yield Header(self.view)
        yield CheckPanel(self.info.label)
        yield Footer("check")

    def on_mount(self) -> None:
        """Begin at once."""
        super().on_mount()
        self.action_again()

    def action_again(self) -> None:
        """Check (again)."""
        panel = self.query_one(CheckPanel)
        if f"server.check {self.info.id}" not in self.console.busy:
            panel.under_way, panel.checked = True, None
            panel.redraw()
            self.console.start_command(
                "server.check",
                then=self.fill,
                target=self.info.id,
                operation_id=f"check-{secrets.token_hex(4)}",
            )

    def fill(self, checked: Any) -> None:
        """Show what was found."""
        for panel in self.query(CheckPanel) if self.is_attached else ():
            panel.under_way, panel.checked = False, checked
            panel.problem = self.console.problems.get("server.check", "")
            panel.redraw()

    def action_leave(self) -> None:
        """Back; the check goes on and is stored."""
        self.app.pop_screen()

"""Relaunch: the running server's settings as a form, and what would differ before anything is asked or stopped."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from tokpit.domain.records import Operation
from tokpit.domain.server import ServerInfo
from tokpit.transport.base import quote
from tokpit.ui.actions import bindings_for
from tokpit.ui.relaunching import (
    NEW,
    OLD,
    RELAUNCH_FIELDS,
    SAME,
    command_lines,
    line_diff,
    problem_of,
    running_values,
    settings_diff,
)
from tokpit.ui.screens.base import copy, tell
from tokpit.ui.screens.launch import START_CSS, StartForm
from tokpit.ui.text import Row, Span, content, fit, row_width, safe, wrap
from tokpit.ui.view import View
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.header import Header
from tokpit.ui.widgets.operation import StepsPanel
from tokpit.ui.widgets.panel import Panel

_STYLE = {SAME: "dim", OLD: "bad", NEW: "good"}


class DiffPanel(Panel):
    """Changed settings, old against new; below them the command line with what leaves and what comes."""

    ages = False

    def __init__(self, info: ServerInfo) -> None:
        super().__init__(id="diff")
        self.info = info
        self.changes: dict[str, Any] | None = {}
        self.problem = ""

    def show(self, changes: dict[str, Any] | None, problem: str) -> None:
        """What the form says now."""
        self.changes, self.problem = changes, problem
        self.redraw()

    def heading(self, width: int) -> tuple[Row, Row]:
        """How much differs."""
        if self.changes is None:
            return [("changes", "title")], [("see below", "warn")]
        count = len(self.changes)
        return [("changes", "title")], [(f"{count} setting{'s' if count != 1 else ''}", "accent" if count else "dim")]

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The diff, or what is off."""
        if self.changes is None:
            return [[(line, "warn")] for line in wrap(safe(self.problem), width)]
        rows: list[Row] = []
        if not self.changes:
            rows.append([("nothing is changed: it would be started again as it is", "dim")])
        for name, old, new in settings_diff(self.info.settings, self.changes):
            rows.append([(fit(name, 20), "fg"), (safe(old), "bad"), (" → ", "dim"), (safe(new), "good")])
        rows.append([])
        return [*rows, *flag_rows(line_diff(*command_lines(self.info, self.changes)), width)]


def flag_rows(flags: Sequence[tuple[str, str]], width: int) -> list[Row]:
    """Flags one after the other in lines of `width`, signed and coloured where they differ."""
    rows: list[list[Span]] = [[]]
    for sign, text in flags:
        word = safe(text) if sign == SAME else f"{sign} {safe(text)}"
        for n, line in enumerate(wrap(word, width)):
            if rows[-1] and (n or row_width(rows[-1]) + len(line) + 2 > width):
                rows.append([])
            if rows[-1]:
                rows[-1].append(("  ", "fg"))
            rows[-1].append((line, _STYLE[sign]))
    return list(rows)


def _more(info: ServerInfo) -> str:
    """What else of a server there is: its job, or all of its hosts."""
    if info.job is not None:
        return f", job {info.job.id}: cancelled, and submitted again with the change"
    return f" on {len(info.ranks)} hosts: {', '.join(info.ranks)}" if info.ranks else ""


class RelaunchScreen(StartForm):
    """See the module docstring. Only what differs is sent."""

    BINDINGS = bindings_for("relaunch")
    AUTO_FOCUS = "#field-spec_steps"
    FIELDS = RELAUNCH_FIELDS
    command = "server.relaunch"
    CSS = (
        START_CSS.replace("{name}", "RelaunchScreen")
        + "RelaunchScreen DiffPanel { height: 1fr; min-height: 6; margin-top: 1; }"
    )

    def __init__(self, view: View, info: ServerInfo) -> None:
        super().__init__(view, info.host)
        self.info = info
        self.changes: dict[str, Any] | None = {}
        self._before: frozenset[str] = frozenset()

    def compose(self) -> ComposeResult:
        """Fields, the difference, the steps."""
        yield Header(self.view)
        yield Static(content(f"Relaunch {self.info.label}{_more(self.info)}"), classes="heading")
        with VerticalScroll(classes="form", can_focus=False):
            yield from self.inputs(running_values(self.info.settings))
        yield DiffPanel(self.info).add_class("diff")
        yield StepsPanel(self.view, self.operation)
        yield Footer("relaunch")

    def operation(self) -> Operation | None:
        """The launch that this screen started: by its id, else the newest of this host since then."""
        if not self.operation_id:
            return None
        operations = self.view.store.operations
        if self.operation_id in operations:
            return operations[self.operation_id]
        # The first of several ranks stands for all of them.
        hosts = {self.host, *self.info.ranks}
        fresh = (op for key, op in operations.items() if key not in self._before and op.target in hosts)
        return max((op for op in fresh if op.kind in {"launch", "relaunch"}), key=lambda op: op.started_t, default=None)

    @on(Input.Changed)
    def update_diff(self) -> None:
        """What the form changes, or what is off."""
        self.changes, problem = problem_of(self.info, self.fields())
        self.show_problem(problem)
        self.query_one(DiffPanel).show(self.changes, problem)

    def checked(self) -> bool:
        """The changes are whole."""
        self.update_diff()
        return self.changes is not None

    def target(self) -> str:
        """The server."""
        return self.info.id

    def start(self) -> None:
        """Relaunch; the gate asks for the word."""
        self._before = frozenset(self.view.store.operations)
        self.operation_id = f"relaunch-{secrets.token_hex(4)}"
        self.console.start_command(
            self.command, server_id=self.info.id, changes=self.changes, operation_id=self.operation_id
        )

    def action_copy_line(self) -> None:
        """The new command line, to the terminal's clipboard."""
        if self.changes is None:
            tell(self.console, self.problem, bad=True)
        else:
            copy(self.console, quote(command_lines(self.info, self.changes)[1]), "the new command line")

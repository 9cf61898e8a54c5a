"""Diagnose: what the rules say of a server, ranked; evidence and arithmetic open in place."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Input

from tokpit.domain.finding import Finding
from tokpit.domain.server import ServerInfo
from tokpit.errors import TokpitError, UsageError
from tokpit.report.console import finding_text
from tokpit.ui.actions import bindings_for, keycap
from tokpit.ui.screens.base import PumpedScreen, copy, tell
from tokpit.ui.text import Row, Span, safe, wrap, wrap_row
from tokpit.ui.view import Diagnosed, View
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.header import Header
from tokpit.ui.widgets.levels import hanging
from tokpit.ui.widgets.reach import ASK, ReachPanel, asked
from tokpit.ui.widgets.scrolled import ScrolledPanel

_SIGNS = {"error": ("✗ ", "bad"), "warning": ("! ", "warn"), "info": ("· ", "dim")}


class FindingsPanel(ScrolledPanel):
    """Findings with a cursor; those that are open show what they rest on."""

    ages = False

    def __init__(self) -> None:
        super().__init__(id="findings")
        self.findings: tuple[Finding, ...] | None = None
        self.notes: tuple[str, ...] = ()
        self.problem = ""
        self.at: float | None = None
        """When they were looked for, on the host's clock."""
        self.cursor = 0
        self.opened: set[int] = set()
        self._starts: list[int] = []

    def heading(self, width: int) -> tuple[Row, Row]:
        """How many of which kind."""
        if self.findings is None:
            return [("findings", "title")], []
        counts = [(name, sum(f.severity == name for f in self.findings)) for name in ("error", "warning", "info")]
        right: list[Span] = []
        for name, count in counts:
            if count:
                plural = "s" if count > 1 and name != "info" else ""
                right += [("  " if right else "", "fg"), (f"{count} {name}{plural}", _SIGNS[name][1])]
        if self.at is not None:
            right += [("  " if right else "", "fg"), (time.strftime("at %H:%M:%SZ", time.gmtime(self.at)), "dim")]
        return [("findings", "title")], right

    def all_rows(self, width: int) -> list[Row]:
        """Every finding, the open ones with what is behind them."""
        if self.problem:
            return hanging("✗ ", "bad", safe(self.problem), "bad", width)
        if self.findings is None:
            return [[("reading log, settings, GPUs and memory of the host …", "dim")]]
        rows: list[Row] = []
        self._starts = []
        if not self.findings:
            rows.append([("● ", "good"), ("no rule found anything wrong", "fg")])
            keys: Row = [
                keycap(self.app, "diagnose.again"),
                (" looks again, ", "dim"),
                keycap(self.app, "diagnose.reach"),
                (" says what a higher rate would take", "dim"),
            ]
            rows += [[("  ", "fg"), *line] for line in wrap_row(keys, width - 2)]
        for n, finding in enumerate(self.findings):
            self._starts.append(len(rows))
            rows += self._finding(n, finding, width)
        for note in self.notes:
            rows += hanging("  ", "fg", safe(note), "dim", width)
        return rows

    def _finding(self, n: int, finding: Finding, width: int) -> list[Row]:
        here = n == self.cursor
        sign, style = _SIGNS.get(finding.severity, _SIGNS["info"])
        lines = wrap(safe(finding.claim), width - 4)
        rows: list[Row] = [
            [("▸ " if here and k == 0 else "  ", "accent"), (sign if k == 0 else "  ", style),
             (line, "cursor" if here else "bold" if finding.severity != "info" else "fg")]
            for k, line in enumerate(lines)
        ]  # fmt: skip
        if n in self.opened:
            for part in finding.arithmetic.split("\n") if finding.arithmetic else ():
                rows += hanging("      ", "fg", safe(part), "accent", width)
            for line in finding.evidence:
                rows += hanging("      │ ", "dim", safe(line), "fg", width)
            sure = f"{finding.code} · {finding.confidence}"
            rows.append([("      ", "fg"), (safe(sure), "dim")])
        if finding.next_action and (n in self.opened or here):
            rows += hanging("    → ", "accent", safe(finding.next_action), "fg", width)
        return rows

    def action_scroll(self, step: int) -> None:
        """The cursor moves from finding to finding and stays in view."""
        if not self.findings:
            return
        self.cursor = max(0, min(len(self.findings) - 1, self.cursor + step))
        width, height = self.inner_size()
        rows = self.all_rows(width)
        start = self._starts[self.cursor]
        end = self._starts[self.cursor + 1] if self.cursor + 1 < len(self._starts) else len(rows)
        self.top = start if start < self.top or end - start > height else max(self.top, end - height)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """The finding clicked; a second click opens or closes it."""
        row = self.top + event.y - 1
        if not self.findings or not 0 <= event.y - 1 < self.inner_size().height or row >= self._count:
            return
        clicked = max((n for n, start in enumerate(self._starts) if start <= row), default=None)
        if clicked is None:
            return
        if clicked == self.cursor:
            self.toggle()
        else:
            self.action_scroll(clicked - self.cursor)

    def toggle(self) -> None:
        """Open or close the finding under the cursor."""
        self.opened ^= {self.cursor}
        self.action_scroll(0)


class DiagnoseScreen(PumpedScreen):
    """See the module docstring."""

    BINDINGS = bindings_for("diagnose")
    AUTO_FOCUS = "#findings"
    CSS = """
    DiagnoseScreen FindingsPanel { height: 1fr; }
    DiagnoseScreen ReachPanel { height: 55%; display: none; }
    DiagnoseScreen ReachPanel.open { display: block; }
    DiagnoseScreen #rate { display: none; height: 1; border: none; padding: 0 1; background: $panel; }
    DiagnoseScreen #rate.open { display: block; }
    """

    def __init__(self, view: View, info: ServerInfo) -> None:
        super().__init__(view)
        self.info = info
        self._facts: Any = None
        self._curve: Any = None
        self._found: Any = None

    def compose(self) -> ComposeResult:
        """Header, findings, keys."""
        yield Header(self.view)
        yield FindingsPanel()
        yield ReachPanel()
        yield Input(placeholder=f"{ASK}; enter says what it takes, esc closes", id="rate", compact=True)
        yield Footer("diagnose")

    def on_mount(self) -> None:
        """Look at once."""
        super().on_mount()
        self.action_again()

    def action_again(self) -> None:
        """Look (again)."""
        panel = self.query_one(FindingsPanel)
        panel.findings, panel.problem = None, ""
        panel.redraw()
        self.run_worker(self._look(), exclusive=True, exit_on_error=False)

    async def _look(self) -> None:
        from tokpit.ops.diagnose.run import Sources, diagnose_all

        panel = self.query_one(FindingsPanel)
        if self.view.player is not None or self.view.past is not None:
            from tokpit.ops.diagnose.store import diagnose_store

            then = diagnose_store(self.view.store, self.info.id)
            note = "from what was recorded up to this moment; the host itself was not asked"
            self.fill(then.findings, (*then.notes, note), then.facts)
            return
        try:
            found = await diagnose_all(self.view.session, Sources(target=self.info.id))  # type: ignore[arg-type]  # the console's session is one of ops
        except TokpitError as error:
            panel.problem = error.message + (f" ({error.hint})" if error.hint else "")
            panel.redraw()
            return
        self._found = found
        self.fill(found.findings, found.notes, found.facts, found.curve)

    def fill(
        self, findings: Sequence[Finding], notes: Sequence[str] = (), facts: Any = None, curve: Any = None
    ) -> None:
        """Show these findings, and keep them for the cockpit's header."""
        from tokpit.insight.roofline import stream_roofline

        panel = self.query_one(FindingsPanel)
        told = {finding.code for finding in findings}
        alarms = [a for a in self.view.alarms(self.info.id, self.info.host) if a.code not in told]
        standing = [f"▲ alarm: {a.finding.claim}" for a in alarms]
        panel.findings, panel.notes, panel.problem = tuple(findings), (*standing, *notes), ""
        panel.cursor, panel.top, panel.opened, panel.at = 0, 0, set(), self.view.now()
        self._facts, self._curve = facts, curve
        roof = stream_roofline(facts) if facts is not None else None
        self.view.diagnosed[self.info.id] = Diagnosed(
            self.view.now(),
            tuple(findings),
            roof.steps_per_s if roof is not None else None,
            roof.words() if roof is not None else "",
        )
        self.redraw_all()

    def action_open(self) -> None:
        """Show or hide what the finding rests on."""
        self.query_one(FindingsPanel).toggle()

    def action_copy_finding(self) -> None:
        """The finding under the cursor with everything, to the terminal's clipboard."""
        panel = self.query_one(FindingsPanel)
        if not panel.findings:
            tell(self.console, "there is no finding to copy")
            return
        copy(self.console, finding_text(panel.findings[panel.cursor], self.info.label), "the finding")

    def action_reach(self) -> None:
        """Ask for a rate."""
        line = self.query_one("#rate", Input)
        line.add_class("open")
        line.focus()

    @on(Input.Submitted, "#rate")
    def _asked(self, event: Input.Submitted) -> None:
        from tokpit.insight.facts import Facts
        from tokpit.insight.solver import reach_all, reach_one

        try:
            everything, rate = asked(event.value)
        except UsageError as error:
            tell(self.console, error.message, hint=error.hint, bad=True)
            return
        panel = self.query_one(ReachPanel)
        facts = self._facts or Facts()
        panel.reach = reach_all(facts, self._curve, rate) if everything else reach_one(facts, rate)
        panel.top = 0
        panel.add_class("open")
        self.query_one("#rate", Input).remove_class("open")
        panel.focus()
        self.redraw_all()

    def action_export(self) -> None:
        """Every finding with what it rests on, into a file."""
        from tokpit.ui.exporting import export

        found = self.query_one(FindingsPanel).findings
        if not found:
            tell(self.console, "there is no finding to export")
            return
        texts = {"findings.txt": "\n\n".join(finding_text(finding, self.info.label) for finding in found) + "\n"}
        if self._found is not None:
            from tokpit.ops.diagnose.run import Sources
            from tokpit.ops.records.incident import incident_of
            from tokpit.ops.records.report import document_of
            from tokpit.report import FORMATS

            incident = document_of(incident_of(Sources(target=self.info.label), self._found, "not kept"))
            texts |= {f"report.{kind}": FORMATS[kind](incident) for kind in ("html", "md")}
        export(self.console, f"findings-{self.info.label}", texts)

    def action_leave(self) -> None:
        """Close what is open, the question first; then back."""
        for one in (self.query_one("#rate", Input), self.query_one(ReachPanel)):
            if one.has_class("open"):
                one.remove_class("open")
                self.query_one(FindingsPanel).focus()
                self.redraw_all()
                return
        self.app.pop_screen()

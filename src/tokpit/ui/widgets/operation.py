"""What tokpit is doing: the steps of a launch as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokpit.domain.records import Operation
from tokpit.ui import figures
from tokpit.ui.text import Row, Span, fit, safe, two_sided, wrap
from tokpit.ui.view import View
from tokpit.ui.widgets.panel import Panel

Find = Callable[[], Operation | None]
ENDS = {"done": ("●", "good-bold"), "failed": ("✗", "bad-bold"), "stopped": ("■", "warn-bold")}


class OperationPanel(Panel):
    """Draws one operation, which `find` gives."""

    def __init__(self, view: View, find: Find, name: str) -> None:
        super().__init__(id=name)
        self.view = view
        self.find = find

    def topics(self) -> Sequence[str]:
        """Operations."""
        return ("ops",)


class StepsPanel(OperationPanel):
    """A launch: each milestone with its time, then READY, or FAILED with cause and hint."""

    def __init__(self, view: View, find: Find) -> None:
        super().__init__(view, find, "steps")

    def heading(self, width: int) -> tuple[Row, Row]:
        """Title and the time so far."""
        operation = self.find()
        if operation is None:
            return [("launch", "title")], []
        return [(safe(operation.title), "title")], [(figures.duration(self._elapsed(operation)), "fg")]

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Command lines, steps, verdict; the newest steps stay in view."""
        operation = self.find()
        if operation is None:
            return [[("asking …", "dim")]]
        head: list[Row] = []
        for command in operation.commands[:2]:
            head += [
                [("$ " if n == 0 else "  ", "dim"), (line, "dim")]
                for n, line in enumerate(wrap(safe(command), width - 2))
            ]
        head.append([])
        tail = self._verdict(operation, width)
        steps = self._steps(operation, width)
        room = max(1, height - len(head) - len(tail))
        if room < 4:
            head, room = [], max(1, height - len(tail))
        return [*head, *steps[-room:], *tail]

    def _elapsed(self, operation: Operation) -> float:
        if operation.status != "running":
            return operation.t - operation.started_t
        return max(operation.t, self.view.now()) - operation.started_t

    def _steps(self, operation: Operation, width: int) -> list[Row]:
        rows: list[Row] = []
        before = 0.0
        for index, step in enumerate(operation.steps):
            last = index == len(operation.steps) - 1
            glyph, style = ("◐", "warn") if last and operation.status == "running" else ("●", "good")
            if last and operation.status == "failed":
                glyph, style = "✗", "bad"
            took = step.elapsed_s - before
            before = step.elapsed_s
            left: list[Span] = [(f"{glyph} ", style), (figures.duration(step.elapsed_s).rjust(7), "fg"), ("  ", "fg")]
            left += [(safe(step.label), "fg"), (f"  {safe(step.detail)}" if step.detail else "", "dim")]
            rows.append(two_sided(left, [(f"+{took:.1f}s", "dim")], width))
        if operation.status == "running" and not rows:
            rows.append([("◐ ", "warn"), ("waiting for the first sign of life", "dim")])
        return rows

    def _verdict(self, operation: Operation, width: int) -> list[Row]:
        stuck = operation.result.get("stuck")
        if operation.status == "running":
            return [[("! " if n == 0 else "  ", "warn"), (line, "warn")]
                    for n, line in enumerate(wrap(safe(stuck), width - 2))] if stuck else []  # fmt: skip
        glyph, style = ENDS.get(operation.status, ("?", "dim"))
        took = figures.duration(operation.t - operation.started_t)
        if operation.status == "done":
            rows: list[Row] = [[], [(f"{glyph} READY", style), (f"  after {took}", "fg")]]
        else:
            rows = [[], [(f"{glyph} {operation.status.upper()}", style), (f"  after {took}", "fg")]]
        rows += [[("  ", "fg"), (line, "bad")] for line in wrap(safe(operation.error), width - 2) if operation.error]
        rows += [[("→ " if n == 0 else "  ", "accent"), (line, "fg")]
                 for n, line in enumerate(wrap(safe(operation.hint), width - 2)) if operation.hint]  # fmt: skip
        shown = {k: v for k, v in operation.result.items() if v and k not in {"phase", "stuck", "server", "ready_s"}}
        return rows + [[("  " + fit(safe(k), 14), "dim"), (safe(v), "fg")] for k, v in shown.items()]

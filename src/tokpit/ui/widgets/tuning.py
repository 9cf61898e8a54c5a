"""Panels of an experiment: leaderboard, Pareto chart or sweep curves, and what was left out or came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokpit.domain.tuning import LeftOut, Tuning
from tokpit.tune.space import words_of
from tokpit.ui import figures
from tokpit.ui.charts.plotext_canvas import PlotextCanvas
from tokpit.ui.text import Row, Span, fitting, row_width, safe
from tokpit.ui.tuning import ENDED, PHASES, board_rows, curves_of, pareto_rows, places_of
from tokpit.ui.view import View
from tokpit.ui.widgets.levels import hanging
from tokpit.ui.widgets.panel import Panel
from tokpit.ui.widgets.scrolled import ScrolledPanel

Find = Callable[[], Tuning | None]
_CODES = {
    "rules": "refused by rules", "memory": "no room in memory", "same": "another stands for them",
    "ceiling": "cannot reach the best", "limit": "not reached",
}  # fmt: skip


class TuningPanel(Panel):
    """Something of one experiment. `find` gives it as it stands."""

    def __init__(self, view: View, find: Find, *, id: str) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self.view = view
        self.find = find

    def topics(self) -> Sequence[str]:
        """Experiments."""
        return ("tune",)


class BoardPanel(TuningPanel, ScrolledPanel):
    """Candidates, the best first."""

    def __init__(self, view: View, find: Find) -> None:
        super().__init__(view, find, id="board")

    def heading(self, width: int) -> tuple[Row, Row]:
        """Phase, restarts, time left."""
        tuning = self.find()
        if tuning is None:
            return [("experiment", "title")], []
        style = {"done": "good-bold", "failed": "bad-bold", "stopped": "warn-bold"}.get(tuning.phase, "warn")
        limit = f" of {tuning.restarts_limit}" if tuning.restarts_limit else ""
        plural = "" if tuning.restarts == 1 else "s"
        right: list[Span] = [
            (f"{tuning.restarts}{limit} restart{plural}", "fg"),
            (f"  {tuning.waiting} waiting", "dim"),
        ]
        if tuning.phase not in ENDED and tuning.left_s is not None:
            left = max(0.0, tuning.left_s - max(0.0, self.view.now() - tuning.t))
            right.append((f"  at most {figures.duration(left)} left", "accent"))
        left_part: list[Span] = [(f"{safe(tuning.target)}  ", "title"), (PHASES.get(tuning.phase, tuning.phase), style)]
        return left_part, right

    def all_rows(self, width: int) -> list[Row]:
        """Header and candidates."""
        tuning = self.find()
        if tuning is None:
            return [[("looking at the server, its host and its candidates …", "dim")]]
        return board_rows(tuning, width)


class TuneChart(TuningPanel):
    """Throughput against the speed of one stream, or against concurrency."""

    ages = False

    def __init__(self, view: View, find: Find) -> None:
        super().__init__(view, find, id="tune-chart")
        self.curves = False
        self._canvas = PlotextCanvas()
        self.min_interval_s = 0.5

    def heading(self, width: int) -> tuple[Row, Row]:
        """What is drawn, and the signs."""
        tuning = self.find()
        if self.curves:
            chart = curves_of(tuning, width, 10) if tuning is not None else None
            right: list[Span] = []
            for curve in chart.curves if chart is not None else ():
                right += [("  " if right else "", "fg"), (curve.label, curve.style)]
            return [("tok/s against concurrency", "title")], right
        title: list[Span] = [("tok/s against one stream", "title")]
        signs = (("★", "accent", "ahead"), ("▲", "good", "first"), ("◆", "series-1", "front"), ("○", "dim", "in part"))
        parts: list[list[Span]] = [[(sign, style), (f" {word}", "dim")] for sign, style, word in signs]
        return title, fitting(parts, width - row_width(title) - 1)[0]

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The chart, or what is missing for one."""
        tuning = self.find()
        if tuning is None:
            return []
        if self.curves:
            chart = curves_of(tuning, width, height)
            if chart is None:
                return [[("no candidate has two levels yet", "dim")]]
            return self._canvas.draw(chart, width, height)
        rows = pareto_rows(places_of(tuning), width, height)
        return rows or [[("the first measurement is not finished yet", "dim")]]


class OutcomePanel(TuningPanel, ScrolledPanel):
    """While it runs: what was left out, and why. At the end: what to run, and the report below."""

    ages = False

    def __init__(self, view: View, find: Find) -> None:
        super().__init__(view, find, id="outcome")

    def heading(self, width: int) -> tuple[Row, Row]:
        """Which of both."""
        tuning = self.find()
        if tuning is not None and tuning.report:
            return [("report", "title")], self.place()
        count = len(tuning.left_out) if tuning is not None else 0
        return [(f"left out: {count}", "title")], self.place()

    def all_rows(self, width: int) -> list[Row]:
        """Every line."""
        tuning = self.find()
        if tuning is None:
            return []
        if tuning.report:
            return _report_rows(tuning.report, width)
        rows: list[Row] = []
        for code in dict.fromkeys(item.code for item in tuning.left_out):
            group = [item for item in tuning.left_out if item.code == code]
            rows += _group_rows(code, group, width)
        return rows or [[("nothing is left out so far", "dim")]]


def _group_rows(code: str, group: Sequence[LeftOut], width: int) -> list[Row]:
    rows: list[Row] = [[(f"{len(group)} ", "bold"), (_CODES.get(code, code), "accent")]]
    for item in group[:20]:
        rows += hanging("  ", "fg", safe(f"{words_of(item.choice)}: {item.reason}"), "fg", width)
    if len(group) > 20:
        rows.append([(f"  and {len(group) - 20} more for such a reason", "dim")])
    return rows


def _report_rows(report: str, width: int) -> list[Row]:
    """The report without its tables, which the leaderboard shows already."""
    rows: list[Row] = []
    skipping = False
    for line in report.split("\n"):
        if line.startswith("## "):
            skipping = line == "## Measured"
        if skipping or line.startswith("```"):
            continue
        text = safe(line.replace("**", "").replace("`", ""))
        if line.startswith("#"):
            rows.append([(text.lstrip("# "), "title")])
        elif line.startswith("- "):
            rows += hanging("· ", "accent", text[2:], "fg", width)
        elif line.startswith("**"):
            rows += hanging("", "fg", text, "bold", width)
        elif text or (rows and rows[-1]):
            rows += hanging("", "fg", text, "fg", width) if text else [[]]
    return rows

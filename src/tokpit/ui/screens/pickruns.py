"""Pick stored runs to lie behind a chart."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from tokpit.domain.run import Run
from tokpit.ui import figures
from tokpit.ui.text import PICKED, content, crop, safe
from tokpit.ui.view import model_name


class PickRuns(ModalScreen["tuple[str, ...] | None"]):
    """Space picks and unpicks, enter takes, esc leaves all as it was. At most `most` runs, the last ones picked."""

    CSS = """
    PickRuns { align: center middle; background: $background 60%; }
    PickRuns #box { width: 90%; max-width: 110; height: auto; max-height: 80%; background: $surface;
        border: round $primary; padding: 1 2; }
    PickRuns .title { text-style: bold; }
    PickRuns .hint { color: $text-muted; margin-top: 1; }
    PickRuns OptionList { height: auto; max-height: 16; border: none; padding: 0; background: $surface;
        text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("enter", "take", show=False, priority=True),
        Binding("space", "pick", show=False, priority=True),
    ]

    def __init__(self, runs: Sequence[Run], picked: Sequence[str], most: int) -> None:
        super().__init__()
        self._runs = runs
        self._order = list(picked)
        self._most = most

    def compose(self) -> ComposeResult:
        """A row a run."""
        with Vertical(id="box"):
            yield Static(content("Runs behind the chart"), classes="title")
            yield OptionList(*map(self._row, self._runs), compact=True)
            yield Static(content(f"space picks (up to {self._most}) · enter takes · esc leaves"), classes="hint")

    def _row(self, run: Run) -> Content:
        return content(f"{PICKED if run.id in self._order else '·'} {run_line(run)}")

    def action_pick(self) -> None:
        """Pick the run under the cursor, or unpick it; one too many takes the place of the first."""
        rows = self.query_one(OptionList)
        if rows.highlighted is None:
            return
        run_id = self._runs[rows.highlighted].id
        if run_id in self._order:
            self._order.remove(run_id)
        else:
            self._order = [*self._order, run_id][-self._most :]
        for place, run in enumerate(self._runs):
            rows.replace_option_prompt_at_index(place, self._row(run))

    def action_take(self) -> None:
        """The picked ones lie behind the chart."""
        self.dismiss(tuple(self._order))

    def action_cancel(self) -> None:
        """Nothing changes."""
        self.dismiss(None)


def run_line(run: Run) -> str:
    """Id, day, target, model, levels and the best rate of a run."""
    day = time.strftime("%m-%d %H:%M", time.gmtime(run.started_at))
    levels = ",".join(str(level.concurrency) for level in run.levels)
    best = figures.fixed(max(level.output_tps for level in run.levels))
    name = crop(model_name(run.model) if run.model else "", 16)
    note = f"  {run.note}" if run.note else ""
    return safe(f"{run.id:8} {day} {best:>7} tok/s  {crop(run.target, 16):16} {name:16} C={crop(levels, 16)}{note}")

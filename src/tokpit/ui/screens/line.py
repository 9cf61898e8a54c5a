"""One record of the log whole: every line of it wrapped, and what was read from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from tokpit.domain.metrics import REGISTRY
from tokpit.domain.records import Value
from tokpit.ui import figures
from tokpit.ui.screens.base import copy
from tokpit.ui.text import Row, safe, wrap
from tokpit.ui.widgets.levels import hanging
from tokpit.ui.widgets.log_model import LogLine
from tokpit.ui.widgets.scrolled import ScrolledPanel

if TYPE_CHECKING:
    from tokpit.ui.app import TokpitApp

LONGEST = 20_000
"""Characters of one row that are shown; a copy has them all."""
_STYLES = {"error": "log-error", "warning": "log-warning", "debug": "log-debug"}


class RecordPanel(ScrolledPanel):
    """Rows of one record, then its figures by their names."""

    ages = False

    def __init__(self, lines: Sequence[LogLine]) -> None:
        super().__init__(id="record")
        self.lines = lines

    def heading(self, width: int) -> tuple[Row, Row]:
        """Which line, and how to go on."""
        number = self.lines[0].number
        left = f"line {number}" if number > 0 else "a line from before the watch"
        return [(left, "title"), (f"  {self.lines[0].level}", "dim")], [
            *self.place(),
            ("  y copies  esc closes", "dim"),
        ]

    def all_rows(self, width: int) -> list[Row]:
        """The text, nothing cut; below it what it says."""
        rows: list[Row] = []
        for line in self.lines:
            text = line.text[:LONGEST]
            rows += [[(part, _STYLES.get(line.level, "fg"))] for part in wrap(text, max(8, width))]
            if len(line.text) > LONGEST:
                rows.append([(f"… {len(line.text) - LONGEST:,} more characters: y copies all", "dim")])
        fields = self.lines[0].fields
        if fields:
            rows.append([])
        for name, value in fields.items():
            metric = REGISTRY.get(name)
            label = metric.label if metric is not None else name.replace("_", " ")
            rows += hanging(f"{safe(label)[:22]:<24}", "dim", _words(value, metric.unit if metric else ""), "fg", width)
        return rows


def _words(value: Value, unit: str) -> str:
    if unit and isinstance(value, (int, float)) and not isinstance(value, bool):
        return figures.quantity(value, unit)
    return ", ".join(safe(one) for one in value) if isinstance(value, tuple) else safe(value)


class LineScreen(ModalScreen[None]):
    """See the module docstring."""

    AUTO_FOCUS = "#record"
    CSS = """
    LineScreen { align: center middle; background: $background 60%; }
    LineScreen RecordPanel { width: 94%; max-width: 140; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "close", show=False),
        Binding("y", "copy_line", show=False),
    ]

    def __init__(self, lines: Sequence[LogLine]) -> None:
        super().__init__()
        self.lines = lines

    def compose(self) -> ComposeResult:
        """The record."""
        yield RecordPanel(self.lines)

    def on_resize(self) -> None:
        """As high as what is in it, where there is room."""
        panel = self.query_one(RecordPanel)
        rows = len(panel.all_rows(max(8, min(140, self.size.width * 94 // 100) - 4)))
        panel.styles.height = max(4, min(rows + 2, self.size.height - 2))

    def action_copy_line(self) -> None:
        """All of it, to the terminal's clipboard."""
        copy(cast("TokpitApp", self.app), "\n".join(line.text for line in self.lines), "the whole record")

    def action_close(self) -> None:
        """Back to the log."""
        self.dismiss()

    def on_click(self) -> None:
        """Close."""
        self.dismiss()

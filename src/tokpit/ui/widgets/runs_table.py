"""The stored runs as a table: as many columns as fit, so that none is cut."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Literal

from rich.text import Text
from textual.widgets import DataTable

from tokpit.domain.run import Run
from tokpit.ui import figures
from tokpit.ui.text import PICKED, crop, safe
from tokpit.ui.view import model_name

NARROW = 100
"""A terminal of fewer cells has no year and no long names."""
_WIDTHS = {"started": 16, "target": 16, "model": 16, "levels": 6, "peak tok/s": 10, "status": 8, "run": 10, "kind": 6}
_FIRST_OUT = ("kind", "levels", "run", "model", "status")
"""Columns that a narrow terminal does without; the panel of the run says them all."""
_RIGHT = frozenset({"levels", "peak tok/s"})


def names_for(width: int) -> tuple[str, ...]:
    """The columns that there is room for."""
    names = list(_WIDTHS)
    spare = width - 4 + (5 if width < NARROW else 0)
    for name in _FIRST_OUT:
        if sum(_WIDTHS[one] + 2 for one in names) <= spare:
            break
        names.remove(name)
    return tuple(names)


def peak(run: Run) -> float | None:
    """The best whole-run rate of its levels, tok/s."""
    return max((level.output_tps for level in run.levels), default=None)


class RunsTable(DataTable[object]):
    """A row a run; the key of a row is the run's id."""

    DEFAULT_CSS = "RunsTable { scrollbar-size-horizontal: 0; }"

    def __init__(self) -> None:
        super().__init__(cursor_type="row", zebra_stripes=False)
        self._names: tuple[str, ...] = ()

    def fits(self, width: int) -> bool:
        """Whether its columns are those for a terminal of that width."""
        return self._names == names_for(width)

    def show(self, runs: Sequence[Run], picked: Collection[str], width: int) -> None:
        """These runs, in this order, in a terminal of that width."""
        self.clear(columns=True)
        self._names = names_for(width)
        self.add_column(" ", key="pick", width=1)
        for name in self._names:
            self.add_column(Text(name, justify=_side(name)), key=name)
        for run in runs:
            cells = [Text(PICKED if run.id in picked else " ")]
            for name in self._names:
                most = _WIDTHS[name] if width < NARROW else 40
                cells.append(Text(crop(safe(_cell(run, name, width)), most), justify=_side(name)))
            self.add_row(*cells, key=run.id)

    def mark(self, run_id: str, picked: bool) -> None:
        """Say whether a run is picked."""
        self.update_cell(run_id, "pick", Text(PICKED if picked else " "))


def _side(name: str) -> Literal["left", "right"]:
    return "right" if name in _RIGHT else "left"


def _cell(run: Run, name: str, width: int) -> str:
    if name == "started":
        day = "%m-%d %H:%M" if width < NARROW else "%Y-%m-%d %H:%M"
        return time.strftime(day, time.localtime(run.started_at))
    if name == "model":
        return model_name(run.model) if run.model else figures.NA
    if name == "peak tok/s":
        return figures.fixed(peak(run))
    said = {"levels": str(len(run.levels)), "target": run.target, "kind": run.kind, "status": run.status, "run": run.id}
    return said[name]

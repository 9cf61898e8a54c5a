"""Reports of experiments that have ended, from their journals, in any format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tokpit.domain.tuning import Tuning
from tokpit.errors import UsageError
from tokpit.ops.records.report import format_of, write
from tokpit.report import FORMATS
from tokpit.store.journal import Journal
from tokpit.tune.document import Told, document


def ended(folder: Path, text: str) -> dict[str, Any]:
    """The end of the experiment whose id begins with `text`. Raises UsageError where it has no report."""
    journal = Journal.find(folder, text)
    found = [event.data for event in journal.events() if event.kind == "end" and "tuning" in event.data]
    if not found:
        raise UsageError(
            f"experiment {journal.id} has no report: it was cut off or put back before its end",
            hint=f"go on with: tokpit tune --resume {journal.id}" if journal.first() is not None else "",
        )
    return found[-1]


def export(folder: Path, text: str, path: Path) -> None:
    """Write a report in the format of the file's ending. Raises UsageError, StoreError."""
    wanted = format_of(str(path), None)
    data = ended(folder, text)
    told = msgspec.convert(data.get("told") or {"workload": "", "first_line": ""}, Told)
    made = document(msgspec.convert(data["tuning"], Tuning), told, charts=wanted == "html")
    write(FORMATS[wanted](made), path)

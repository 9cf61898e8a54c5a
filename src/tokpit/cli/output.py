"""Text and JSON on stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from tokpit.domain.text import sanitize


def to_json(value: Any) -> None:
    """One JSON document, indented on a terminal, one line elsewhere."""
    raw = msgspec.json.encode(value)
    click.echo(msgspec.json.format(raw, indent=2 if sys.stdout.isatty() else 0).decode())


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, right: frozenset[int] = frozenset()) -> None:
    """Columns as wide as their longest cell; `right`: columns aligned to the right. None is shown as `-`."""
    cells = [[sanitize("-" if cell is None else str(cell)) for cell in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(head)]

    def line(row: Sequence[str]) -> str:
        padded = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        return "  ".join(padded).rstrip()

    click.echo(line(list(head)))
    for row in cells:
        click.echo(line(row))


def age(seconds: float | None) -> str:
    """A duration in its two largest units: `2d 3h`, `5m 10s`, `42s`."""
    if seconds is None:
        return "-"
    left = max(int(seconds), 0)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])

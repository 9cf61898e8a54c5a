"""The machine-readable formats: JSON of everything, CSV of the report's table."""

from __future__ import annotations

import csv
import io

import msgspec

from tokpit.report.document import Document


def as_json(document: Document) -> str:
    """The record itself, indented."""
    return msgspec.json.format(msgspec.json.encode(document.data), indent=2).decode() + "\n"


def as_csv(document: Document) -> str:
    """One row a level, finding or figure. A text that a spreadsheet would take for a formula gets an apostrophe."""
    rows = document.rows
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else ["empty"], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value

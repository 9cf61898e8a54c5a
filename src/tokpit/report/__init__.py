"""Exports: Markdown, HTML, CSV and JSON. One function a format, registered in `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tokpit.report.document import Document
from tokpit.report.html import html
from tokpit.report.markdown import markdown
from tokpit.report.tables import as_csv, as_json

FORMATS: Mapping[str, Callable[[Document], str]] = {"md": markdown, "html": html, "csv": as_csv, "json": as_json}

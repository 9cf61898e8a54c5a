"""Export: texts and pictures of a screen, into a new folder in the user's state folder."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tokpit.config.paths import state_dir
from tokpit.domain.text import mask_secrets
from tokpit.report.console import figures_csv, log_text
from tokpit.ui.screens.base import tell
from tokpit.ui.view import View
from tokpit.ui.widgets.log_model import LogModel

if TYPE_CHECKING:
    from tokpit.ui.app import TokpitApp


def export(console: TokpitApp, name: str, texts: Mapping[str, str]) -> Path | None:
    """Write texts by file name; says where they are, or why not."""
    stem = re.sub(r"[^\w.@-]+", "-", name)
    folder = state_dir() / "exports" / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{stem}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        tell(console, f"{folder} cannot be written: {error.strerror or error}", bad=True)
        return None
    tell(console, f"exported {', '.join(texts)}", hint=str(folder))
    return folder


def export_cockpit(console: TokpitApp, view: View, log: LogModel) -> Path | None:
    """The selected server's log as filtered, its figures in the charts' window, and the screen as text and SVG."""
    server = view.server
    if server is None:
        tell(console, "no server is selected")
        return None
    start = view.edge_now() - view.window_s
    texts = {
        "log.txt": log_text(line.text for line in log.rows),
        "figures.csv": figures_csv({tag: series.since(start) for tag, series in server.series.items()}),
        "screen.txt": mask_secrets(screen_text(console)),
        "screen.svg": mask_secrets(console.export_screenshot(title="tokpit")),
    }
    return export(console, server.info.label, texts)


def screen_text(console: TokpitApp) -> str:
    """The screen as rows of text."""
    strips = console.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"

"""Snapshots of screens as text: what is written, and in which of the console's own styles.

Style names come from the panels themselves, not from colours, so that neither a theme nor a patch release of Textual
changes a snapshot; the colours on screen are compared with the theme's palette instead.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from console_screen import rows
from tokpit.ui.palette import ON_CURSOR, Palette
from tokpit.ui.text import width_of
from tokpit.ui.widgets.panel import Panel

FOLDER = Path(__file__).parent / "data" / "snapshots"
RENEW = "TOKPIT_RENEW_SNAPSHOTS"
"""Set it to write the snapshots anew; look at the difference in git before it is committed."""
_LETTERS = {
    "fg": " ", "bold": "b", "dim": "d", "faint": "f", "title": "t", "border": "·", "focus": "F", "accent": "a",
    "key": "k", "good": "g", "good-bold": "G", "warn": "w", "warn-bold": "W", "bad": "x", "bad-bold": "X", "stale": "s",
    "cursor": "c", "badge": "B", "brand": "R", "match": "m", "axis": "i", "grid": "r", "mark": "k", "track": "_",
    "gauge-low": "l", "gauge-mid": "n", "gauge-high": "h", "log-error": "E", "log-warning": "V", "log-debug": "D",
    "log-number": "N", "log-time": "T", "log-event": "e",
    **{f"series-{n}": str(n) for n in range(1, 7)},
}  # fmt: skip
"""One letter a style in the second half of a snapshot; `?` is drawn by a widget of Textual."""


def styles(pilot: Pilot[Any]) -> list[list[str]]:
    """The style name of every cell; `?` where no panel draws."""
    width, height = pilot.app.size
    grid = [["?"] * width for _ in range(height)]
    for panel in pilot.app.screen.query(Panel):
        if not panel.display or not panel.region.height:
            continue
        region = panel.region
        drawn = panel.rows()
        for y in range(region.height):
            names = ["fg"] * region.width
            at = 0
            for text, name in drawn[y] if y < len(drawn) else ():
                cells = width_of(text)
                names[at : at + cells] = [name] * min(cells, region.width - at)
                at += cells
            if region.y + y < height:
                grid[region.y + y][region.x : region.right] = names[: region.width]
    return grid


def snapshot(pilot: Pilot[Any]) -> str:
    """The screen as text, then a letter for the style of each cell."""
    letters = [
        "".join(_LETTERS.get(name, "c" if name.endswith(ON_CURSOR) else "?") for name in row).rstrip()
        for row in styles(pilot)
    ]
    return "\n".join([*(row.rstrip() for row in rows(pilot)), "-- styles", *letters]) + "\n"


def compare(name: str, found: str) -> None:
    """Fail with the difference where the screen is not as it was."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get(RENEW):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found, encoding="utf-8")
        return
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    if found != known:
        lines = difflib.unified_diff(known.splitlines(), found.splitlines(), "as it was", "as it is", lineterm="", n=1)
        raise AssertionError(f"{name} has changed; {RENEW}=1 writes it anew:\n" + "\n".join(lines))


def colours_of_the_theme(pilot: Pilot[Any]) -> list[str]:
    """Cells of panels whose colours are not those of their style in the running theme."""
    palette: Palette = pilot.app.palette  # type: ignore[attr-defined]  # the console's
    names = styles(pilot)
    wrong = []
    for y, strip in enumerate(pilot.app.screen._compositor.render_strips()):
        x = 0
        for segment in strip:
            cells = width_of(segment.text)
            name = names[y][x] if x < len(names[y]) else "?"
            if name != "?" and segment.text.strip() and segment.style is not None:
                wanted = palette[name]
                if (segment.style.color, segment.style.bgcolor) != (wanted.color, wanted.bgcolor):
                    wrong.append(f"{y},{x} {name!r}: {segment.text!r} {segment.style} instead of {wanted}")
            x += cells
    return wrong

"""Make the pictures of README and docs from the recording of the tests: `python tools/make_pictures.py [--check]`.

Each is an SVG of the real app on that recording, after real keys. With --check nothing is written: the exit status is 1
where a picture in docs/pictures shows other words or colours than the one made now.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from tokpit.ops.records.replay import ReplaySession
from tokpit.ui.app import TokpitApp
from tokpit.ui.screens.sweep import SweepScreen
from tokpit.ui.screenshot import screenshot

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
RECORDING = ROOT / "tests" / "data" / "demo.tokrec"
MOST_LOOKS = 400
Prepare = Callable[[Pilot[Any]], Awaitable[None]]
_TEXT = re.compile(r'<text class="[^"]*-(r\d+)" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>')
_STYLE = re.compile(r"-(r\d+) \{([^}]*)\}")


async def cockpit(pilot: Pilot[Any]) -> None:
    """As it opens."""


async def sweep(pilot: Pilot[Any]) -> None:
    """The recorded sweep."""
    app = pilot.app
    assert isinstance(app, TokpitApp)
    assert app.view.server_id is not None
    screen = SweepScreen(app.view, app.view.server_id)
    screen.operation_id = "sweep-demo"
    app.push_screen(screen)


async def diagnose(pilot: Pilot[Any]) -> None:
    """What is wrong, with the first finding open."""
    await pilot.press("4")
    await _settled(pilot)
    await pilot.press("enter")


PICTURES: dict[str, tuple[tuple[int, int], str | None, Prepare]] = {
    "cockpit": ((120, 36), None, cockpit),
    "cockpit-light": ((120, 36), "tokpit-light", cockpit),
    "cockpit-80x24": ((80, 24), None, cockpit),
    "sweep": ((120, 36), None, sweep),
    "diagnose": ((120, 36), None, diagnose),
}


async def pictures() -> dict[str, str]:
    """All of them by name."""
    found = {}
    for name, (size, theme, prepare) in PICTURES.items():
        session = await ReplaySession.open(RECORDING)
        session.player.playing = False
        await session.player.seek(session.player.summary.end - 1)

        async def arranged(pilot: Pilot[Any], prepare: Prepare = prepare) -> None:
            await _settled(pilot)
            await prepare(pilot)
            await _settled(pilot)

        async with session:
            found[name] = await screenshot(session, size=size, theme=theme, prepare=arranged)
    return found


async def _settled(pilot: Pilot[Any]) -> None:
    """Until everything is loaded and the screen says the same twice in a row, drawn anew in between."""
    before: list[str] = []
    for _ in range(MOST_LOOKS):
        await pilot.pause(0.1)
        now = [strip.text for strip in pilot.app.screen._compositor.render_strips()]
        if now == before and getattr(pilot.app, "plotext_ready", True):
            return
        before = now
        pilot.app.screen.redraw_all()  # type: ignore[attr-defined]  # each screen of the console has it
    raise RuntimeError("the screen never settled")


def shown(svg: str) -> Sequence[tuple[str, str, str, str]]:
    """What a picture shows: words with place and style. The rest of the file is the drawing library's."""
    styles = {name: " ".join(style.split()) for name, style in _STYLE.findall(svg)}
    return [(x, y, html.unescape(words), styles.get(name, "")) for name, x, y, words in _TEXT.findall(svg)]


def main(*, check: bool) -> int:
    """Write them, or compare."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    made = asyncio.run(pictures())
    if not check:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name, svg in made.items():
            (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
        return 0
    wrong = [f"{path.name}: no picture of that name is made" for path in FOLDER.glob("*") if path.stem not in made]
    for name, svg in made.items():
        path = FOLDER / f"{name}.svg"
        known = shown(path.read_text(encoding="utf-8")) if path.exists() else []
        differ = [pair for pair in zip(known, shown(svg), strict=False) if pair[0] != pair[1]]
        if differ:
            wrong.append(f"{name}.svg shows {differ[0][0]}, now {differ[0][1]}")
        elif len(known) != len(shown(svg)):
            wrong.append(f"{name}.svg shows {len(known)} pieces of text, now {len(shown(svg))}")
    said = [*wrong, "python tools/make_pictures.py makes them anew"] if wrong else ["as they were"]
    sys.stdout.write("\n".join([*said, ""]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))

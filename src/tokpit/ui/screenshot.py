"""Pictures of the console for the documentation: one SVG at a size, without a terminal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from textual.pilot import Pilot

from tokpit.ui.app import TokpitApp
from tokpit.ui.session_protocol import SessionLike

FONT = "DejaVu Sans Mono"


async def screenshot(
    session: SessionLike,
    *,
    size: tuple[int, int] = (120, 40),
    theme: str | None = None,
    keys: tuple[str, ...] = (),
    wait_s: float = 0.0,
    prepare: Callable[[Pilot[Any]], Awaitable[None]] | None = None,
    chart_engine: str = "auto",
    font: str | None = None,
) -> str:
    """The screen as SVG after pressing `keys`; `font` replaces the SVG's web fonts by one that is installed."""
    app = TokpitApp(session, theme=theme, chart_engine=chart_engine, sixteen=False)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(max(0.3, wait_s))
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        if prepare is not None:
            await prepare(pilot)
        await pilot.pause(0.3)
        svg = app.export_screenshot(title="tokpit")
    return svg.replace("Fira Code", font) if font else svg

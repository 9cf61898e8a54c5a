"""Driving the console without a terminal: open it at a size, read the screen as rows of text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from tokpit.ui.app import TokpitApp

SIZES = ((80, 24), (120, 40), (200, 60))


@asynccontextmanager
async def console(session: Any, size: tuple[int, int] = (120, 40), **options: Any) -> AsyncIterator[Pilot[None]]:
    app = TokpitApp(session, **options)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: len(app.screen_stack) > 1)
        app.screen.pump()  # type: ignore[attr-defined]  # every tokpit screen has one
        await pilot.pause()
        yield pilot


def rows(pilot: Pilot[None]) -> list[str]:
    """The screen as it is, one string a row."""
    return ["".join(segment.text for segment in strip) for strip in pilot.app.screen._compositor.render_strips()]


def text(pilot: Pilot[None]) -> str:
    return "\n".join(rows(pilot))


async def until(pilot: Pilot[None], holds: Callable[[], bool], tries: int = 1000) -> None:
    """Give the application time until `holds`; fails with the screen if it never does."""
    for _ in range(tries):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("never became true; the screen:\n" + text(pilot))


async def shows(pilot: Pilot[None], *wanted: str) -> str:
    """Wait until all of `wanted` are on screen."""
    await until(pilot, lambda: all(word in text(pilot) for word in wanted))
    return text(pilot)

"""Whatever a host sends is shown as text: no markup, no terminal escapes, no crash."""

from __future__ import annotations

import time

import pytest

from console_feed import HOST, Recorder, fill, launch, link, server, sweep, text_line
from console_screen import console, rows, shows, text, until
from tokpit.domain.records import GpuRecord, HostRecord, LinkState, LogBatch, Problem, ServerSeen
from tokpit.domain.text import sanitize
from tokpit.transport.base import HostSpec
from tokpit.ui.app import TokpitApp
from tokpit.ui.screens.base import tell

LINES = (
    "[/oops] closing what was never opened",
    "[@click=app.quit]x[/] click me",
    "\x1b[31mred\x1b[0m and \x1b]0;PWNED\x07title",
    "\x1b]52;c;cGF5bG9hZA==\x1b\\clipboard",
    "\x9b31mc1 \x85 next \u202e reversed \u2028 separator",
    "tab\there and 全角文字 and \U0001f600",
    "x" * 100_000,
    "",
)
BAD = ("\x1b", "\x9b", "\x07", "\u202e", "\u2028")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_log_lines_cannot_act(size: tuple[int, int]) -> None:
    session = Recorder()
    server_id = fill(session.store)
    batch = tuple(text_line(9000 + n, line) for n, line in enumerate(LINES))
    session.store.apply(LogBatch(server_id, time.time(), batch))
    async with console(session, size) as pilot:
        shown = await shows(pilot, "[/oops] closing", "[@click=app.quit]x[/] click me")
        assert not [char for char in BAD if char in shown]
        assert all(len(row.encode("utf-16-le")) > 0 for row in rows(pilot))
        y = next(n for n, row in enumerate(rows(pilot)) if "[@click" in row)
        x = rows(pilot)[y].index("x[/]")
        await pilot.click(offset=(x, y))
        await pilot.pause()
        assert pilot.app.is_running


async def test_names_models_reasons_and_problems_cannot_act() -> None:
    session = Recorder(host_specs={HOST: HostSpec(name=HOST)})
    fill(session.store, seconds=5)
    async with console(session) as pilot:
        for evil in LINES[:6]:
            session.host_specs[HOST] = HostSpec(name=HOST, label=evil)
            session.store.apply(ServerSeen(0.0, server(served_name=evil, version=evil, log_path=evil)))
            session.store.apply(link(LinkState.LOST, reason=evil))
            session.store.apply(GpuRecord(HOST, time.time(), (), (Problem("X", evil),)))
            session.store.apply(HostRecord(HOST, time.time()))
            pilot.app.screen.redraw_all()  # type: ignore[attr-defined]
            await pilot.pause()
            nothing_acts(await shows(pilot, "link lost", "q quit", start_of(evil)))
        await pilot.press("s")
        await shows(pilot, "concurrency levels")
        pilot.app.screen.operation_id = "x"  # type: ignore[attr-defined]
        for evil in LINES[:6]:
            failed = sweep(2, op_id="x", status="failed", error=evil, hint=evil, title=evil, result={evil: evil})
            session.store.apply(failed)
            nothing_acts(await shows(pilot, "2 levels kept", start_of(evil)))
        await pilot.press("escape", "l")
        await shows(pilot, "Launch on")
        pilot.app.screen.operation_id = "y"  # type: ignore[attr-defined]
        for evil in LINES[:6]:
            session.store.apply(launch(op_id="y", status="failed", error=evil, hint=evil, title=evil))
            nothing_acts(await shows(pilot, "FAILED", start_of(evil)))
        assert pilot.app.is_running


async def test_notices_and_questions_cannot_act() -> None:
    async with console(Recorder()) as pilot:
        assert isinstance(pilot.app, TokpitApp)
        for evil in LINES[:6]:
            tell(pilot.app, evil, hint=evil, bad=True)
            await until(pilot, lambda evil=evil: start_of(evil) in text(pilot))  # type: ignore[misc]
            nothing_acts(text(pilot))
            pilot.app.clear_notifications()
        assert pilot.app.is_running


def start_of(evil: str) -> str:
    """Some of its plain words, which must be on screen."""
    return sanitize(evil).split()[0][:8]


def nothing_acts(shown: str) -> None:
    assert not [char for char in BAD if char in shown]


async def test_a_host_name_with_brackets_is_a_name() -> None:
    name = "[b]node[/b]"
    session = Recorder(host_specs={name: HostSpec(name=name)})
    async with console(session, host=name) as pilot:
        await until(pilot, lambda: name in text(pilot))

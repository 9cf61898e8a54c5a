"""The mouse does what a person expects of it, or nothing."""

from __future__ import annotations

from typing import Any

from textual import events
from textual.pilot import Pilot
from textual.widgets import DataTable

from console_feed import HOST, FakeHistory, Recorder, fill, level, run, text_line
from console_screen import console, rows, shows, text, until
from tmux_screen import RECORDING
from tokpit.domain.finding import Finding
from tokpit.domain.records import LogBatch
from tokpit.ops.records.replay import ReplaySession
from tokpit.transport.base import HostSpec
from tokpit.ui.charts.panel import ChartPanel
from tokpit.ui.screens.diagnose import DiagnoseScreen, FindingsPanel
from tokpit.ui.screens.fleet import FleetScreen
from tokpit.ui.screens.line import LineScreen
from tokpit.ui.widgets.fleet import FleetPanel
from tokpit.ui.widgets.log_view import LogView


async def click(pilot: Pilot[Any], word: str, *, right: int = 0) -> None:
    """Where that word stands on screen."""
    y, row = next((y, row) for y, row in enumerate(rows(pilot)) if word in row)
    await pilot.click(offset=(row.index(word) + right, y))


async def test_a_click_marks_a_line_of_the_log_and_a_second_one_shows_all_of_it() -> None:
    session = Recorder()
    fill(session.store)
    server_id = next(iter(session.store.servers))
    long = text_line(2001, "begin " + "middle " * 60 + "end of it [/oops] [@click=app.quit]")
    session.store.apply(LogBatch(server_id, 0.0, (text_line(2000, "the line before"), long, text_line(2002, "after"))))
    async with console(session) as pilot:
        await shows(pilot, "begin middle", "following")
        await click(pilot, "egin middle")
        await shows(pilot, "▶egin middle", "paused")
        assert pilot.app.screen.query_one(LogView).chosen_text() == long.text
        await click(pilot, "egin middle")
        await until(pilot, lambda: isinstance(pilot.app.screen, LineScreen))
        shown = await shows(pilot, "line 2001", "middle end of it [/oops]", "[@click=app.quit]")
        assert shown.count("middle") >= 60
        await pilot.press("escape", "f")
        await shows(pilot, "following")


async def test_a_search_moves_sideways_to_where_the_match_is() -> None:
    session = Recorder()
    fill(session.store)
    server_id = next(iter(session.store.servers))
    session.store.apply(LogBatch(server_id, 0.0, (text_line(2000, "x " * 300 + "needle here"),)))
    async with console(session) as pilot:
        await pilot.press("slash", *"needle", "enter")
        await shows(pilot, "needle here", "▶")
        await pilot.press("slash", *"Decode batch", "enter")
        await until(pilot, lambda: pilot.app.screen.query_one(LogView).left == 0)


async def test_a_click_on_a_chart_of_a_recording_goes_there() -> None:
    session = await ReplaySession.open(RECORDING)
    player = session.player
    player.playing = False
    await player.seek(player.summary.end)
    async with session, console(session) as pilot:
        chart = next(iter(pilot.app.screen.query(ChartPanel)))
        await until(pilot, lambda: chart._plot[1] > 1)
        await pilot.click(chart, offset=(chart.size.width * 3 // 4, 3))
        await until(pilot, lambda: not player.seeking and player.position < player.summary.end - 1)
        assert player.position > player.summary.start


async def test_a_click_chooses_a_finding_and_a_second_one_opens_it() -> None:
    session = Recorder()
    fill(session.store)
    found = [Finding(code=f"F{n}", severity="warning", claim=f"claim {n} " + "word " * 40, evidence=(f"proof {n}",))
             for n in range(3)]  # fmt: skip
    async with console(session) as pilot:
        app: Any = pilot.app
        screen = DiagnoseScreen(app.view, app.view.server.info)
        screen.action_again = lambda: None  # type: ignore[method-assign]  # there is no host to ask
        app.push_screen(screen)
        await until(pilot, lambda: app.screen is screen and screen.focused is not None)
        screen.fill(found)
        await shows(pilot, "claim 2")
        await click(pilot, "claim 2")
        panel = screen.query_one(FindingsPanel)
        await until(pilot, lambda: panel.cursor == 2)
        assert "proof 2" not in text(pilot)
        await click(pilot, "claim 2")
        await shows(pilot, "proof 2")
        await pilot.click(panel, offset=(10, panel.size.height - 2))
        assert panel.cursor == 2


async def test_a_columns_name_orders_the_fleet_and_the_runs_and_a_paste_is_the_filter() -> None:
    session = Recorder(host_specs={HOST: HostSpec(name=HOST), "gpu-rack-8": HostSpec(name="gpu-rack-8")})
    fill(session.store)
    slow = run("r-0006", started_at=1_795_000_000.0, levels=(level(1, 9_999.0, 10.0, 8),))
    session.stored = FakeHistory((run(), slow))
    async with console(session) as pilot:
        await pilot.press("1")
        await until(pilot, lambda: isinstance(pilot.app.screen, FleetScreen))
        panel = pilot.app.screen.query_one(FleetPanel)
        await click(pilot, "queue  servers")
        await until(pilot, lambda: panel.sort == "queue")
        await click(pilot, "host  ")
        await until(pilot, lambda: panel.sort == "as listed")
        await pilot.press("slash")
        pilot.app.post_message(events.Paste("rack-8\x1b[31m\rnext line"))
        await until(pilot, lambda: panel.wanted == "rack-8")
        await pilot.press("escape", "3")
        await shows(pilot, "r-0006")
        table: Any = pilot.app.screen.query_one(DataTable)

        def is_slow(row: int) -> bool:
            return "r-0006" in map(str, table.get_row_at(row))

        assert not is_slow(0)
        await click(pilot, "peak tok/s")
        await until(pilot, lambda: is_slow(0))
        assert not is_slow(table.cursor_row), "the cursor left its run"

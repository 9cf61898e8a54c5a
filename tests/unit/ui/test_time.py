from __future__ import annotations

import time
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console_feed import HOST, Recorder, fill, server
from console_screen import console, rows, shows, text, until
from tokpit.domain.hostspec import HostSpec
from tokpit.domain.records import GpuRecord, HostRecord, LogBatch, Record, Sample
from tokpit.ops.records.replay import ReplaySession
from tokpit.store.live import LiveStore, LogRing
from tokpit.store.recording.format import Head
from tokpit.store.recording.writer import FileSink
from tokpit.ui.charts.panel import ChartPanel
from tokpit.ui.screens.cockpit import Cockpit
from tokpit.ui.screens.fleet import FleetScreen
from tokpit.ui.screens.history import HistoryScreen
from tokpit.ui.widgets.log_view import LogView

GIB = 1 << 30


def steps(end: float) -> list[Record]:
    """Five minutes in which everything rises by one a second: generation, GPU, memory, lines."""
    import console_feed as feed

    made: list[Record] = []
    for n in range(301):
        t = end - 300 + n
        made += [
            Sample(server().id, t, "log", {"gen_tps": 100.0 + n, "running_reqs": 3.0}),
            GpuRecord(HOST, t, (feed.gpu(temp_c=float(20 + n // 5)),)),
            HostRecord(HOST, t, 256 * GIB, (256 - n // 2) * GIB),
            LogBatch(server().id, t, (feed.text_line(n + 1, f"second {n:03d}"),)),
        ]
    return made


def live() -> Recorder:
    session = Recorder()
    fill(session.store, seconds=0)
    state = session.store.servers[server().id]
    state.log = LogRing(1000)
    host = session.store.hosts[HOST]
    host.past_gpus.records.clear()
    host.past_memory.records.clear()
    for record in steps(time.time()):
        session.store.apply(record)
    return session


def shown_second(pilot: Pilot[None]) -> int:
    log = pilot.app.screen.query_one(LogView).model
    assert log.hit is not None
    return int(log.rows[log.hit].text.split()[1])


async def test_space_holds_everything_and_brackets_read_all_panels_at_one_moment() -> None:
    async with console(live(), (120, 40)) as pilot:
        await shows(pilot, "400 tok/s")
        await pilot.press("space")
        await shows(pilot, "HELD", "go on")
        await pilot.press("left_curly_bracket", "left_curly_bracket")  # 2 x 12 steps of 5 s
        screen = await shows(pilot, "2m0")
        second = shown_second(pilot)
        assert 165 <= second < 240
        assert f"{100 + second} tok/s" in screen
        # Of GPUs and memory, the older they are, the fewer records are kept.
        assert any(f"{20 + n // 5} °C" in screen for n in range(second - 8, second + 1))
        assert any(f" {n // 2}/256G" in screen for n in range(second - 8, second + 1))
        assert f"▶econd {second:03d}" in screen
        assert f"second {second + 1:03d}" not in screen
        assert "┃" in screen
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: shown_second(pilot) in (second + 5, second + 4, second + 6))
        await pilot.press("space")
        await shows(pilot, "400 tok/s", "following")
        assert "HELD" not in text(pilot)


async def test_while_held_new_figures_and_lines_change_nothing() -> None:
    session = live()
    async with console(session, (120, 40)) as pilot:
        await pilot.press("left_square_bracket")
        await shows(pilot, "HELD")
        before = [row for row in rows(pilot)[2:-2] if "paused" not in row]
        now = time.time()
        session.store.apply(Sample(server().id, now, "log", {"gen_tps": 9999.0}))
        session.store.apply(LogBatch(server().id, now, tuple(steps(now)[3].records)))  # type: ignore[union-attr]
        pilot.app.screen.pump()  # type: ignore[attr-defined]
        await pilot.pause()
        assert [row for row in rows(pilot)[2:-2] if "paused" not in row] == before
        await pilot.press("escape")
        await shows(pilot, "9999 tok/s")


async def test_going_back_beyond_the_charts_moves_them() -> None:
    async with console(live(), (120, 40)) as pilot:
        await pilot.press(*["left_curly_bracket"] * 4)
        await until(pilot, lambda: shown_second(pilot) <= 120)
        assert "┃" in text(pilot)
        await pilot.press("minus")
        await shows(pilot, "-10m")


async def test_a_click_on_a_chart_reads_there() -> None:
    async with console(live(), (120, 40)) as pilot:
        await shows(pilot, "400 tok/s")
        chart = next(iter(pilot.app.screen.query(ChartPanel)))
        await pilot.click(chart, offset=(chart.size.width // 2 + 2, 3))
        await shows(pilot, "HELD")
        assert 125 <= shown_second(pilot) < 240


async def test_numbers_go_from_screen_to_screen() -> None:
    async with console(live()) as pilot:
        await pilot.press("1")
        await until(pilot, lambda: isinstance(pilot.app.screen, FleetScreen))
        await pilot.press("3")
        await until(pilot, lambda: isinstance(pilot.app.screen, HistoryScreen))
        await pilot.press("2")
        await until(pilot, lambda: isinstance(pilot.app.screen, Cockpit))
        await pilot.press("colon")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 3)


async def test_the_tour_has_five_lines_and_any_key_closes_it() -> None:
    async with console(live(), (80, 24), tour=True) as pilot:
        screen = await shows(pilot, "choose a host", "any key closes this")
        assert sum(word in screen for word in ("↑ ↓", "? :", "space", "l s d", "q  ")) == 5
        await pilot.press("l")
        await until(pilot, lambda: isinstance(pilot.app.screen, Cockpit))


async def test_ampersand_filters_the_log_with_a_regular_expression_and_its_inverse() -> None:
    async with console(live(), (120, 40)) as pilot:
        await shows(pilot, "second 300")
        await pilot.press("ampersand", *"second 29[89]", "enter")
        screen = await shows(pilot, "only second 29[89]", "second 299")
        assert "second 300" not in screen
        await pilot.press("ampersand", *["backspace"] * 20, *"!0$", "enter")
        screen = await shows(pilot, "without 0$", "second 299")
        assert "second 290" not in screen
        await pilot.press("ampersand", "escape")
        await shows(pilot, "second 300")


async def test_e_writes_log_figures_and_screen_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKPIT_STATE_DIR", str(tmp_path))
    async with console(live(), (120, 40)) as pilot:
        await shows(pilot, "second 300")
        await pilot.press("e")
        await shows(pilot, "exported log.txt")
        (folder,) = (tmp_path / "exports").iterdir()
        assert (folder / "log.txt").read_text().splitlines()[-1] == "second 300"
        assert (folder / "figures.csv").read_text().splitlines()[0] == "t,metric,value"
        assert ",gen_tps,400.0" in (folder / "figures.csv").read_text()
        assert "second 300" in (folder / "screen.txt").read_text()
        assert "sk-feed-secret" not in "".join(p.read_text() for p in folder.iterdir())


async def test_y_in_the_log_copies_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    async with console(live(), (120, 40)) as pilot:
        copied: list[str] = []
        monkeypatch.setattr(pilot.app, "copy_to_clipboard", copied.append)
        await shows(pilot, "second 300")
        pilot.app.screen.query_one(LogView).focus()
        await pilot.press("y")
        await until(pilot, lambda: bool(copied))
        assert copied[0].splitlines()[-1] == "second 300"
        await pilot.press("slash", *"second 123", "enter", "y")
        await until(pilot, lambda: copied[-1] == "second 123")


def recorded(path: Path, end: float) -> Path:
    store = LiveStore()
    heard: list[Record] = []
    store.listen(heard.append)
    fill(store, seconds=0, end=end)
    sink = FileSink(path)
    sink.begin(end - 300, Head(hosts=(HostSpec(name=HOST),), clocks={HOST: end - 300}), [])
    sink.write([(end - 300, r) for r in heard if not isinstance(r, (LogBatch, GpuRecord, HostRecord))], 0)
    sink.write([(r.t, r) for r in steps(end)], 0)  # type: ignore[union-attr]
    sink.close(end)
    return path


async def test_a_recording_shows_the_same_screen_pauses_seeks_and_changes_speed(tmp_path: Path) -> None:
    end = 1_796_000_300.0
    session = await ReplaySession.open(recorded(tmp_path / "a.tokrec", end))
    session.player.playing = False
    await session.player.seek(end - 100)
    async with session, console(session, (120, 40)) as pilot:
        await shows(pilot, "300 tok/s", "PAUSE", "second 200", "60 °C", "3:20 / 5:00", "recording")
        await pilot.press("left_curly_bracket")
        screen = await shows(pilot, "240 tok/s", "second 140", "2:20 / 5:00")
        assert "second 141" not in screen
        await pilot.press("greater_than_sign", "greater_than_sign")
        await shows(pilot, "×4")
        await pilot.press("space")
        await shows(pilot, "PLAY")
        await until(pilot, lambda: session.player.position > end - 159)
        await pilot.press("l")
        await shows(pilot, "this is a recording: nothing runs here")
        await session.player.seek(end)
        await shows(pilot, "400 tok/s", "END", "space again")
        await pilot.press("space")
        await shows(pilot, "PLAY")
        assert session.player.position < end - 100


async def test_a_recording_has_no_last_minutes_to_save(tmp_path: Path) -> None:
    session = await ReplaySession.open(recorded(tmp_path / "a.tokrec", 1_796_000_300.0))
    async with session, console(session, (120, 40)) as pilot:
        await pilot.press("w")
        await shows(pilot, "this is a recording already")


async def test_findings_of_a_recording_come_from_what_was_recorded(tmp_path: Path) -> None:
    session = await ReplaySession.open(recorded(tmp_path / "a.tokrec", 1_796_000_300.0))
    session.player.playing = False
    await session.player.seek(1_796_000_300.0)
    async with session, console(session, (120, 40)) as pilot:
        await shows(pilot, "END", "Qwen3.6-27B")
        await pilot.press("d")
        await shows(pilot, "the host itself was not asked")

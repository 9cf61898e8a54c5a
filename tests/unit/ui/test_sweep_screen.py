from __future__ import annotations

import pytest
from textual.widgets import Input

from console_feed import LEVELS, Recorder, fill, level, run, server, sweep
from console_screen import SIZES, console, rows, shows, text, until
from tokpit.ui.levels import MEASURES, chart_of
from tokpit.ui.screens.cockpit import Cockpit
from tokpit.ui.screens.sweep import SweepScreen
from tokpit.ui.widgets.level_table import columns_for, level_text
from tokpit.ui.widgets.levels import LevelsChart, LevelsPanel


def filled() -> Recorder:
    session = Recorder()
    fill(session.store)
    return session


async def test_start_sends_the_plan_for_the_selected_server() -> None:
    session = filled()
    async with console(session) as pilot:
        await shows(pilot, "ready")
        await pilot.press("s")
        await shows(pilot, "concurrency levels")
        screen = pilot.app.screen
        screen.query_one("#field-levels", Input).value = "1, 8 ,32"
        screen.query_one("#field-max_tokens", Input).value = "256"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(session.calls))
        name, args = session.calls[-1]
        assert name == "sweep.start"
        assert args["target"] == server().id
        assert (args["levels"], args["requests"], args["max_tokens"]) == ("1,8,32", None, 256)


async def test_a_bad_level_list_is_said_and_nothing_starts() -> None:
    session = filled()
    async with console(session) as pilot:
        await shows(pilot, "ready")
        await pilot.press("s")
        await shows(pilot, "concurrency levels")
        pilot.app.screen.query_one("#field-levels", Input).value = "1,zwei"
        await pilot.press("ctrl+s")
        await shows(pilot, "'zwei' is not a whole number")
        assert session.calls == []


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_table_and_chart_grow_while_it_runs(size: tuple[int, int]) -> None:
    session = filled()
    async with console(session, size) as pilot:
        screen = await _open(pilot)
        session.store.apply(sweep(2, op_id=screen.operation_id))
        first = await shows(pilot, "TTFT p50", "203.1", "11/32", "57s left")
        assert "361.4" not in first
        session.store.apply(sweep(3, op_id=screen.operation_id))
        shown = await shows(pilot, "361.4", "372.2", "tok/s against concurrency", "steady window")
        assert sum(0x2801 <= ord(char) <= 0x28FF for char in shown) > 20, "no curve is drawn"


async def test_escape_stops_the_running_sweep_and_a_second_one_goes_back() -> None:
    session = filled()
    async with console(session) as pilot:
        screen = await _open(pilot)
        session.store.apply(sweep(3, op_id=screen.operation_id))
        await shows(pilot, "361.4")
        await pilot.press("escape")
        await until(pilot, lambda: bool(session.calls))
        assert session.calls == [("sweep.stop", {"op_id": "sweep-x"})]
        stopped = sweep(3, op_id="sweep-x", status="stopped", result={"run": "r-0012"}, error="stopped; 3 levels kept")
        session.store.apply(stopped)
        await shows(pilot, "stopped", "3 levels kept", "r-0012", "361.4")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, Cockpit))


async def test_a_sweep_goes_on_while_another_screen_is_open_and_is_taken_up_again() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session) as pilot:
        await shows(pilot, "ready")
        session.store.apply(sweep(2, op_id="sweep-now"))
        await pilot.press("s")
        await shows(pilot, "running", "203.1")
        await until(pilot, lambda: pilot.app.focused is None)
        await pilot.press("2")
        await until(pilot, lambda: isinstance(pilot.app.screen, Cockpit))
        assert session.calls == []
        await pilot.press("s")
        await shows(pilot, "running", "203.1")


async def test_a_finished_sweep_says_what_was_kept_and_where_and_marks_the_most() -> None:
    session = filled()
    async with console(session, (80, 24)) as pilot:
        screen = await _open(pilot)
        session.store.apply(sweep(6, op_id=screen.operation_id, status="done", result={"run": "r-0012"}))
        shown = await shows(pilot, "6 levels kept", "r-0012")
        assert "top" in next(row for row in shown.split("\n") if "402.7" in row)


async def test_a_failed_sweep_keeps_its_levels_and_names_the_cause() -> None:
    session = filled()
    async with console(session) as pilot:
        screen = await _open(pilot)
        failed = sweep(1, op_id=screen.operation_id, status="failed", error="the server answered 503 to every request",
                       hint="look at its log")  # fmt: skip
        session.store.apply(failed)
        await shows(pilot, "59.8", "1 level kept", "503", "look at its log")


async def test_without_a_server_the_key_says_what_to_do() -> None:
    session = Recorder()
    async with console(session) as pilot:
        await pilot.press("s")
        await shows(pilot, "no running server is selected")
        assert isinstance(pilot.app.screen, Cockpit)


async def test_a_level_without_steady_figures_shows_na_not_zero() -> None:
    session = filled()
    async with console(session) as pilot:
        screen = await _open(pilot)
        session.store.apply(sweep(1, op_id=screen.operation_id))
        await shows(pilot, "59.8")
        row = next(row for row in text(pilot).split("\n") if "59.8" in row)
        assert "–" in row


async def test_earlier_runs_of_the_same_model_and_host_lie_behind_the_chart_and_others_do_not() -> None:
    session = filled()
    session.stored.stored = (
        run("r-0009", host="another", target="another:30000"),
        run("r-0008", kind="check", levels=()),
        run("r-0007"),
        run("r-0006", levels=run().levels[:3]),
        run("r-0005"),
    )
    async with console(session) as pilot:
        screen = await _open(pilot)
        await until(pilot, lambda: [one.id for one in screen.earlier] == ["r-0007", "r-0006"])
        session.store.apply(sweep(2, op_id=screen.operation_id))
        shown = await shows(pilot, "r-0007", "r-0006", "203.1")
        assert "r-0009" not in shown
        chart = screen.query_one(LevelsChart)
        drawn = [curve.label for curve in chart_of(MEASURES[0], LEVELS[:2], screen.earlier, 60, 12).curves]  # type: ignore[union-attr]
        assert drawn == ["r-0007", "r-0006", "whole run", "steady window"], "the running sweep is not drawn last"
        assert {"dim", "faint"} <= {style for row in chart.body(100, 14) for _, style in row}


async def test_m_goes_through_throughput_stream_speed_ttft_and_e2e() -> None:
    session = filled()
    levels = (
        level(1, 59.8, 137.0, 8, ttft_s={"p50": 0.3, "p99": 0.4}, request_output_tps={"p50": 61.0}),
        level(8, 361.4, 45.3, 16, ttft_s={"p50": 0.5, "p99": 4.9}, request_output_tps={"p50": 47.5}),
    )
    async with console(session) as pilot:
        screen = await _open(pilot)
        session.store.apply(sweep(0, op_id=screen.operation_id, status="done", levels=levels))
        await shows(pilot, "tok/s against concurrency", "361.4")
        await until(pilot, lambda: pilot.app.focused is None)
        await pilot.press("m")
        await shows(pilot, "tok/s of one stream")
        await pilot.press("m")
        await shows(pilot, "TTFT in s", "p99")
        stream, ttft, e2e = (chart_of(m, levels, (), 60, 12) for m in MEASURES[1:])
        assert stream is not None
        assert ttft is not None
        assert e2e is not None
        assert list(stream.curves[0].ys) == [61.0, 47.5]
        assert [list(curve.ys) for curve in ttft.curves] == [[0.3, 0.5], [0.4, 4.9]]
        assert [curve.label for curve in e2e.curves] == ["p50"], "a line is drawn for a percentile nobody measured"


async def test_errors_are_listed_by_class_and_a_failed_check_says_which_figures_not_to_trust() -> None:
    session = filled()
    broken = level(
        8,
        361.4,
        45.3,
        16,
        outcomes={"ok": {"count": 13, "example": ""}, "http 503": {"count": 3, "example": "queue is full"}},
        checks=[
            {"code": "CLIENT_BOUND", "ok": False, "sentence": "the server made 9000 tokens, 6000 were counted",
             "distrust": ["output_tps", "itl_s"]},
            {"code": "LITTLE", "ok": True, "sentence": "never shown", "distrust": []},
        ],
    )  # fmt: skip
    async with console(session) as pilot:
        screen = await _open(pilot)
        session.store.apply(sweep(0, op_id=screen.operation_id, levels=(broken,)))
        shown = await shows(pilot, "C=8: 3 × http 503, first: queue is full", "the server made 9000 tokens")
        assert "figures not to trust: whole-run tok/s, ITL" in shown
        assert "never shown" not in shown
        assert "! not to trust" in next(row for row in shown.split("\n") if "361.4" in row)


async def test_a_finished_sweep_explains_its_plateau_from_what_was_stored_with_it() -> None:
    session = filled()
    finding = {"code": "QUEUE_LIMITED_BY_STATE_SLOTS", "severity": "warning", "levels": [16, 32, 48],
               "claim": "The plateau is set by max_running_requests = 9.", "arithmetic": "48 slots // 5 = 9",
               "next_action": "Raise the state slots."}  # fmt: skip
    session.stored.stored = (run("r-0012", context={"findings": [finding]}),)
    async with console(session) as pilot:
        screen = await _open(pilot)
        session.store.apply(sweep(6, op_id=screen.operation_id, status="done", result={"run": "r-0012"}))
        await shows(pilot, "The plateau is set by max_running_requests = 9.", "48 slots // 5 = 9", "Raise the state")


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_server_and_gpus_are_seen_beside_the_running_sweep(size: tuple[int, int]) -> None:
    session = filled()
    async with console(session, size) as pilot:
        screen = await _open(pilot)
        session.store.apply(sweep(3, op_id=screen.operation_id))
        shown = await shows(pilot, "running ", "queued ", "tok/s", "GPU0 ")
        row = next(row for row in shown.split("\n") if "queued " in row)
        assert "KV" in row or "state" in row
        session.store.apply(sweep(3, op_id=screen.operation_id, status="done", result={"run": "r-0012"}))
        await until(pilot, lambda: "queued " not in text(pilot))


async def test_errors_are_listed_while_the_level_still_runs() -> None:
    session = filled()
    async with console(session) as pilot:
        screen = await _open(pilot)
        running = sweep(3, op_id=screen.operation_id, errors={"5xx": "503 the queue is full"})
        session.store.apply(running)
        concurrency = running.live["concurrency"]
        await shows(pilot, f"C={concurrency:.0f}, now: 5xx, first: 503 the queue is full")


async def test_any_stored_run_can_be_laid_behind_the_chart() -> None:
    session = filled()
    session.stored.stored = (
        run("r-0009", host="another", target="another:30000", note="last week"),
        run("r-0008", kind="check", levels=()),
        run("r-0007"),
    )
    async with console(session) as pilot:
        screen = await _open(pilot)
        await until(pilot, lambda: [one.id for one in screen.earlier] == ["r-0007"])
        session.store.apply(sweep(2, op_id=screen.operation_id))
        await shows(pilot, "203.1")
        await until(pilot, lambda: pilot.app.focused is None)
        await pilot.press("o")
        shown = await shows(pilot, "Runs behind the chart", "r-0009", "another:30000", "last week")
        assert "r-0008" not in shown
        await pilot.press("space", "enter")
        await until(pilot, lambda: [one.id for one in screen.earlier] == ["r-0009", "r-0007"])
        await until(pilot, lambda: pilot.app.screen is screen)
        await shows(pilot, "r-0009", "203.1")
        screen.set_focus(screen.query(Input).first())  # as Textual does when a screen comes back, for a moment
        await pilot.press("o")
        await shows(pilot, "Runs behind the chart")
        await pilot.press("space", "down", "space", "enter")
        await until(pilot, lambda: screen.earlier == ())
        await until(pilot, lambda: pilot.app.screen is screen)
        await pilot.press("o")
        await shows(pilot, "Runs behind the chart")
        await pilot.press("space", "escape")
        await until(pilot, lambda: pilot.app.screen is screen)
        assert screen.earlier == ()


async def _open(pilot: object) -> SweepScreen:
    await shows(pilot, "ready")  # type: ignore[arg-type]
    await pilot.press("s")  # type: ignore[attr-defined]
    await shows(pilot, "concurrency levels")  # type: ignore[arg-type]
    screen = pilot.app.screen  # type: ignore[attr-defined]
    assert isinstance(screen, SweepScreen)
    assert "esc back" in rows(pilot)[-1]  # type: ignore[arg-type]
    screen.operation_id = "sweep-x"
    return screen


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40), (200, 50)])
async def test_every_size_shows_whole_columns_the_chart_and_the_server_and_nothing_lies_outside(
    size: tuple[int, int],
) -> None:
    session = filled()
    async with console(session, size) as pilot:
        screen = await _open(pilot)
        session.store.apply(sweep(4, op_id=screen.operation_id))
        await shows(pilot, "371.5", "server and GPU now", "tok/s against concurrency")
        for row in rows(pilot):
            if "TTFT p50" in row or "16.8 s" in row:
                assert "…" not in row, row
        assert not screen.show_vertical_scrollbar, "the screen itself scrolls: something is out of sight"
        assert screen.query_one(LevelsChart).region.height >= 4


async def test_in_a_broad_terminal_table_and_chart_stand_side_by_side() -> None:
    session = filled()
    async with console(session, (200, 50)) as pilot:
        screen = await _open(pilot)
        session.store.apply(sweep(4, op_id=screen.operation_id))
        await shows(pilot, "371.5", "a stream")
        chart, table = screen.query_one(LevelsChart).region, screen.query_one(LevelsPanel).region
        assert chart.x >= table.right
        assert chart.y == table.y


def test_columns_give_way_by_rank_and_what_no_level_has_is_not_offered() -> None:
    late = level(8, 361.4, 45.3, 16, ttft_s={"p99": 2.5}, tpot_s={"p50": 0.021})
    names = {width: [column.name for column in columns_for(width, [late])] for width in (56, 76, 160)}
    assert names[56] == ["C", "ok", "err", "tok/s", "steady", "TTFT p50"]
    assert "E2E p50" in names[76]
    assert {"TTFT p99", "TPOT p50", "a stream"} <= set(names[160])
    assert "E2E p99" not in names[160]
    for width, found in names.items():
        assert len(level_text(late, columns_for(width, [late]))) <= width - 8, found
    assert "2.50 s" in level_text(late, columns_for(160, [late]))

from __future__ import annotations

from typing import Any

import pytest

from console_feed import LEVELS, FakeHistory, Recorder, fill, level, run
from console_screen import console, shows, text, until
from run_tools import sweep_of
from tokpit.config.paths import state_dir
from tokpit.domain.run import Run
from tokpit.insight.changes import differences
from tokpit.ui.compare import level_pairs
from tokpit.ui.screens.history import HistoryScreen, RunPanel
from tokpit.ui.widgets.compare import ComparePanel
from tokpit.ui.widgets.runs_table import RunsTable


def older(**more: Any) -> Run:
    context = {"settings": {"tp": 1, "spec_steps": 3, "hicache_gb": 150.0}, "version": "0.5.15",
               "gpus": ["RTX PRO 6000"], "command": "python -m sglang.launch_server --api-key sk-old"}  # fmt: skip
    return run("r-0006", **{"started_at": 1_795_000_000.0, "context": context, **more})


def newer(**more: Any) -> Run:
    context = {"settings": {"tp": 1, "spec_steps": 5, "max_running": 48}, "version": "0.5.16", "gpus": ["RTX PRO 6000"],
               "command": "python -m sglang.launch_server --api-key sk-new"}  # fmt: skip
    levels = (level(1, 65.0, 120.0, 8), level(8, 361.4, 45.3, 16), level(64, 800.0, 100.0, 128))
    return run("r-0007", **{"context": context, "levels": levels, **more})


def test_levels_are_paired_in_one_measure_and_a_missing_one_has_no_ratio() -> None:
    pairs = {pair.concurrency: pair for pair in level_pairs(older(), newer())}
    assert list(pairs) == [1, 4, 8, 16, 32, 48, 64]
    assert not pairs[1].steady
    assert (pairs[1].before, pairs[1].after) == (59.8, 65.0)
    assert pairs[8].steady
    assert pairs[8].ratio == 1.0
    assert pairs[64].before is None
    assert pairs[64].ratio is None


def test_a_level_without_a_steady_figure_on_one_side_is_compared_by_the_whole_run() -> None:
    one = older(levels=(level(8, 300.0, 10, 16),))
    other = newer(levels=(LEVELS[0], level(8, 330.0, 10, 16)))
    assert level_pairs(one, other)[1].steady
    unsteady = run("r", levels=(LEVELS[0],))
    assert not level_pairs(unsteady, run("s", levels=(level(1, 1.0, 1, 1),)))[0].steady


def test_only_what_differs_is_listed_and_secrets_never() -> None:
    rows = {name: (old, new) for name, old, new in differences(older(), newer())}
    assert rows["spec steps"] == ("3", "5")
    assert rows["hicache gb"] == ("150", "not given")
    assert rows["max running"] == ("not given", "48")
    assert rows["version"] == ("0.5.15", "0.5.16")
    assert "tp" not in rows
    assert "gpus" not in rows
    assert "command" not in rows, "two masked keys are no difference"


async def test_two_picked_runs_are_compared_the_older_first_and_a_third_replaces_the_first() -> None:
    session = Recorder(stored=FakeHistory((newer(), older(), run("r-0001", started_at=1.0))))
    fill(session.store)
    async with console(session, (120, 50)) as pilot:
        await pilot.press("h")
        await shows(pilot, "r-0007", "r-0006")
        screen = pilot.app.screen
        assert isinstance(screen, HistoryScreen)
        await pilot.press("space")
        await shows(pilot, "one run is picked")
        await pilot.press("down", "space")
        shown = await shows(pilot, "r-0006 → r-0007", "×1.09", "×1.00", "spec steps", "0.5.15")
        assert "◆" in shown
        assert "sk-" not in shown
        await shows(pilot, "tok/s against concurrency", "r-0006")
        await pilot.press("down", "space")
        assert screen.picked == ["r-0006", "r-0001"]
        await shows(pilot, "r-0001 → r-0006")
        await pilot.press("space")
        await until(pilot, lambda: "r-0001 → r-0006" not in text(pilot))
        assert screen.picked == ["r-0006"]


async def test_two_picked_runs_are_judged_by_the_noise_of_their_baseline_and_exported() -> None:
    runs = (sweep_of("r-new", 0.85, seed=9), sweep_of("r-old", started_at=1.0))
    known = tuple(sweep_of(f"r{n}", factor, seed=n) for n, factor in enumerate((1.0, 0.9, 1.1, 0.95)))
    session = Recorder(stored=FakeHistory(runs, known))
    fill(session.store)
    async with console(session, (120, 50)) as pilot:
        await pilot.press("h")
        await shows(pilot, "r-old")
        await pilot.press("space", "down", "space")
        await shows(pilot, "r-old → r-new", "within noise", "from 4 runs")
        await pilot.press("e")
        await shows(pilot, "exported report.md, report.html, report.csv, report.json")
    (page,) = state_dir().glob("exports/*compare-r-old-r-new/report.html")
    assert page.read_text().count("<svg") == 4


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
async def test_no_column_of_the_runs_is_out_of_sight(width: int) -> None:
    session = Recorder(stored=FakeHistory((newer(), older())))
    fill(session.store)
    async with console(session, (width, 30)) as pilot:
        await pilot.press("h")
        await shows(pilot, "r-0007", "peak tok/s")
        table = pilot.app.screen.query_one(RunsTable)
        assert table.virtual_size.width <= width, "a column can only be seen by moving sideways"
        assert table.max_scroll_x == 0
        if width >= 80:
            await shows(pilot, "status", "Qwen3.6-27B")
        await pilot.resize_terminal(200, 50)
        await shows(pilot, "kind", "levels")


async def test_in_a_broad_terminal_the_run_stands_beside_the_table() -> None:
    session = Recorder(stored=FakeHistory((newer(), older())))
    fill(session.store)
    async with console(session, (200, 50)) as pilot:
        await pilot.press("h")
        await shows(pilot, "r-0007", "against concurrency")
        screen = pilot.app.screen
        table, run = screen.query_one(RunsTable).region, screen.query_one(RunPanel).region
        assert run.x >= table.right
        assert run.y == table.y
        await pilot.press("space", "down", "space")
        await shows(pilot, "r-0006 → r-0007")
        compare = screen.query_one(ComparePanel).region
        assert (compare.x >= table.right, compare.y) == (True, table.y)


async def test_no_run_yet_is_one_sentence_with_a_key_and_no_empty_chart() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (80, 24)) as pilot:
        await shows(pilot, "ready")
        await pilot.press("h")
        shown = await shows(pilot, "no run is stored yet", "press s on a server")
        assert "concurrency" not in shown

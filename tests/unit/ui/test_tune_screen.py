"""The tune screen: form to experiment, leaderboard, Pareto chart, reasons, report."""

from __future__ import annotations

import msgspec
import pytest
from textual.widgets import Input

from console_feed import Recorder, fill, server
from console_screen import SIZES, console, rows, shows, text, until
from tokpit.tune.experiment import Experiment
from tokpit.ui.screens.cockpit import Cockpit
from tokpit.ui.screens.tune import TuneScreen
from tokpit.ui.tuning import curves_of, lines_of, pareto_rows, places_of
from tune_feed import REPORT, tuning


def filled() -> Recorder:
    session = Recorder()
    fill(session.store)
    return session


def tuned(session: Recorder, **changes: object) -> None:
    session.store.tune(tuning(server().label, server().id, **changes))


async def _open(pilot: object) -> TuneScreen:
    await shows(pilot, "ready")  # type: ignore[arg-type]
    await pilot.press("t")  # type: ignore[attr-defined]
    await until(pilot, lambda: isinstance(pilot.app.screen, TuneScreen))  # type: ignore[arg-type,attr-defined]
    screen = pilot.app.screen  # type: ignore[attr-defined]
    assert isinstance(screen, TuneScreen)
    return screen


async def test_the_form_counts_candidates_and_sends_the_experiment_through_the_gate() -> None:
    session = filled()
    async with console(session) as pilot:
        screen = await _open(pilot)
        await shows(pilot, "values for at least one setting")
        screen.query_one("#field-mtp_steps", Input).value = "0..3"
        screen.query_one("#field-more", Input).value = "--schedule-policy=lpm,fcfs"
        await shows(pilot, "8 candidates before rules and memory")
        screen.query_one("#field-minutes", Input).value = "90"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(session.calls))
        name, args = session.calls[-1]
        assert name == "tune.start"
        experiment = args["experiment"]
        assert isinstance(experiment, Experiment)
        assert experiment.target == server().id
        assert experiment.vary == {"mtp_steps": "0..3", "--schedule-policy": "lpm,fcfs"}
        assert experiment.limits.minutes == 90


async def test_a_server_in_a_container_is_refused_before_anything_is_filled_in() -> None:
    session = Recorder()
    fill(session.store, info=msgspec.structs.replace(server(), container="c0ffee"))
    async with console(session) as pilot:
        await _open(pilot)
        await shows(pilot, "runs in container c0ffee", "it is not touched", "tokpit compare")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("mtp_steps", "zwei", "'zwei' is not a whole number"),
        ("objective", "speed", "'speed' is no objective"),
        ("minutes", "soon", "'soon' is no number"),
        ("restarts", "1", "at least 2"),
        ("more", "policy", "is not name=values"),
    ],
)
async def test_a_wrong_entry_is_said_and_nothing_starts(field: str, value: str, said: str) -> None:
    session = filled()
    async with console(session) as pilot:
        screen = await _open(pilot)
        screen.query_one("#field-max_running", Input).value = "8,16"
        screen.query_one(f"#field-{field}", Input).value = value
        await shows(pilot, said)
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert session.calls == []


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_leaderboard_chart_and_reasons_at_every_size(size: tuple[int, int]) -> None:
    session = filled()
    tuned(session)
    async with console(session, size) as pilot:
        await _open(pilot)
        shown = await shows(pilot, "searching", "5 of 12 restarts", "1026.2", "◂ ahead", "◂ first", "NO_KV_MEMORY")
        order = [row for row in shown.split("\n") if "◂" in row or "measuring" in row]
        assert "ahead" in order[0], "the best is on top"
        assert "★" in shown
        if size[0] < 110:
            await pilot.press("m")
            await shows(pilot, "tok/s against concurrency")
            await pilot.press("m")
        shown = await shows(pilot, "left out: 3", "cannot reach the best", "no room in memory")
        assert all(len(row) <= size[0] for row in rows(pilot))


async def test_the_chart_turns_to_sweep_curves_and_back() -> None:
    session = filled()
    tuned(session)
    async with console(session) as pilot:
        await _open(pilot)
        await shows(pilot, "tok/s against one stream")
        await pilot.press("m")
        shown = await shows(pilot, "tok/s against concurrency", "#2")
        assert sum(0x2801 <= ord(char) <= 0x28FF for char in shown) > 20, "no curve is drawn"
        await pilot.press("m")
        await shows(pilot, "tok/s against one stream")


async def test_x_stops_it_and_leaving_does_not() -> None:
    session = filled()
    tuned(session)
    async with console(session) as pilot:
        await _open(pilot)
        await shows(pilot, "searching")
        await pilot.press("x")
        await until(pilot, lambda: bool(session.calls))
        assert session.calls == [("tune.stop", {"id": "6g2h52-pax"})]
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, Cockpit))
        await pilot.press("5")
        await shows(pilot, "searching", "1026.2")


async def test_the_end_shows_the_report_without_its_table_and_a_new_one_can_begin() -> None:
    session = filled()
    tuned(session, phase="done", report=REPORT, left_s=None)
    async with console(session) as pilot:
        await _open(pilot)
        shown = await shows(pilot, "Result", "+161.1 %", "spec_steps: 3 -> 2", "no difference shown")
        assert "a table" not in shown
        await pilot.press("ctrl+s")
        await shows(pilot, "MTP steps")
        assert "Result" not in text(pilot)


async def test_hostile_words_of_a_verdict_stay_words() -> None:
    session = filled()
    base = tuning(server().label, server().id)
    bad = msgspec.structs.replace(base.trials[3], reason="[/red]\x1b]0;x\x07 no room\n[@click=app.quit]x[/]")
    session.store.tune(msgspec.structs.replace(base, trials=(*base.trials[:3], bad)))
    async with console(session) as pilot:
        await _open(pilot)
        shown = await shows(pilot, "no room")
        assert "\x1b" not in shown


def test_places_and_lines_hold_what_was_measured() -> None:
    found = tuning("gpu1:1", "s")
    lines = lines_of(found)
    assert [line.trial.number for line in lines] == [2, 1, 0, 4, 5, 3]
    signs = {place.label: place.sign for place in places_of(found)}
    assert (signs["#2"], signs["#0"], signs["#1"], signs["#4"]) == ("★", "▲", "◆", "○")
    drawn = pareto_rows(places_of(found), 60, 14)
    assert len(drawn) == 14
    assert all(sum(len(part) for part, _ in row) <= 60 for row in drawn)
    assert pareto_rows([], 60, 14) == []
    chart = curves_of(found, 60, 12)
    assert chart is not None
    assert [curve.label for curve in chart.curves] == ["#2", "#1", "#0"]

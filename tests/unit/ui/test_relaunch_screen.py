from __future__ import annotations

import base64
from typing import Any

import pytest
from textual.widgets import Input

from console_feed import ARGV, HOST, Recorder, fill, launch, server
from console_screen import console, shows, text, until
from tokpit.domain.job import BatchJob
from tokpit.domain.records import ServerSeen
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import Settings
from tokpit.engines.registry import engine
from tokpit.errors import UsageError
from tokpit.ui.relaunching import NEW, OLD, SAME, changes_of, command_lines, line_diff, running_values, settings_diff
from tokpit.ui.screens.relaunch import RelaunchScreen


def running() -> ServerInfo:
    return server(settings=engine("sglang").from_flags(ARGV[3:], "0.5.16"))


def filled() -> Recorder:
    session = Recorder()
    fill(session.store, info=running())
    return session


def changed(**fields: str) -> dict[str, object]:
    info = running()
    return changes_of(info.settings, {**running_values(info.settings), **fields})


def test_a_form_that_is_left_as_it_is_changes_nothing() -> None:
    assert changed() == {}
    assert changed(tp=" 1 ") == {}


def test_only_what_differs_is_changed_and_an_emptied_field_goes_back_to_the_engine() -> None:
    assert changed(max_running="48", hicache_gb="200") == {"max_running": 48, "hicache_gb": 200.0}
    assert changed(context_len="") == {"context_len": None}
    assert changed(hicache_gb="") == {"hicache_gb": None, "hicache": None}


def test_more_draft_steps_take_the_chains_draft_tokens_along_and_none_take_everything() -> None:
    assert changed(spec_steps="5") == {"spec_steps": 5, "spec_draft_tokens": 6}
    off = changed(spec_steps="0")
    assert off["spec_method"] is None
    assert off["spec_draft_tokens"] is None
    info = running()
    assert not [word for word in command_lines(info, off)[1] if "speculative" in word]


def test_draft_method_model_and_block_are_changed_as_one() -> None:
    assert changed(spec_method="dflash", spec_steps="", draft_model="/m/drafter", spec_block="16") == {
        "spec_method": "dflash", "spec_steps": None, "draft_model": "/m/drafter", "spec_draft_tokens": 16,
        "spec_topk": None,
    }  # fmt: skip
    assert changed(draft_model="/m/heads") == {"draft_model": "/m/heads"}
    assert set(changed(spec_method="", spec_steps="").values()) == {None}
    flash = Settings(model="M", spec_method="dflash", draft_model="D", spec_draft_tokens=16)
    shown = running_values(flash)
    assert (shown["spec_method"], shown["draft_model"], shown["spec_block"]) == ("dflash", "D", "16")
    assert changes_of(flash, shown) == {}
    assert changes_of(flash, {**shown, "spec_block": "8"}) == {"spec_draft_tokens": 8}
    assert changes_of(flash, {**shown, "spec_method": "", "spec_block": "", "draft_model": ""}) == {
        "spec_method": None, "draft_model": None, "spec_draft_tokens": None,
    }  # fmt: skip
    own = Settings(model="M", spec_method="standalone", spec_steps=3)
    assert changes_of(own, {**running_values(own), "spec_steps": "4"}) == {"spec_steps": 4}
    with pytest.raises(UsageError, match="draft block"):
        changed(spec_block="8")
    with pytest.raises(UsageError, match="is none of"):
        changed(spec_method="magic")


@pytest.mark.parametrize(("field", "value"), [("tp", "two"), ("hicache_gb", "-4"), ("raw", "--x 'open"), ("model", "")])
def test_a_wrong_field_is_named(field: str, value: str) -> None:
    with pytest.raises(UsageError):
        changed(**{field: value})


def test_the_diff_has_old_and_new_value_side_by_side_and_hides_the_key() -> None:
    info = running()
    changes = changed(spec_steps="5", max_running="48")
    assert ("spec steps", "3", "5") in settings_diff(info.settings, changes)
    assert ("max running", "engine's default", "48") in settings_diff(info.settings, changes)
    rows = line_diff(*command_lines(info, changes))
    assert (OLD, "--speculative-num-steps 3") in rows
    assert (NEW, "--speculative-num-steps 5") in rows
    assert (NEW, "--max-running-requests 48") in rows
    assert rows.index((NEW, "--speculative-num-steps 5")) == rows.index((OLD, "--speculative-num-steps 3")) + 1
    assert (SAME, "--model-path /srv/models/Qwen3.6-27B") in rows
    assert not [flag for _, flag in rows if "sk-feed-secret" in flag]


def test_a_secret_flag_is_masked_in_the_form_and_whole_in_what_is_sent() -> None:
    shown = running_values(running().settings)["raw"]
    assert shown == "--api-key ***"
    assert changed(raw="--api-key *** --log-level debug") == {
        "raw": ("--api-key", "sk-feed-secret", "--log-level", "debug")
    }
    assert changed(raw="") == {"raw": ()}
    with pytest.raises(UsageError, match="stands for no value"):
        changed(raw="--api-key *** --admin-api-key ***")


def test_flags_that_only_moved_are_the_same() -> None:
    assert line_diff(["serve", "--a", "1", "--b"], ["serve", "--b", "--a", "1"]) == [
        (SAME, "serve"),
        (SAME, "--b"),
        (SAME, "--a 1"),
    ]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_form_holds_what_runs_and_sends_only_changes_and_shows_them_first(size: tuple[int, int]) -> None:
    session = filled()
    async with console(session, size) as pilot:
        await pilot.press("R")
        await shows(pilot, "Relaunch gpu-rack-7:30000", "nothing is changed")
        screen = pilot.app.screen
        assert isinstance(screen, RelaunchScreen)
        assert not screen.query_one("#steps").display
        assert screen.query_one("#field-hicache_gb", Input).value == "150"
        screen.query_one("#field-max_running", Input).value = "48"
        await shows(pilot, "max running", "→ 48", "1 setting")
        assert session.calls == []
        assert "sk-feed-secret" not in text(pilot)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(session.calls))
        name, args = session.calls[-1]
        assert (name, args["server_id"], args["changes"]) == ("server.relaunch", running().id, {"max_running": 48})


async def test_the_steps_of_the_launch_that_follows_are_shown_though_it_has_an_id_of_its_own() -> None:
    session = filled()
    session.store.apply(launch(op_id="launch-of-yesterday", status="done"))
    async with console(session) as pilot:
        await pilot.press("R")
        await shows(pilot, "nothing is changed")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(session.calls))
        assert "weights loaded" not in text(pilot)
        session.store.apply(launch(op_id="launch-by-ops", steps=3))
        await shows(pilot, "weights loaded", "50.6 GiB")
        await pilot.press("escape")
        await shows(pilot, "the launch goes on")


async def test_a_wrong_entry_is_said_and_nothing_is_stopped() -> None:
    session = filled()
    async with console(session) as pilot:
        await pilot.press("R")
        await shows(pilot, "nothing is changed")
        pilot.app.screen.query_one("#field-tp", Input).value = "two"
        await shows(pilot, "tensor parallel: 'two' is not a whole number")
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert session.calls == []


async def test_read_only_opens_no_relaunch() -> None:
    session = filled()
    session.read_only = True
    async with console(session) as pilot:
        await pilot.press("R")
        await shows(pilot, "tokpit runs in read-only mode")
        assert not isinstance(pilot.app.screen, RelaunchScreen)


async def test_y_copies_the_command_line_without_its_secret_and_a_huge_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = filled()
    async with console(session) as pilot:
        written: list[str] = []
        monkeypatch.setattr(pilot.app._driver, "write", written.append)
        await pilot.press("y")
        await shows(pilot, "copied the command line", "masked")
        sent = next(part for part in written if part.startswith("\x1b]52;c;"))
        line = base64.b64decode(sent.removeprefix("\x1b]52;c;").rstrip("\a")).decode()
        assert line.startswith("/opt/sgl/bin/python -m sglang.launch_server --model-path")
        assert "sk-feed-secret" not in line
        written.clear()
        huge = server(argv=(*ARGV, "--json-model-override-args", "x" * 70_000))
        session.store.apply(ServerSeen(0.0, huge))
        await pilot.press("y")
        await shows(pilot, "✗ the command line", "more than the 64 KiB")
        assert not any("]52;" in part for part in written)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"job": BatchJob(id="77", state="RUNNING", nodes=("n1",)), "pid": 0},
            "job 77: cancelled, and submitted again",
        ),
        ({"group": "g", "ranks": (HOST, "gpu2")}, f"on 2 hosts: {HOST}, gpu2"),
    ],
)
async def test_the_form_says_what_else_a_relaunch_takes(more: dict[str, Any], said: str) -> None:
    session = Recorder()
    fill(session.store, info=server(**more))
    async with console(session) as pilot:
        await pilot.press("R")
        await shows(pilot, said)

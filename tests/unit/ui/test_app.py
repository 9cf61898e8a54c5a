from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from console_feed import FakeHistory, Recorder, fill, run
from console_screen import console, shows, text, until
from tokpit.errors import StopError
from tokpit.ops.gate import ConfirmRequest, Risk
from tokpit.ui.actions import ACTIONS, APP_WIDE, actions_for
from tokpit.ui.screens.cockpit import Cockpit
from tokpit.ui.screenshot import screenshot

SCREENS = ("cockpit", "launch", "relaunch", "sweep", "history", "check", "diagnose", "fleet", "help")


def test_neither_ssh_nor_http_libraries_are_imported_before_the_first_paint() -> None:
    code = (
        "import sys, tokpit.ui.app, tokpit.ops.session\n"
        "print([m for m in ('asyncssh', 'aiohttp', 'cryptography', 'plotext') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("screen", SCREENS)
def test_no_key_of_a_screen_means_two_things(screen: str) -> None:
    keys = [action.key for action in actions_for(screen)]
    assert len(keys) == len(set(keys))


def test_every_action_of_the_table_exists_on_its_screens() -> None:
    from tokpit.ui.app import TokpitApp
    from tokpit.ui.screens.check import CheckScreen
    from tokpit.ui.screens.diagnose import DiagnoseScreen
    from tokpit.ui.screens.earlier import EarlierScreen
    from tokpit.ui.screens.fleet import FleetScreen
    from tokpit.ui.screens.help import HelpScreen
    from tokpit.ui.screens.history import HistoryScreen
    from tokpit.ui.screens.launch import LaunchScreen
    from tokpit.ui.screens.plan import PlanScreen
    from tokpit.ui.screens.relaunch import RelaunchScreen
    from tokpit.ui.screens.sweep import SweepScreen
    from tokpit.ui.screens.tune import TuneScreen

    classes: dict[str, Any] = {"cockpit": Cockpit, "launch": LaunchScreen, "sweep": SweepScreen,
                               "history": HistoryScreen, "help": HelpScreen, "relaunch": RelaunchScreen,
                               "check": CheckScreen, "diagnose": DiagnoseScreen,
                               "fleet": FleetScreen, "earlier": EarlierScreen, "tune": TuneScreen,
                               "plan": PlanScreen}  # fmt: skip
    for action in ACTIONS:
        for screen in action.screens:
            name = action.id.partition("(")[0]
            # A screen's key does not fall through to the application: Textual would do nothing, without a word.
            owner = TokpitApp if name in APP_WIDE else classes[screen]
            assert hasattr(owner, f"action_{name}"), (screen, action.id)


async def test_q_quits() -> None:
    async with console(Recorder()) as pilot:
        await pilot.press("q")
        await until(pilot, lambda: not pilot.app.is_running)


async def test_help_lists_the_keys_of_the_screen_and_escape_closes_it() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (200, 60)) as pilot:
        await pilot.press("question_mark")
        shown = await shows(pilot, "keys of the cockpit")
        for action in actions_for("cockpit"):
            assert action.help in shown
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, Cockpit))


async def test_the_palette_finds_a_command_by_name_and_runs_it() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session) as pilot:
        await pilot.press("ctrl+p")
        await until(pilot, lambda: len(pilot.app.screen_stack) > 2)
        await pilot.press(*"history")
        await shows(pilot, "stored runs")
        await pilot.press("down", "enter")
        await shows(pilot, "no run is stored yet")


async def test_history_shows_runs_and_the_detail_of_the_one_under_the_cursor() -> None:
    session = Recorder(stored=FakeHistory((run(), run("r-0006", status="stopped", levels=run().levels[:2]))))
    fill(session.store)
    async with console(session) as pilot:
        await pilot.press("h")
        await shows(pilot, "r-0007", "r-0006", "402.7", "1× RTX PRO 6000", "took 12m01s")
        await pilot.press("down")
        await until(pilot, lambda: "244.1s" not in text(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, Cockpit))


async def test_history_says_how_to_make_the_first_run() -> None:
    async with console(Recorder()) as pilot:
        await pilot.press("h")
        await shows(pilot, "no run is stored yet", "press s")


async def test_stop_goes_through_the_gate_for_the_selected_server() -> None:
    session = Recorder()
    server_id = fill(session.store)
    async with console(session) as pilot:
        await shows(pilot, "ready")
        await pilot.press("x")
        await until(pilot, lambda: bool(session.calls))
        assert session.calls == [("server.stop", {"server_id": server_id})]


async def test_an_error_of_a_command_is_a_notice_with_its_hint() -> None:
    class Failing(Recorder):
        async def execute(self, command_id: str, **args: Any) -> Any:
            raise StopError("pid 4711 is another process by now", hint="look again with [r]")

    session = Failing()
    fill(session.store)
    async with console(session) as pilot:
        await shows(pilot, "ready")
        await pilot.press("x")
        await shows(pilot, "pid 4711 is another process by now", "look again with [r]")


def request(**changes: Any) -> ConfirmRequest:
    fields: dict[str, Any] = {
        "title": "stop gpu-rack-7:30000",
        "lines": ("kill -TERM -- -4711",),
        "risk": Risk.DESTRUCTIVE,
        "typed_word": "30000",
        "warnings": ("9 requests are running",),
    }
    return ConfirmRequest(**{**fields, **changes})


async def ask(pilot: Any, asked: ConfirmRequest) -> asyncio.Task[bool]:
    task = asyncio.ensure_future(pilot.app.ask_confirm(asked))
    await shows(pilot, asked.title)
    return task


async def test_confirm_shows_the_exact_lines_and_enter_does_nothing_by_itself() -> None:
    async with console(Recorder()) as pilot:
        task = await ask(pilot, request())
        await shows(pilot, "kill -TERM -- -4711", "9 requests are running", "Type 30000")
        assert pilot.app.focused is not None
        assert pilot.app.focused.id == "cancel"
        await pilot.press("enter")
        assert await task is False


async def test_a_destructive_command_needs_its_word() -> None:
    async with console(Recorder()) as pilot:
        task = await ask(pilot, request())
        await pilot.press(*"3000", "enter")
        await pilot.pause()
        assert not task.done()
        assert pilot.app.screen.query_one("#go").disabled
        await pilot.press("0", "enter")
        assert await task is True


@pytest.mark.parametrize("size", [(80, 24), (100, 30)])
async def test_however_much_there_is_to_read_the_question_stays_in_view(size: tuple[int, int]) -> None:
    many = tuple(
        f"warning number {n} that takes a whole row of the screen or even a little more than that" for n in range(12)
    )
    lines = tuple(f"command line {n}" for n in range(30))
    async with console(Recorder(), size) as pilot:
        task = await ask(pilot, request(warnings=many, lines=lines))
        shown = await shows(pilot, "warning number 0", "Type 30000 to go on", "Cancel", "Do it")
        assert "command line 29" not in shown
        await pilot.press("end")
        await shows(pilot, "command line 29", "Type 30000 to go on", "Cancel")
        await pilot.press("pageup")
        await until(pilot, lambda: "command line 29" not in text(pilot))
        await pilot.press(*"30000", "enter")
        assert await task is True


async def test_escape_is_no() -> None:
    async with console(Recorder()) as pilot:
        task = await ask(pilot, request(risk=Risk.CHANGE, typed_word=None))
        await pilot.press("escape")
        assert await task is False


async def test_a_change_is_confirmed_with_two_keys() -> None:
    async with console(Recorder()) as pilot:
        task = await ask(pilot, request(risk=Risk.CHANGE, typed_word=None))
        await pilot.press("tab", "enter")
        assert await task is True


async def test_secrets_in_the_lines_are_masked() -> None:
    async with console(Recorder()) as pilot:
        task = await ask(pilot, request(lines=("serve --api-key sk-topsecret",)))
        await shows(pilot, "--api-key ***")
        assert "topsecret" not in text(pilot)
        await pilot.press("escape")
        await task


async def test_a_password_is_never_on_screen_and_comes_back_whole() -> None:
    async with console(Recorder()) as pilot:
        task = asyncio.ensure_future(pilot.app.ask_text("password", "Password of ops@gpu-rack-7"))  # type: ignore[attr-defined]
        await shows(pilot, "Password of ops@gpu-rack-7")
        await pilot.press(*"hunter2")
        await pilot.pause()
        assert "hunter2" not in text(pilot)
        await pilot.press("enter")
        assert await task == "hunter2"


async def test_an_unknown_host_key_shows_its_fingerprint_and_refuses_by_default() -> None:
    async with console(Recorder()) as pilot:
        question = "gpu-rack-7 shows SHA256:Zm9vYmFy"
        task = asyncio.ensure_future(pilot.app.ask_text("hostkey", question))  # type: ignore[attr-defined]
        await shows(pilot, "SHA256:Zm9vYmFy", "Refuse")
        await pilot.press("enter")
        assert await task is None


async def test_the_host_key_is_accepted_only_on_purpose() -> None:
    async with console(Recorder()) as pilot:
        task = asyncio.ensure_future(pilot.app.ask_text("hostkey", "gpu-rack-7 shows SHA256:Zm9v"))  # type: ignore[attr-defined]
        await shows(pilot, "Accept")
        await pilot.press("tab", "enter")
        assert await task == "yes"


async def test_hosts_are_watched_only_after_the_first_paint() -> None:
    session = Recorder()
    async with console(session) as pilot:
        await until(pilot, lambda: session.watched == ["gpu-rack-7"])


async def test_screenshot_gives_an_svg_with_the_figures() -> None:
    session = Recorder()
    fill(session.store)
    svg = await screenshot(session, size=(100, 30), font="DejaVu Sans Mono")
    assert svg.lstrip().startswith("<svg")
    assert "Qwen3.6-27B" in svg
    assert "Fira Code" not in svg

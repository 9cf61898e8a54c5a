from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot

from console_feed import Recorder, fill
from console_screen import console, rows, shows, text, until
from tokpit.ui.actions import SCREENS, actions_for, binding_id, key_of
from tokpit.ui.escape import TwoKeys
from tokpit.ui.keymap import own_keys
from tokpit.ui.run import run_app
from tokpit.ui.screens.cockpit import Cockpit
from tokpit.ui.screens.commands import Commands
from tokpit.ui.screens.help import HelpPanel, HelpScreen
from tokpit.ui.screens.tour import TourScreen
from tokpit.ui.widgets.log_view import LogView

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_of_keys_is_what_the_action_table_says() -> None:
    render = runpy.run_path(str(ROOT / "tools" / "make_keys.py"))["render"]
    assert (ROOT / "docs" / "keys.md").read_text() == render(), "run: python tools/make_keys.py"


def test_an_entry_names_an_action_one_screens_action_or_a_command() -> None:
    keys, problems = own_keys({"next_theme": "f8", "cockpit.history": "f6", "server.stop": "ctrl+x"})
    assert problems == []
    assert keys["cockpit.history"] == "f6"
    assert keys["cockpit.stop_server"] == "ctrl+x"
    assert {keys[f"{screen}.next_theme"] for screen in SCREENS if f"{screen}.next_theme" in keys} == {"f8"}
    assert "history.history" not in keys


@pytest.mark.parametrize(
    ("entry", "key", "said"),
    [
        ("stop_sever", "ctrl+x", "'stop_server' is like it"),
        ("history", "ctrl+", "is no key"),
        ("history", "hyper+x", "is no key"),
        ("stop_server", "s", "on the cockpit 's' is the key of 'sweep'"),
        ("start_launch", "b", "could not be typed"),
        ("cockpit.level", "up", "moves in the log"),
        ("follow", "G", "moves in the log"),
        ("sweep", "ctrl+q", "leaves tokpit"),
        ("sweep", "ctrl+i", "terminals send 'ctrl+i' as 'tab'"),
        ("cockpit.sweep", "escape", "closes what is open"),
        ("sweep", "", "is no key"),
    ],
)
def test_an_entry_that_cannot_be_followed_is_a_sentence_and_the_usual_key_stays(
    entry: str, key: str, said: str
) -> None:
    keys, problems = own_keys({entry: key})
    assert keys == {}
    assert said in " ".join(problems)


def test_a_sign_is_written_as_it_is_on_the_keyboard_and_shown_so() -> None:
    keys, problems = own_keys(
        {"stop_server": "!", "cockpit.diagnose": "F5", "cockpit.check": "Ctrl+X", "pick_all": "*"}
    )
    assert problems == []
    assert (keys["cockpit.stop_server"], keys["cockpit.diagnose"]) == ("exclamation_mark", "f5")
    assert keys["cockpit.check"] == "ctrl+x"
    shown = {action.name: action.key_text for action in actions_for("cockpit", keys)}
    assert (shown["stop_server"], shown["diagnose"], shown["check"]) == ("!", "F5", "^x")
    for sign in map(chr, range(33, 127)):
        if sign not in "jkgG":
            keys, problems = own_keys({"cockpit.save_profile": sign})
            assert not problems or "is the key of" in problems[0], problems
            if keys:
                assert {a.key_text for a in actions_for("cockpit", keys) if a.name == "save_profile"} == {sign}


async def test_a_click_in_the_footer_and_the_palette_press_a_sign_as_well() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (200, 60), keys={"cockpit.stop_server": "!"}) as pilot:
        await pilot.click(offset=(rows(pilot)[-1].index("! stop"), 59))
        await until(pilot, lambda: [name for name, _ in session.calls] == ["server.stop"])
        commands = {c.title: c for c in pilot.app.get_system_commands(pilot.app.screen)}
        commands["stop server  (!)"].callback()
        await until(pilot, lambda: [name for name, _ in session.calls] == ["server.stop"] * 2)


def test_of_two_actions_with_one_key_on_a_screen_one_keeps_its_own() -> None:
    keys, problems = own_keys({"cockpit.launch": "f1", "cockpit.sweep": "f1", "fleet.pick": "f1"})
    assert len(problems) == 1
    assert "'f1' is the key of" in problems[0]
    assert sorted(keys)[-1] == "fleet.pick"
    assert len(keys) == 2


def test_two_actions_may_change_places() -> None:
    keys, problems = own_keys({"launch": "s", "sweep": "l"})
    assert problems == []
    assert (keys["cockpit.launch"], keys["cockpit.sweep"]) == ("s", "l")


def test_every_binding_has_an_id_of_its_own() -> None:
    for screen in SCREENS:
        ids = [binding_id(screen, action) for action in actions_for(screen)]
        assert len(ids) == len(set(ids)), screen


async def test_own_keys_work_the_usual_ones_no_longer_and_footer_and_help_show_them() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (200, 60), keys={"server.stop": "ctrl+x", "help": "f1"}) as pilot:
        footer = rows(pilot)[-1]
        assert "^x stop" in footer
        assert "F1 help" in footer
        await pilot.press("x")
        await pilot.pause()
        assert session.calls == []
        await pilot.press("ctrl+x")
        await until(pilot, lambda: [name for name, _ in session.calls] == ["server.stop"])
        await pilot.press("f1")
        await until(pilot, lambda: "^x" in text(pilot) and "keys of the cockpit" in text(pilot))


async def test_a_wrong_entry_is_said_when_the_console_opens() -> None:
    async with console(Recorder(), keys={"stop_sever": "ctrl+x"}) as pilot:
        await shows(pilot, "'stop_sever'", "stop_server")


async def test_the_users_file_gives_theme_keys_and_read_only_and_a_broken_one_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokpit.ui.app import TokpitApp

    opened: list[TokpitApp] = []

    async def keep(self: TokpitApp) -> None:
        opened.append(self)

    monkeypatch.setattr(TokpitApp, "run_async", keep)
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "config.toml").write_text('theme = "tokpit-light"\nread_only = true\n[keys]\n"history" = "f6"\n')
    session = Recorder()
    await run_app(session)
    assert opened[0].theme == "tokpit-light"
    assert opened[0].own_keys == {"cockpit.history": "f6"}
    assert session.read_only
    await run_app(session, theme="tokpit-mono")
    assert opened[1].theme == "tokpit-mono"
    (folder / "config.toml").write_text("theme = 7\n")
    await run_app(Recorder())
    assert any("theme" in problem for problem in opened[2]._problems)


async def test_back_on_the_cockpit_the_own_key_still_works() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, keys={"cockpit.history": "f6"}) as pilot:
        await pilot.press("f6")
        await shows(pilot, "no run is stored yet")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, Cockpit))
        await pilot.press("f6")
        await shows(pilot, "no run is stored yet")


def _type(pilot: Pilot[None], *keys: str) -> None:
    """As a terminal hands over what was typed ahead: all at once."""
    for key in keys:
        character = key if len(key) == 1 else {"slash": "/", "question_mark": "?"}.get(key)
        pilot.app.post_message(events.Key(key, character))


async def test_letters_typed_ahead_go_where_the_key_before_them_leads() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session) as pilot:
        _type(pilot, "slash", *"xRet", "enter", "n", "question_mark")
        await shows(pilot, "keys of the cockpit")
        cockpit = pilot.app.screen_stack[1]
        assert cockpit.query_one(LogView).model.pattern is not None
        assert session.calls == [], "a letter of what was searched for pressed a key"
        _type(pilot, "escape", "s", "ctrl+u", *"2,3", "tab", *"64", "tab", *"9")
        await shows(pilot, "2,3 ", "64 ", " 9 ", "not started")
        _type(pilot, "escape", "l", *"m7")
        await shows(pilot, "Launch on", "m7 ")
        pilot.app.post_message(events.Paste("/8"))
        _type(pilot, "tab", *"3")
        await shows(pilot, "m7/8 ")


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("\x1b1", ["escape", "1"]),
        ("\x1bl", ["escape", "l"]),
        ("\x1bR", ["escape", "R"]),
        ("\x1b/", ["escape", "slash"]),
        ("\x1b\r", ["escape", "enter"]),
        ("\x1b", ["escape"]),
        ("\x1b\t", ["shift+tab"]),
        ("\x1b[A\x1bOB", ["up", "down"]),
        ("\x1b[1;3A", ["alt+up"]),
    ],
)
def test_an_escape_and_a_key_in_one_piece_are_two_keys(sent: str, keys: list[str]) -> None:
    parser = TwoKeys()
    found = [*parser.feed(sent)]
    while parser._timeout_time is not None:
        found += parser.tick()
    assert [event.key for event in found if isinstance(event, events.Key)] == keys


async def test_texts_name_a_persons_own_keys() -> None:
    keys = {"cockpit.launch": "f2", "cockpit.pause": "f3", "earlier": "f4", "quit": "Q"}  # fmt: skip
    session = Recorder()
    async with console(session, (110, 30), keys=keys) as pilot:
        fill(session.store)
        await shows(pilot, "F2 launch")
        await pilot.press("f3")
        await shows(pilot, "HELD", "F4 ]", "F3 go on")
        await pilot.press("f3", "T")
        await shows(pilot, "F3     hold everything still; F4 ] read", "Q      leave")
        assert key_of(pilot.app, "history.pick") == "space"


def test_every_key_that_a_text_names_is_in_the_table() -> None:
    named = {
        where
        for path in (ROOT / "src" / "tokpit" / "ui").rglob("*.py")
        for where in re.findall(r"""key(?:_of|cap)\([\w.]+, ["'](\w+\.[\w /]+)["']""", path.read_text())
    }
    assert len(named) > 8
    for where in named:
        assert key_of(None, where)


async def test_keys_that_page_in_an_empty_palette_and_order_no_runs_do_no_harm() -> None:
    async with console(Recorder()) as pilot:
        await pilot.press("colon")
        _type(pilot, *"zzz", "pageup", "pagedown", "home", "end", "up", "down")
        await shows(pilot, "No matches found")
        _type(pilot, "pageup", "backspace", "pageup", "escape", "3")
        await shows(pilot, "no run is stored yet")
        await pilot.press("o", "r", "o", "m", "space", "enter", "p", "e", "escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, Cockpit))


async def test_an_enter_right_behind_a_word_takes_what_the_word_finds() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session) as pilot:
        for _ in range(3):
            _type(pilot, "colon", *"tour", "enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, TourScreen))
            _type(pilot, "escape")
            await until(pilot, lambda: isinstance(pilot.app.screen, Cockpit))
        _type(pilot, "colon", *"zzzz", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Commands))
        assert pilot.app.is_running


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (200, 50), (300, 80)])
async def test_help_has_every_key_once_and_no_column_begins_within_an_entry(size: tuple[int, int]) -> None:
    async with console(Recorder(), size) as pilot:
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
        panel = pilot.app.screen.query_one(HelpPanel)
        lines = panel.all_rows(size[0] - 4)
        keys = [text.strip() for row in lines for text, style in row if style == "key" and text.strip()]
        wanted = [action.key_text for action in actions_for("cockpit")]
        assert sorted(keys) == sorted([*wanted, "↑ ↓", "pgup"])
        assert not any(style == "key" and not text.strip() for text, style in lines[0]), "a column begins with a rest"

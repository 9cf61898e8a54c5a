from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console_feed import HOST, Recorder, decode_line, fill, link, server
from tokpit.config.settings import AlarmPreferences, load_preferences
from tokpit.domain.finding import Finding
from tokpit.domain.records import LinkState, LogBatch, PhaseRecord, ServersRecord
from tokpit.errors import ConfigError
from tokpit.ops.alarms import Alarm, Book, Watch, hook_problem, osc, quiet, run_hook

ON = AlarmPreferences()
BAD = Finding(code="KV_FULL", severity="warning", claim="KV is full")
NOTE = Finding(code="NOTE", severity="info", claim="worth knowing")


def looks(book: Book, *found: bool) -> list[tuple[int, int]]:
    """How many alarms each look raises and ends."""
    return [
        (len(r), len(e)) for n, there in enumerate(found) for r, e in [book.look("s", "s", [BAD] if there else [], n)]
    ]


def test_an_alarm_begins_after_two_looks_and_ends_after_three_without() -> None:
    assert looks(Book(ON), True, True, True, False, False, True, False, False, False, True) == [
        (0, 0), (1, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 1), (0, 0),
    ]  # fmt: skip


def test_a_flicker_never_alarms() -> None:
    assert looks(Book(ON), *(True, False) * 10) == [(0, 0)] * 20


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 4), st.integers(1, 4))
def test_beginnings_and_ends_take_turns(found: list[bool], raise_after: int, clear_after: int) -> None:
    book = Book(AlarmPreferences(raise_after=raise_after, clear_after=clear_after))
    news = [n for pair in looks(book, *found) for n in ((1,) * pair[0] + (-1,) * pair[1])]
    assert all(a == -b for a, b in pairwise(news))
    assert news[:1] in ([], [1])
    assert bool(book.standing()) == (sum(news) == 1)


def test_severities_and_codes_that_are_not_wanted_never_alarm() -> None:
    book = Book(AlarmPreferences(raise_after=1, ignore=("KV_FULL",)))
    assert book.look("s", "s", [BAD, NOTE], 0) == ((), ())


def test_acknowledging_is_for_one_server_and_until_the_alarm_ends() -> None:
    book = Book(AlarmPreferences(raise_after=1, clear_after=1))
    for subject in ("a", "b"):
        book.look(subject, subject, [BAD], 0)
    assert book.acknowledge("a") == 1
    assert book.acknowledge("a") == 0
    assert [alarm.acknowledged for alarm in (*book.standing("a"), *book.standing("b"))] == [True, False]
    book.look("a", "a", [], 1)
    book.look("a", "a", [BAD], 2)
    assert not book.standing("a")[0].acknowledged


@pytest.mark.parametrize(
    ("hours", "clock", "expected"),
    [("22:00-07:00", "23:30", True), ("22:00-07:00", "06:59", True), ("22:00-07:00", "07:00", False),
     ("12:00-13:00", "12:30", True), ("12:00-13:00", "11:59", False), ("", "03:00", False)],
)  # fmt: skip
def test_quiet_hours_may_go_over_midnight(hours: str, clock: str, expected: bool) -> None:
    hour, minute = (int(n) for n in clock.split(":"))
    now = time.mktime((2026, 11, 30, hour, minute, 0, 0, 0, -1))
    assert quiet(AlarmPreferences(quiet=hours), now) is expected


@pytest.mark.parametrize(
    ("line", "said"),
    [('quiet = "late"', "22:00-07:00"), ('severities = ["loud"]', "loud"), ('desktop = "osc1"', "osc777"),
     ("every_s = 0.1", "at least 1 second"), ("raise_after = 0", "raise_after"), ("beep = true", "beep"),
     ("command = \"'open\"", "command")],
)  # fmt: skip
def test_a_table_that_is_off_is_said_with_its_key(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"[alarms]\n{line}\n")
    with pytest.raises(ConfigError, match="alarms") as caught:
        load_preferences(path)
    assert said in str(caught.value)


def test_notifications_are_only_text() -> None:
    for kind in ("osc9", "osc777"):
        body = osc(kind, "a\x1b[31mred\x07;b\n\u202e", {})
        assert body.count("\x1b") == 1
        assert body.count("\x07") == 1
        assert body.endswith("\x07")
    assert osc("osc777", "a;b", {}) == "\x1b]777;notify;tokpit;a,b\x07"
    assert osc("off", "x") == ""


def test_tmux_and_screen_hand_a_notification_on() -> None:
    assert osc("osc9", "full", {"TMUX": "/tmp/s,1,0"}) == "\x1bPtmux;\x1b\x1b]9;full\x07\x1b\\"
    sent = osc("osc9", "x" * 100, {"STY": "1.pts"})
    pieces = sent.removeprefix("\x1bP").removesuffix("\x1b\\").split("\x1b\\\x1bP")
    assert "".join(pieces) == "\x1b]9;" + "x" * 100 + "\x07"
    assert max(map(len, pieces)) <= 76


async def test_the_hook_gets_its_facts_in_the_environment_and_no_text_is_run(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code = (
        "import json,os,sys; json.dump({k: v for k, v in os.environ.items() if 'ALARM' in k}, open(sys.argv[1], 'w'))"
    )
    finding = Finding(code="X", severity="error", claim="$(touch /tmp/never) `id` ; rm x\x1b[0m", next_action="act")
    alarm = Alarm(subject="s", label="gpu1:30000", finding=finding, since=12.0)
    await run_hook(f"{sys.executable} -c {json.dumps(code)!s} {out}", alarm, begins=True)
    told = json.loads(out.read_text())
    assert told["TOKPIT_ALARM_STATE"] == "raised"
    assert told["TOKPIT_ALARM_TEXT"] == "$(touch /tmp/never) `id` ; rm x"
    assert told["TOKPIT_ALARM_SERVER"] == "gpu1:30000"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/no/such/program", "did not start"),
        (f"{sys.executable} -c 'raise SystemExit(7)'", "ended with status 7"),
        (f"{sys.executable} -c 'import time; time.sleep(600)'", "ran longer than 0.2 s and was ended"),
        (f"{sys.executable} -c 0", ""),
    ],
)
async def test_a_hook_that_does_not_do_its_work_is_said(
    command: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokpit.ops.alarms.HOOK_S", 0.2 if "sleep" in command else 30.0)
    problem = await run_hook(command, Alarm(subject="s", label="gpu1:1", finding=BAD, since=0.0), begins=True)
    assert said in problem
    assert bool(said) == bool(problem)
    assert not said or "KV_FULL on gpu1:1" in problem


def test_a_hook_that_cannot_run_is_said_before_it_is_needed(tmp_path: Path) -> None:
    assert hook_problem("") == ""
    assert hook_problem(f"{sys.executable} -c 0") == ""
    assert "'/no/such/program' was not found" in hook_problem("/no/such/program --page")
    plain = tmp_path / "page"
    plain.write_text("#!/bin/sh\n")
    assert "may not be run" in hook_problem(str(plain))


async def test_what_began_in_a_quiet_hour_is_told_at_its_end_and_an_end_reaches_who_heard_of_the_begin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "heard"
    script = tmp_path / "hook"
    script.write_text(f'#!/bin/sh\necho "$TOKPIT_ALARM_STATE $TOKPIT_ALARM_CODE" >> {out}\n')
    script.chmod(0o755)
    session = Recorder()
    fill(session.store, seconds=30)
    told: list[str] = []
    complaints: list[str] = []
    preferences = AlarmPreferences(
        raise_after=1, clear_after=1, link_after_s=0.0, severities=("error",), command=str(script)
    )
    watch = Watch(session, preferences, lambda a, begins: told.append(f"{a.code} {begins}"), complaints.append)  # type: ignore[arg-type]
    hour = [True]
    monkeypatch.setattr("tokpit.ops.alarms.quiet", lambda *_: hour[0])

    async def heard() -> list[str]:
        await asyncio.gather(*watch._hooks)
        return out.read_text().splitlines() if out.exists() else []

    session.store.apply(link(LinkState.LOST, reason="no answer"))
    await watch.look()
    assert (told, await heard()) == (["LINK_LOST True"], [])
    hour[0] = False
    await watch.look()
    await watch.look()
    assert (told, await heard()) == (["LINK_LOST True"] * 2, ["raised LINK_LOST"])
    hour[0] = True
    session.store.apply(link())
    await watch.look()
    assert (told[2:], await heard()) == (["LINK_LOST False"], ["raised LINK_LOST", "ended LINK_LOST"])
    session.store.apply(link(LinkState.LOST, reason="no answer"))
    await watch.look()
    assert watch.book.acknowledge(HOST) == 1
    hour[0] = False
    await watch.look()
    assert len(await heard()) == 2, "somebody knew of it already"
    session.store.apply(link())
    script.write_text("#!/bin/sh\nexit 3\n")
    await watch.look()
    session.store.apply(link(LinkState.LOST, reason="no answer"))
    await watch.look()
    await asyncio.gather(*watch._hooks)
    assert ["status 3" in said for said in complaints] == [True]


def test_a_command_that_cannot_be_started_is_complained_of_before_any_alarm() -> None:
    complaints: list[str] = []
    Watch(Recorder(), AlarmPreferences(command="/no/such/program"), lambda *_: None, complaints.append)  # type: ignore[arg-type]
    assert ["/no/such/program" in said for said in complaints] == [True]


async def test_what_the_rules_find_in_the_store_alarms_and_ends_when_the_server_recovers() -> None:
    session = Recorder()
    sid = fill(session.store, seconds=330)
    told: list[tuple[str, bool]] = []
    preferences = AlarmPreferences(raise_after=2, clear_after=1)
    watch = Watch(session, preferences, lambda alarm, begins: told.append((alarm.code, begins)))  # type: ignore[arg-type]
    await watch.look()
    assert told == []
    await watch.look()
    codes = {code for code, begins in told if begins}
    assert any("QUEUE" in code or "RETRACT" in code for code in codes), codes
    session.store.servers[sid].log.records.clear()
    lines = tuple(decode_line(2000 + n, time.time(), 2, 0, 86.0, 3.2) for n in range(200))
    session.store.apply(LogBatch(sid, time.time(), lines))
    await watch.look()
    assert {code for code, begins in told if not begins} == codes


async def test_a_lost_link_and_a_server_that_ended_by_itself_alarm_and_one_that_was_stopped_does_not() -> None:
    session = Recorder()
    fill(session.store, seconds=30)
    told: list[str] = []
    preferences = AlarmPreferences(raise_after=1, link_after_s=0.0, severities=("error",))
    watch = Watch(session, preferences, lambda alarm, begins: told.append(f"{alarm.code} {begins}"))  # type: ignore[arg-type]
    await watch.look()
    session.store.apply(link(LinkState.LOST, reason="no answer"))
    session.store.apply(ServersRecord(HOST, time.time(), ()))
    await watch.look()
    assert sorted(told) == ["LINK_LOST True", "SERVER_GONE True"]
    session.store.apply(link())
    session.store.apply(PhaseRecord(server().id, time.time(), "gone"))
    for _ in range(3):
        await watch.look()
    assert sorted(told)[0] == "LINK_LOST False"
    assert "SERVER_GONE False" in told

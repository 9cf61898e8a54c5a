from __future__ import annotations

import time
from typing import Any

import pytest
from textual.pilot import Pilot

from console_feed import Recorder, fill, server
from console_screen import console, shows, text, until
from tokpit.config.settings import AlarmPreferences
from tokpit.domain.finding import Finding
from tokpit.ops.alarms import Alarm, Book

FOUND = Finding(code="KV_FULL", severity="warning", claim="the KV cache is full", next_action="raise it")


def raised(session: Any) -> Alarm:
    session.alarms = Book(AlarmPreferences(raise_after=1))
    (alarm,), _ = session.alarms.look(server().id, server().label, [FOUND], time.time())
    found: Alarm = alarm
    return found


class Rung:
    """What reached the terminal."""

    def __init__(self, pilot: Pilot[None], monkeypatch: pytest.MonkeyPatch) -> None:
        self.bells = 0
        self.written: list[str] = []
        monkeypatch.setattr(pilot.app, "bell", self._bell)
        monkeypatch.setattr(pilot.app._driver, "write", self.written.append)

    def _bell(self) -> None:
        self.bells += 1


async def test_an_alarm_is_told_on_screen_by_bell_and_on_the_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Recorder()
    fill(session.store)
    async with console(session) as pilot:
        rung = Rung(pilot, monkeypatch)
        alarm = raised(session)
        pilot.app.tell_alarm(AlarmPreferences(desktop="osc777"), alarm, True)  # type: ignore[attr-defined]
        await shows(pilot, "the KV cache is full", "raise it", "▲ 1 alarm")
        assert rung.bells == 1
        assert [word for word in rung.written if "777" in word] == [
            f"\x1b]777;notify;tokpit;{alarm.label}: the KV cache is full\x07"
        ]
        await pilot.press("A")
        await shows(pilot, "1 alarm acknowledged", "△ 1 alarm, known")
        await pilot.press("A")
        await shows(pilot, "no alarm stands here")


async def test_in_quiet_hours_only_the_header_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Recorder()
    fill(session.store)
    async with console(session) as pilot:
        rung = Rung(pilot, monkeypatch)
        alarm = raised(session)
        pilot.app.tell_alarm(AlarmPreferences(quiet="00:00-00:00", desktop="osc9"), alarm, True)  # type: ignore[attr-defined]
        await shows(pilot, "▲ 1 alarm")
        assert "the KV cache is full" not in text(pilot)
        assert rung.bells == 0
        assert rung.written == []


async def test_the_fleet_marks_hosts_with_alarms() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session) as pilot:
        raised(session)
        await pilot.press("1")
        await until(pilot, lambda: "▲1" in text(pilot))

from __future__ import annotations

import pytest

from console_feed import FakeHistory, Recorder
from console_screen import SIZES, console, shows, text, until
from insight_tools import STORY
from tokpit.domain.run import Level, Run
from tokpit.errors import UsageError
from tokpit.ui.screens.history import HistoryScreen
from tokpit.ui.screens.plan import PlanScreen, job_of


def story() -> Run:
    levels = tuple(
        Level(concurrency=c, requests=n, ok=n, err=0, elapsed_s=elapsed, output_tps=tps, avg_output=1024.0)
        for c, n, elapsed, tps in STORY
    )
    context = {"settings": {"tp": 1}, "facts": {"max_running_requests": 9}, "plan": {"max_tokens": 1024}}
    return Run(id="r-0001", kind="sweep", target="gpu1", model="m", started_at=1.0, levels=levels, context=context)


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_a_plan_follows_the_fields_as_they_are_typed(size: tuple[int, int]) -> None:
    session = Recorder(stored=FakeHistory((story(),)))
    async with console(session, size) as pilot:
        await pilot.press("h")
        await shows(pilot, "r-0001")
        await pilot.press("p")
        await until(pilot, lambda: isinstance(pilot.app.screen, PlanScreen))
        await shows(pilot, "902,000 requests of 1,024", "25.1 days", "the server runs 9 at once", "16,32,48")
        await pilot.press("tab", "backspace", "backspace", "backspace", "backspace", *"2000", "tab", "tab", *"7d")
        await shows(pilot, "902,000 requests of 2,000", "49.1 days", "8 hosts do it within 7 days")
        await pilot.press("backspace", "backspace", *"soon")
        await shows(pilot, "'soon' is no time")
        assert "49.1 days" not in text(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, HistoryScreen))


def test_fields_that_are_none_are_told() -> None:
    good = {"requests": "902K", "output_tokens": "2000", "hosts": "2", "within": "", "price": "2.5"}
    assert job_of(good).price == 2.5
    for name, bad in (("requests", "lots"), ("output_tokens", ""), ("hosts", "0"), ("price", "-1"), ("within", "x")):
        with pytest.raises(UsageError):
            job_of({**good, name: bad})

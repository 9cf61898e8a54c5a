"""Every screen at three sizes and two themes, from one recording."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from console_feed import run
from console_screen import SIZES, console, rows, shows, text, until
from console_snapshot import colours_of_the_theme, compare, snapshot
from tokpit.domain.settings import Settings
from tokpit.insight.changes import Change
from tokpit.ops.host.deployments import Compared, Past
from tokpit.ops.host.remembered import Deployment
from tokpit.ops.records.replay import ReplaySession
from tokpit.probes.environments import Found
from tokpit.ui.screens.earlier import EarlierScreen
from tokpit.ui.screens.help import HelpScreen
from tokpit.ui.screens.launch import LaunchScreen
from tokpit.ui.screens.plan import PlanScreen
from tokpit.ui.screens.relaunch import RelaunchScreen
from tokpit.ui.screens.sweep import SweepScreen
from tokpit.ui.screens.tune import TuneScreen
from tune_feed import REPORT, tuning

RECORDING = Path(__file__).parents[2] / "data" / "demo.tokrec"
THEMES = ("tokpit-dark", "tokpit-light")
Show = Callable[[Pilot[Any]], Awaitable[None]]


async def cockpit(pilot: Pilot[Any]) -> None:
    await shows(pilot, "tok/s")


async def fleet(pilot: Pilot[Any]) -> None:
    await pilot.press("1")
    await shows(pilot, "fleet")


async def history(pilot: Pilot[Any]) -> None:
    await pilot.press("3")
    await shows(pilot, "peak tok/s", "362.3")


async def diagnose(pilot: Pilot[Any]) -> None:
    await pilot.press("4")
    await shows(pilot, "the host itself was not asked")
    await pilot.press("enter")


async def check(pilot: Pilot[Any]) -> None:
    await pilot.press("c")
    await shows(pilot, "could not be checked")


async def launch(pilot: Pilot[Any]) -> None:
    app: Any = pilot.app
    app.push_screen(LaunchScreen(app.view, app.view.host))
    await shows(pilot, "Command line", "--port")


async def started(pilot: Pilot[Any]) -> None:
    app: Any = pilot.app
    screen = LaunchScreen(app.view, app.view.host)
    screen.operation_id = "launch-demo"
    app.push_screen(screen)
    await shows(pilot, "READY")


async def relaunch(pilot: Pilot[Any]) -> None:
    app: Any = pilot.app
    app.push_screen(RelaunchScreen(app.view, app.view.server.info))
    await shows(pilot, "Relaunch", "nothing is changed")


async def sweep(pilot: Pilot[Any]) -> None:
    app: Any = pilot.app
    screen = SweepScreen(app.view, app.view.server_id)
    screen.operation_id = "sweep-demo"
    app.push_screen(screen)
    await shows(pilot, "steady")


async def tune(pilot: Pilot[Any]) -> None:
    await pilot.resize_terminal(*SIZES[-1])
    await _tuned(pilot)
    await shows(pilot, "searching", "left out: 3")


async def tuned(pilot: Pilot[Any]) -> None:
    await _tuned(pilot, phase="done", report=REPORT, left_s=None)
    await shows(pilot, "Result")


async def tune_form(pilot: Pilot[Any]) -> None:
    app: Any = pilot.app
    app.push_screen(TuneScreen(app.view, app.view.server_id))
    await shows(pilot, "MTP steps")


async def _tuned(pilot: Pilot[Any], **changes: object) -> None:
    app: Any = pilot.app
    made = tuning(app.view.server.info.label, app.view.server_id, t=app.view.now(), **changes)
    app.session.store.tune(made)
    app.push_screen(TuneScreen(app.view, app.view.server_id))


async def plan(pilot: Pilot[Any]) -> None:
    app: Any = pilot.app
    app.push_screen(PlanScreen(app.view, [run()]))
    await shows(pilot, "902,000 requests")


EARLIER = (
    Deployment(
        source="log", where="/var/log/llm/vllm-8000.log", engine="vllm", t=1_795_000_000.0, version="0.31.0",
        settings=Settings(model="/srv/models/Qwen3.6-27B", tp=2, context_len=32_768), resolved=True,
    ),
    Deployment(
        source="unit", where="/etc/systemd/system/sglang-qwen.service", engine="sglang", t=1_795_600_000.0,
        settings=Settings(model="/srv/models/Qwen3.6-27B-FP8", tp=2, spec_method="mtp", spec_steps=3, max_running=4,
                          raw=("--schedule-policy", "lpm")),
        argv=("python", "-m", "sglang.launch_server", "--model-path", "/srv/models/Qwen3.6-27B-FP8", "--tp", "2"),
        env={"CUDA_VISIBLE_DEVICES": "0,1"}, version_now="0.5.11", state="disabled", changed_since=True,
    ),
    Deployment(
        source="shell", where="~/.bash_history", engine="sglang", before=1_795_900_000.0,
        settings=Settings(model="/srv/models/Qwen3.6-27B", spec_steps=1, hicache_gb=90.0),
        argv=("python", "-m", "sglang.launch_server", "--model-path", "/srv/models/Qwen3.6-27B"),
    ),
)  # fmt: skip


async def earlier(pilot: Pilot[Any]) -> None:
    app: Any = pilot.app
    screen = EarlierScreen(app.view, app.view.host)
    app.push_screen(screen)
    await shows(pilot, "Earlier servers on")
    await until(pilot, lambda: not any(worker.is_running for worker in screen.workers))
    changes = (
        Change(name="spec steps", before="3", after="1", kind="setting"),
        Change(name="SGLang", before="0.5.9", after="0.5.11", kind="place"),
    )
    pairs = (Compared(server=app.view.server.info, deployment=EARLIER[1], changes=changes),)
    remarks = ("~/.zsh_history: inspection commands only",)
    screen.fill(Past(host="demo", deployments=EARLIER, remarks=remarks, running=(), found=Found(), compared=pairs))
    await pilot.press("down")
    await shows(pilot, "sglang-qwen.service", "spec steps: 3 -> 1")


async def help_(pilot: Pilot[Any]) -> None:
    app: Any = pilot.app
    app.push_screen(HelpScreen(app.view, "cockpit"))
    await shows(pilot, "keys of the cockpit")


SCREENS: dict[str, Show] = {
    "cockpit": cockpit, "fleet": fleet, "history": history, "diagnose": diagnose, "check": check, "launch": launch,
    "launch-ready": started, "relaunch": relaunch, "sweep": sweep, "tune": tune, "tune-form": tune_form,
    "tune-report": tuned, "plan": plan, "earlier": earlier, "help": help_,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
async def session() -> AsyncIterator[ReplaySession]:
    """The recording, standing shortly before its end."""
    opened = await ReplaySession.open(RECORDING)
    opened.player.playing = False
    await opened.player.seek(opened.player.summary.end - 1)
    async with opened:
        yield opened


async def settled(pilot: Pilot[Any]) -> None:
    """Until the screen says the same twice in a row, with everything drawn anew in between."""
    before = ""
    for _ in range(200):
        await pilot.pause(0.05)
        now = snapshot(pilot)
        if now == before:
            return
        before = now
        pilot.app.screen.redraw_all()  # type: ignore[attr-defined]
    raise AssertionError("it never settled")


@pytest.mark.parametrize("screen", SCREENS)
async def test_every_screen_looks_as_it_did_at_three_sizes_and_in_two_themes(
    session: ReplaySession, screen: str
) -> None:
    async with console(session, SIZES[0], theme=THEMES[0], chart_engine="braille") as pilot:
        await until(pilot, lambda: pilot.app.view.server is not None)  # type: ignore[attr-defined]
        await SCREENS[screen](pilot)
        pilot.app.clear_notifications()
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: len(rows(pilot)) == size[1])  # type: ignore[misc]
            seen = []
            for theme in THEMES:
                pilot.app.theme = theme
                await settled(pilot)
                assert colours_of_the_theme(pilot) == []
                seen.append(snapshot(pilot))
            assert seen[0] == seen[1], "a theme changes more than colours"
            compare(f"{screen}-{size[0]}x{size[1]}", seen[0])


def test_no_snapshot_is_of_a_screen_that_is_not_there() -> None:
    from console_snapshot import FOLDER

    wanted = {f"{screen}-{w}x{h}" for screen in SCREENS for w, h in SIZES}
    assert {path.stem for path in FOLDER.glob("*.txt")} == wanted


async def test_a_recording_says_where_it_stands(session: ReplaySession) -> None:
    async with console(session, SIZES[0]) as pilot:
        await shows(pilot, "PAUSE", "recording", "0:20 / 0:21")
        assert "SIMULATED" in text(pilot)

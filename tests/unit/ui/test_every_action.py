"""Every action of the action table, by its key, on every screen where it is bound: what it does is looked at."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Input

from console_feed import HOST, FakeHistory, Recorder, fill, run, server, sweep, text_line
from console_screen import console, shows, text, until
from tokpit.config.paths import state_dir
from tokpit.config.settings import AlarmPreferences
from tokpit.domain.finding import Finding
from tokpit.domain.records import LinkRecord, LinkState, LogBatch
from tokpit.domain.settings import Settings
from tokpit.errors import ConnectFailed
from tokpit.ops.alarms import Book
from tokpit.ops.host.deployments import Past
from tokpit.ops.host.remembered import Deployment
from tokpit.ops.older import Older
from tokpit.probes.environments import Found
from tokpit.transport.base import HostSpec
from tokpit.ui.actions import SCREENS, Action, actions_for
from tokpit.ui.screens.base import PumpedScreen
from tokpit.ui.screens.check import CheckScreen
from tokpit.ui.screens.cockpit import Cockpit
from tokpit.ui.screens.diagnose import DiagnoseScreen
from tokpit.ui.screens.earlier import EarlierScreen
from tokpit.ui.screens.fleet import FleetPanel, FleetScreen
from tokpit.ui.screens.help import HelpScreen
from tokpit.ui.screens.history import HistoryScreen
from tokpit.ui.screens.launch import LaunchScreen
from tokpit.ui.screens.line import LineScreen
from tokpit.ui.screens.modals import PromptScreen
from tokpit.ui.screens.pickruns import PickRuns
from tokpit.ui.screens.plan import PlanScreen
from tokpit.ui.screens.relaunch import RelaunchScreen
from tokpit.ui.screens.sweep import SweepScreen
from tokpit.ui.screens.tour import TourScreen
from tokpit.ui.screens.tune import TuneScreen
from tokpit.ui.widgets.levels import LevelsChart
from tokpit.ui.widgets.log_view import LogView
from tune_feed import REPORT, tuning

OTHER = "gpu-rack-8"
NO_WAY = "there is no way to it from a test"
FINDING = Finding(
    code="SWAP", severity="warning", claim="The host swaps.", evidence=("swap 12 GB",), arithmetic="1+1=2"
)
EARLIER = Deployment(
    source="unit", where="old.service", engine="sglang", settings=Settings(model="/m/old", tp=2), t=1.0,
    argv=("python", "-m", "sglang.launch_server", "--model-path", "/m/old", "--tp", "2"),
)  # fmt: skip


class Everything(Recorder):
    """A session that has all that a live one has, and no way to its host."""

    def __init__(self) -> None:
        super().__init__(host_specs={HOST: HostSpec(name=HOST), OTHER: HostSpec(name=OTHER)})
        self.stored = FakeHistory((run(), run("r-0006", started_at=1_795_000_000.0)))
        self.recording: Path | None = None
        self.alarms = Book(AlarmPreferences(raise_after=1))
        fill(self.store)
        self.store.apply(LinkRecord(OTHER, time.time(), LinkState.UP, rtt_s=0.03))
        lines = [text_line(1000 + n, f"Traceback number {n}", "error") for n in range(2)]
        more = [text_line(1002 + n, f"words {n}") for n in range(60)]
        self.store.apply(LogBatch(server().id, time.time(), (*lines, *more)))

    async def connected(self, name: str) -> Any:
        self.calls.append(("connected", {"host": name}))
        raise ConnectFailed(NO_WAY)

    async def save_ring(self) -> Path:
        return Path("last.tokrec")

    def start_recording(self) -> Path:
        self.recording = Path("from-now.tokrec")
        return self.recording

    async def stop_recording(self) -> Path | None:
        path, self.recording = self.recording, None
        return path


@dataclass
class Drive:
    """One action under test: `press` is its own key, `screen` the screen where it is pressed."""

    pilot: Pilot[Any]
    session: Everything
    action: Action
    copied: list[str]
    suspended: list[str]
    screen: Any = None
    before: dict[str, Any] = field(default_factory=dict)

    @property
    def app(self) -> Any:
        return self.pilot.app

    async def press(self) -> None:
        await self.pilot.press(self.action.key)

    async def until(self, holds: Callable[[], bool]) -> None:
        await until(self.pilot, holds)

    async def shows(self, *words: str) -> None:
        await shows(self.pilot, *words)

    async def opens(self, kind: type[Any]) -> None:
        await self.press()
        await self.until(lambda: isinstance(self.app.screen, kind))

    async def calls(self, command: str, **args: Any) -> None:
        """The command reaches the session, with these arguments among others."""
        self.session.calls.clear()
        await self.press()
        await self.until(lambda: command in [name for name, _ in self.session.calls])
        sent = next(sent for name, sent in self.session.calls if name == command)
        assert args.items() <= sent.items()

    async def out_of_fields(self) -> None:
        """Keys are keys: no field is typed into, also not one that a new screen focuses by itself a moment later."""
        calm = 0
        while calm < 3:
            calm = calm + 1 if self.screen.focused is None else 0
            self.screen.set_focus(None)
            await self.pilot.pause()

    async def changes(self, what: Callable[[], Any]) -> None:
        before = what()
        await self.press()
        await self.until(lambda: what() != before)

    async def copies(self, word: str) -> None:
        self.copied.clear()
        await self.press()
        await self.until(lambda: bool(self.copied))
        assert word in self.copied[0]
        assert "sk-feed-secret" not in self.copied[0]

    async def exports(self, *names: str) -> None:
        known = set(state_dir().glob("exports/*/*"))
        await self.press()
        await self.until(lambda: len(set(state_dir().glob("exports/*/*")) - known) >= len(names))
        assert {path.name for path in set(state_dir().glob("exports/*/*")) - known} >= set(names)

    @property
    def log(self) -> LogView:
        return self.screen.query_one(LogView)  # type: ignore[no-any-return]

    @property
    def fleet(self) -> FleetPanel:
        return self.screen.query_one(FleetPanel)  # type: ignore[no-any-return]


Effect = Callable[[Drive], Awaitable[None]]
EFFECTS: dict[tuple[str, str], Effect] = {}


def effect(action: str, *screens: str) -> Callable[[Effect], Effect]:
    """What an action does on these screens."""

    def keep(one: Effect) -> Effect:
        for screen in screens:
            assert (screen, action) not in EFFECTS, f"{action} on {screen} has two"
            EFFECTS[screen, action] = one
        return one

    return keep


# Screens as they are before an action ---------------------------------------------------------


async def _push(drive: Drive, screen: PumpedScreen) -> None:
    drive.app.push_screen(screen)
    await drive.until(lambda: drive.app.screen is screen and screen.focused is not None)


async def open_screen(drive: Drive, name: str) -> None:
    """From the cockpit, as a person or another action would open it."""
    view = drive.app.view
    info = view.server.info
    if name == "fleet":
        await _push(drive, FleetScreen(view))
        await drive.shows(OTHER)
    elif name == "history":
        await _push(drive, HistoryScreen(view))
        await drive.shows("r-0006")
    elif name == "plan":
        await _push(drive, PlanScreen(view, [run()]))
    elif name == "check":
        await _push(drive, CheckScreen(view, info))
        await drive.until(lambda: not drive.app.busy)
    elif name == "diagnose":
        screen = DiagnoseScreen(view, info)
        await _push(drive, screen)
        await drive.until(lambda: not any(worker.is_running for worker in screen.workers))
        screen.fill((FINDING,))
    elif name == "earlier":
        earlier = EarlierScreen(view, HOST)
        await _push(drive, earlier)
        await drive.shows(NO_WAY)
        earlier.fill(Past(host=HOST, deployments=(EARLIER,), remarks=(), running=(), found=Found()))
        await drive.shows("old.service")
    elif name in {"launch", "relaunch", "sweep", "tune", "help"}:
        made: dict[str, Callable[[], PumpedScreen]] = {
            "launch": lambda: LaunchScreen(view, HOST), "relaunch": lambda: RelaunchScreen(view, info),
            "sweep": lambda: SweepScreen(view, info.id), "tune": lambda: TuneScreen(view, info.id),
            "help": lambda: HelpScreen(view, "cockpit"),
        }  # fmt: skip
        await _push(drive, made[name]())
    drive.screen = drive.app.screen


async def back_to(drive: Drive, name: str) -> None:
    """The named screen on top of the cockpit, fresh where another one is open."""
    app = drive.app
    app.clear_notifications()
    if app.view.past is not None:
        app.view.release()
    if app.screen is drive.screen:
        return
    while len(app.screen_stack) > 2:
        app.pop_screen()
    await drive.until(lambda: isinstance(app.screen, Cockpit))
    await open_screen(drive, name)


@pytest.mark.parametrize("name", SCREENS)
async def test_every_key_of_a_screen_does_what_the_table_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Everything()
    copied: list[str] = []
    suspended: list[str] = []
    async with console(session, (120, 40)) as pilot:
        app: Any = pilot.app
        monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
        monkeypatch.setattr(app, "action_suspend_process", lambda: suspended.append("to the shell"))
        await until(pilot, lambda: app.view.server is not None)
        drive = Drive(pilot, session, actions_for(name)[0], copied, suspended)
        for action in actions_for(name):
            drive.action = action
            await back_to(drive, name)
            try:
                await EFFECTS[name, action.id](drive)
            except (AssertionError, KeyError) as problem:
                raise AssertionError(
                    f"{action.key_text} ({action.label}) on the {name}: {problem!r}\n{problem}"
                ) from None


def test_no_action_is_without_a_test_and_no_test_without_an_action() -> None:
    wanted = {(screen, action.id) for screen in SCREENS for action in actions_for(screen)}
    assert wanted - set(EFFECTS) == set(), "add what they do to this file"
    assert set(EFFECTS) - wanted == set()


# Everywhere ----------------------------------------------------------------------------------


@effect("next_theme", *SCREENS)
async def _(d: Drive) -> None:
    await d.changes(lambda: d.app.theme)


@effect("command_palette", *SCREENS)
async def _(d: Drive) -> None:
    await d.opens(CommandPalette)


@effect("jump", "cockpit", "fleet", "history", "check", "diagnose")
async def _(d: Drive) -> None:
    await d.opens(CommandPalette)


@effect("suspend_process", *SCREENS)
async def _(d: Drive) -> None:
    d.suspended.clear()
    await d.press()
    await d.until(lambda: d.suspended == ["to the shell"])


@effect("help", "cockpit", "history", "earlier", "check", "diagnose", "fleet")
async def _(d: Drive) -> None:
    name = type(d.screen).__name__.removesuffix("Screen").lower()
    await d.opens(HelpScreen)
    await d.shows(f"keys of the {name}")


@effect("quit", "cockpit", "fleet")
async def _(d: Drive) -> None:
    await d.press()
    await d.until(lambda: not d.app.is_running)


@effect("leave", "launch", "relaunch", "history", "earlier", "plan", "check", "diagnose", "help", "fleet", "tune")
async def _(d: Drive) -> None:
    await d.opens(Cockpit)


def goes(number: str, kind: type[Any]) -> None:
    @effect(f"go('{number}')", "cockpit", "fleet", "history", "check", "diagnose", "sweep", "tune")
    async def _(d: Drive) -> None:
        if isinstance(d.app.focused, Input):
            await d.out_of_fields()
        stays = isinstance(d.screen, kind)
        await d.opens(kind)
        assert (d.app.screen is d.screen) is stays
        assert len(d.app.screen_stack) == (2 if kind is Cockpit else 3)


for _name, _kind in (("fleet", FleetScreen), ("cockpit", Cockpit), ("history", HistoryScreen),
                     ("diagnose", DiagnoseScreen), ("tune", TuneScreen)):  # fmt: skip
    goes(_name, _kind)


# Time ----------------------------------------------------------------------------------------


@effect("pause", "cockpit", "fleet")
async def _(d: Drive) -> None:
    await d.press()
    await d.shows("HELD")
    await d.press()
    await d.until(lambda: "HELD" not in text(d.pilot) and d.app.view.past is None)


def moves(steps: int) -> None:
    @effect(f"time({steps})", "cockpit", "fleet")
    async def _(d: Drive) -> None:
        await d.pilot.press(*["left_curly_bracket"] * 2)
        await d.shows("HELD")
        clock = d.app.view.clock
        before = clock.held
        await d.press()
        step = steps * d.app.view.span() / 60
        await d.until(lambda: abs(clock.held - before - step) < 0.001)


for _steps in (-12, -1, 1, 12):
    moves(_steps)


@effect("speed(-1)", "cockpit", "fleet")
@effect("speed(1)", "cockpit", "fleet")
async def _(d: Drive) -> None:
    await d.press()
    await d.shows("hosts themselves have one speed")  # of a recording: see test_time


@effect("save_last", "cockpit", "fleet")
async def _(d: Drive) -> None:
    await d.press()
    await d.shows("saved the last minutes as last.tokrec")


@effect("record", "cockpit", "fleet")
async def _(d: Drive) -> None:
    await d.press()
    await d.shows("recording into from-now.tokrec")
    await d.press()
    await d.shows("recorded from-now.tokrec")


# The cockpit ---------------------------------------------------------------------------------


def opens(action: str, kind: type[Any]) -> None:
    @effect(action, "cockpit")
    async def _(d: Drive) -> None:
        await d.opens(kind)


for _name, _kind in (("launch", LaunchScreen), ("sweep", SweepScreen), ("relaunch", RelaunchScreen),
                     ("tune", TuneScreen), ("check", CheckScreen), ("diagnose", DiagnoseScreen),
                     ("history", HistoryScreen), ("ran_before", EarlierScreen)):  # fmt: skip
    opens(_name, _kind)


@effect("copy_line", "cockpit")
async def _(d: Drive) -> None:
    await d.copies("-m sglang.launch_server")
    d.log.focus()
    await d.copies("words 59")


@effect("export", "cockpit")
async def _(d: Drive) -> None:
    await d.exports("log.txt", "figures.csv", "screen.txt", "screen.svg")


@effect("stop_server", "cockpit")
async def _(d: Drive) -> None:
    await d.calls("server.stop", server_id=server().id)


@effect("save_profile", "cockpit")
async def _(d: Drive) -> None:
    await d.opens(PromptScreen)
    await d.shows("Launch profile", server().label)  # what is saved: see test_profiles_and_earlier
    await d.pilot.press("escape")


@effect("refresh_host", "cockpit")
async def _(d: Drive) -> None:
    await d.calls("find", host=HOST)


@effect("search", "cockpit")
async def _(d: Drive) -> None:
    await d.press()
    await d.until(lambda: d.screen.query_one("#search", Input).has_focus)
    await d.pilot.press(*"words 7", "enter")
    await d.until(lambda: d.log.chosen_text() == "words 7")
    await d.pilot.press("slash", "escape")


@effect("whole_line", "cockpit")
async def _(d: Drive) -> None:
    d.log.search("")
    d.log.action_follow()
    await d.shows("following", "words 59")
    await d.opens(LineScreen)
    await d.shows("line 1061", "words 59")
    await d.pilot.press("y")
    await d.until(lambda: d.copied[-1:] == ["words 59"])
    await d.pilot.press("enter")
    await d.until(lambda: d.app.screen is d.screen)


@effect("filter", "cockpit")
async def _(d: Drive) -> None:
    await d.press()
    await d.pilot.press(*"words 7", "enter")
    await d.until(lambda: [row.text for row in d.log.model.rows] == ["words 7"])
    await d.pilot.press("ampersand", "escape")
    await d.until(lambda: len(d.log.model.rows) > 60)


@effect("find(1)", "cockpit")
@effect("find(-1)", "cockpit")
async def _(d: Drive) -> None:
    await d.press()
    await d.until(lambda: d.log.chosen_text().startswith("Traceback number"))
    first = d.log.chosen_text()
    await d.press()
    await d.until(lambda: d.log.chosen_text() != first)


@effect("older", "cockpit")
async def _(d: Drive) -> None:
    asked: list[tuple[str, int, int]] = []

    async def older_log(server_id: str, end: int, skip: int, **more: int) -> Older:
        asked.append((server_id, end, skip))
        return Older(records=(text_line(1, "Traceback of old", "error"),), lines=1, start=0)

    d.session.older_log = older_log  # type: ignore[attr-defined]
    await d.press()
    await d.until(lambda: d.log.chosen_text() == "Traceback of old")
    assert asked[0][0] == server().id  # in a real file: see ops/test_older


@effect("acknowledge", "cockpit")
async def _(d: Drive) -> None:
    (alarm,), _ = d.session.alarms.look(server().id, server().label, [FINDING], time.time())
    await d.press()
    await d.shows("1 alarm acknowledged")
    assert alarm.acknowledged


@effect("follow", "cockpit")
async def _(d: Drive) -> None:
    d.log.model.pause(10)
    await d.press()
    await d.until(lambda: d.log.model.follow)


@effect("level", "cockpit")
async def _(d: Drive) -> None:
    await d.changes(lambda: d.log.model.level)


@effect("window(2)", "cockpit")
async def _(d: Drive) -> None:
    await d.changes(lambda: d.app.view.window_s)
    assert d.app.view.window_s == 600


@effect("window(0.5)", "cockpit")
async def _(d: Drive) -> None:
    await d.changes(lambda: d.app.view.window_s)
    assert d.app.view.window_s == 300


@effect("zoom", "cockpit")
async def _(d: Drive) -> None:
    d.log.focus()
    height = d.log.size.height
    await d.press()
    await d.until(lambda: d.log.size.height > height)
    await d.press()
    await d.until(lambda: d.log.size.height == height)


@effect("focus_next", "cockpit")
async def _(d: Drive) -> None:
    await d.changes(lambda: d.app.focused)


@effect("tour", "cockpit")
async def _(d: Drive) -> None:
    await d.opens(TourScreen)


# Forms ---------------------------------------------------------------------------------------


@effect("start_launch", "launch")
async def _(d: Drive) -> None:
    await d.calls("server.launch")


@effect("start_launch", "relaunch")
async def _(d: Drive) -> None:
    d.screen.query_one("#field-spec_steps", Input).value = "1"
    await d.calls("server.relaunch", server_id=server().id)


@effect("copy_line", "launch", "relaunch", "earlier")
async def _(d: Drive) -> None:
    await d.copies("--model-path" if isinstance(d.screen, LaunchScreen) else "-m sglang.launch_server")


@effect("pick", "launch")
async def _(d: Drive) -> None:
    await d.press()
    await d.shows(NO_WAY)  # with a host: see test_profiles_and_earlier


@effect("again", "earlier")
async def _(d: Drive) -> None:
    await d.opens(LaunchScreen)
    assert d.app.screen.base.settings.model == "/m/old"


@effect("reload", "earlier")
async def _(d: Drive) -> None:
    await d.calls("connected", host=HOST)


# Sweeps and experiments ------------------------------------------------------------------------


@effect("start_sweep", "sweep")
async def _(d: Drive) -> None:
    await d.calls("sweep.start", target=server().id)


@effect("measure", "sweep", "history")
async def _(d: Drive) -> None:
    await d.out_of_fields()
    chart = d.screen.query_one(LevelsChart)
    await d.changes(lambda: chart.measure)


@effect("overlay", "sweep")
async def _(d: Drive) -> None:
    await d.out_of_fields()
    await d.opens(PickRuns)


@effect("stop_or_leave", "sweep")
async def _(d: Drive) -> None:
    d.screen.operation_id = "sweep-now"
    d.session.store.apply(sweep(2, op_id="sweep-now"))
    await d.calls("sweep.stop", op_id="sweep-now")
    d.session.store.apply(sweep(2, op_id="sweep-now", status="stopped"))
    await d.opens(Cockpit)


@effect("start_tune", "tune")
async def _(d: Drive) -> None:
    d.screen.query_one("#field-mtp_steps", Input).value = "0..3"
    await d.calls("tune.start", target=server().id)


async def tuned(d: Drive, **changes: object) -> None:
    """An experiment on the screen."""
    d.session.store.tune(tuning(server().label, server().id, **changes))
    d.screen.tuning_id = next(iter(d.session.store.tunings))
    await d.until(lambda: d.screen.has_class("started"))


@effect("measure", "tune")
async def _(d: Drive) -> None:
    await tuned(d)
    await d.press()
    await d.shows("tok/s against concurrency")


@effect("stop_tune", "tune")
async def _(d: Drive) -> None:
    await tuned(d)
    await d.calls("tune.stop", id=d.screen.tuning_id)


@effect("copy_line", "tune")
async def _(d: Drive) -> None:
    await tuned(d, phase="done", report=REPORT, left_s=None)
    await d.copies("--speculative-num-steps 2")


@effect("export", "tune")
async def _(d: Drive) -> None:
    await tuned(d, phase="done", report=REPORT, left_s=None)
    await d.exports("tune-6g2h52-pax.md")


# Runs ------------------------------------------------------------------------------------------


@effect("export", "history")
async def _(d: Drive) -> None:
    await d.exports("report.html", "report.md", "report.csv", "report.json")


@effect("plan", "history")
async def _(d: Drive) -> None:
    await d.opens(PlanScreen)


@effect("pick", "history")
async def _(d: Drive) -> None:
    await d.changes(lambda: list(d.screen.picked))


@effect("reload", "history")
async def _(d: Drive) -> None:
    d.session.stored = FakeHistory((*d.session.stored.stored, run("r-0099", started_at=1.0)))
    await d.press()
    await d.shows("r-0099")


# Findings ----------------------------------------------------------------------------------------


@effect("open", "diagnose")
async def _(d: Drive) -> None:
    await d.press()
    await d.shows("swap 12 GB", "1+1=2")


@effect("reach", "diagnose")
async def _(d: Drive) -> None:
    await d.press()
    await d.until(lambda: d.screen.query_one("#rate", Input).has_focus)
    await d.pilot.press(*"70", "enter")
    await d.shows("what it would take")
    d.app.pop_screen()


@effect("copy_finding", "diagnose")
async def _(d: Drive) -> None:
    await d.copies("swap 12 GB")


@effect("again", "diagnose")
async def _(d: Drive) -> None:
    await d.press()
    await d.shows("✗")
    await d.until(lambda: "The host swaps" not in text(d.pilot))
    d.app.pop_screen()


@effect("export", "diagnose")
async def _(d: Drive) -> None:
    await d.exports("findings.txt")


@effect("again", "check")
async def _(d: Drive) -> None:
    await d.calls("server.check", target=server().id)


# The fleet -----------------------------------------------------------------------------------------


@effect("choose", "fleet")
async def _(d: Drive) -> None:
    await d.pilot.press("end")
    await d.opens(Cockpit)
    assert d.app.view.host == OTHER
    d.app.select(HOST, server().id)


@effect("refresh_host", "fleet")
async def _(d: Drive) -> None:
    await d.pilot.press("home")
    await d.calls("find", host=HOST)


@effect("pick", "fleet")
async def _(d: Drive) -> None:
    await d.pilot.press("home")
    await d.changes(lambda: list(d.fleet.picked))
    assert list(d.fleet.picked) == [HOST]


@effect("pick_all", "fleet")
async def _(d: Drive) -> None:
    await d.press()
    await d.until(lambda: set(d.fleet.picked) == {HOST, OTHER})


def acts(what: str) -> None:
    @effect(f"selected('{what}')", "fleet")
    async def _(d: Drive) -> None:
        d.fleet.picked = {HOST: None}
        await d.calls(f"fleet.{what}", targets=[server().id])


for _name in ("check", "sweep", "stop"):
    acts(_name)


@effect("filter", "fleet")
async def _(d: Drive) -> None:
    await d.press()
    await d.pilot.press(*"rack-8", "enter")
    await d.until(lambda: d.fleet.names() == [OTHER])
    await d.pilot.press("slash", "escape")
    await d.until(lambda: len(d.fleet.names()) == 2)


@effect("sort", "fleet")
async def _(d: Drive) -> None:
    await d.changes(lambda: d.fleet.sort)


@effect("sort", "history")
async def _(d: Drive) -> None:
    await d.changes(lambda: d.screen.order)
    await d.shows("by peak tok/s")


@effect("group", "fleet")
async def _(d: Drive) -> None:
    await d.changes(lambda: d.fleet.grouped)

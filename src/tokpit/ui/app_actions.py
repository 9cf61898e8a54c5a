"""Actions that every screen shares: going to a screen by its number, recordings, the tour."""

from __future__ import annotations

import inspect
import time
from typing import Any, cast

from tokpit.config.paths import state_dir
from tokpit.config.settings import AlarmPreferences
from tokpit.errors import TokpitError
from tokpit.ops.alarms import Alarm, osc, quiet
from tokpit.ui.opening import Openers
from tokpit.ui.screens.base import tell


class AppActions(Openers):
    """Mixed into the application."""

    def action_go(self, screen: str) -> None:
        """Open a screen in place of the one that is open; the cockpit lies below all of them."""
        app = self._app
        if screen == type(app.screen).__name__.removesuffix("Screen").lower():
            return
        while len(app.screen_stack) > 2:
            app.pop_screen()
        if screen == "fleet":
            from tokpit.ui.screens.fleet import FleetScreen

            app.push_screen(FleetScreen(app.view))
        elif screen == "history":
            app.action_history()
        elif screen == "diagnose":
            app.open_diagnose()
        elif screen == "tune":
            app.open_tune()

    def action_jump(self) -> None:
        """The command palette."""
        self.action_command_palette()

    def action_command_palette(self) -> None:
        """Everything by name."""
        from tokpit.ui.screens.commands import Commands

        app = self._app
        if not isinstance(app.screen, Commands):
            app.push_screen(Commands(id="--command-palette"))

    def action_ran_before(self) -> None:
        """Servers that ran on the selected host before."""
        from tokpit.ui.screens.earlier import EarlierScreen

        app = self._app
        if app.view.host is None:
            tell(app, "no host is selected")
        elif getattr(app.session, "connected", None) is None:
            tell(app, "this is a recording: its host cannot be asked")
        else:
            app.push_screen(EarlierScreen(app.view, app.view.host))

    def action_save_profile(self) -> None:
        """Save the selected server as a launch profile."""
        from tokpit.ui.saving import save_profile

        self._app.run_worker(save_profile(self._app), exit_on_error=False)

    def action_tour(self) -> None:
        """The first five things to know."""
        from tokpit.ui.screens.tour import TourScreen

        self._app.push_screen(TourScreen())

    def tell_alarm(self, preferences: AlarmPreferences, alarm: Alarm, begins: bool) -> None:
        """An alarm begins or ends: on screen, by the bell, on the desktop, as the user wants; quiet hours are quiet."""
        app = self._app
        if not app.is_running:
            return
        app.redraw_screens()
        if quiet(preferences, time.time()):
            return
        words = f"{alarm.label}: {alarm.finding.claim}" if begins else f"over: {alarm.label}: {alarm.finding.claim}"
        if preferences.toast:
            tell(app, words, hint=alarm.finding.next_action if begins else "", bad=begins)
        if not begins:
            return
        if preferences.bell:
            app.bell()
        if (sequence := osc(preferences.desktop, words)) and app._driver is not None:
            app._driver.write(sequence)

    def action_acknowledge(self) -> None:
        """The alarms of the selected server and its host are known."""
        app = self._app
        book = getattr(app.session, "alarms", None)
        subjects = [name for name in (app.view.server_id, app.view.host) if name]
        claims = [alarm.finding.claim for alarm in app.view.alarms(*subjects) if not alarm.acknowledged]
        count = sum(book.acknowledge(name) for name in subjects) if book is not None else 0
        said = f"{count} alarm{'s' if count != 1 else ''} acknowledged" if count else "no alarm stands here"
        tell(app, said, hint="\n".join(claims))
        app.redraw_screens()

    def action_save_last(self) -> None:
        """The last minutes, as a recording."""
        save = getattr(self._app.session, "save_ring", None)
        if save is None:
            tell(self._app, "this is a recording already", hint="a part of it: tokpit record cut FILE --from --to")
        else:
            self._app.run_worker(self._said(save(), "saved the last minutes as {}"), exit_on_error=False)

    def action_record(self) -> None:
        """Begin to record, or end it."""
        session = self._app.session
        start = getattr(session, "start_recording", None)
        if start is None:
            tell(self._app, "this is a recording already")
        elif getattr(session, "recording", None) is None:
            self._app.run_worker(self._said(start, "recording into {}"), exit_on_error=False)
        else:
            self._app.run_worker(self._said(cast(Any, session).stop_recording(), "recorded {}"), exit_on_error=False)

    async def _said(self, work: Any, words: str) -> None:
        try:
            path = work() if callable(work) else work
            path = await path if inspect.isawaitable(path) else path
        except TokpitError as error:
            tell(self._app, error.message, hint=error.hint, bad=True)
            return
        tell(self._app, words.format(path))
        self._app.redraw_screens()


def new_here() -> bool:
    """Whether nobody has opened the console here before; it is remembered that somebody has."""
    mark = state_dir() / "tour-seen"
    if mark.exists():
        return False
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    except OSError:
        return False
    return True

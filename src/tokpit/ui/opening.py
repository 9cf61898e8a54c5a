"""Which screen opens for what is selected, or the sentence that says why none does."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tokpit.domain.settings import LaunchSpec
from tokpit.ui.actions import key_of
from tokpit.ui.screens.base import tell

if TYPE_CHECKING:
    from tokpit.ui.app import TokpitApp


class Openers:
    """Mixed into the application."""

    @property
    def _app(self) -> TokpitApp:
        return cast("TokpitApp", self)

    @property
    def _no_server(self) -> str:
        return f"choose one in the tree, or press {key_of(self._app, 'cockpit.launch')} to launch one"

    def _refuse(self, what: str) -> None:
        if self._app.view.player is not None:
            hint = f"open the host itself to {what}: tokpit HOST"
            tell(self._app, "this is a recording: nothing runs here", hint=hint, bad=True)
        else:
            tell(self._app, "tokpit runs in read-only mode", hint=f"start it without --read-only to {what}", bad=True)

    def open_launch(self, base: LaunchSpec | None = None, origin: str = "") -> None:
        """The launch screen for the selected host; `base`: a launch to start from, called `origin`."""
        from tokpit.ui.screens.launch import LaunchScreen

        host = base.host if base is not None else self._app.view.host
        if host is None:
            tell(self._app, "no host is selected")
        elif self._app.session.read_only:
            self._refuse("launch")
        else:
            self._app.push_screen(LaunchScreen(self._app.view, host, base=base, origin=origin))

    def open_relaunch(self) -> None:
        """The relaunch screen for the selected server."""
        from tokpit.ui.screens.relaunch import RelaunchScreen

        server = self._app.view.server
        if server is None or not server.alive:
            tell(self._app, "no running server is selected", hint=self._no_server)
        elif self._app.session.read_only:
            self._refuse("relaunch")
        else:
            self._app.push_screen(RelaunchScreen(self._app.view, server.info))

    def open_check(self) -> None:
        """Check the selected server."""
        from tokpit.ui.screens.check import CheckScreen

        server = self._app.view.server
        if server is None or not server.alive:
            tell(self._app, "no running server is selected", hint=self._no_server)
        else:
            self._app.push_screen(CheckScreen(self._app.view, server.info))

    def open_diagnose(self) -> None:
        """What is wrong with the selected server."""
        from tokpit.ui.screens.diagnose import DiagnoseScreen

        if self._app.view.server is None:
            tell(self._app, "no server is selected", hint="choose one in the tree")
        else:
            self._app.push_screen(DiagnoseScreen(self._app.view, self._app.view.server.info))

    def open_sweep(self) -> None:
        """The sweep screen for the selected server."""
        from tokpit.ui.screens.sweep import SweepScreen

        server = self._app.view.server
        if server is None or not server.alive:
            tell(self._app, "no running server is selected", hint=self._no_server)
        else:
            self._app.push_screen(SweepScreen(self._app.view, server.info.id))

    def open_tune(self) -> None:
        """The tune screen for the selected server."""
        from tokpit.ui.screens.tune import TuneScreen

        server = self._app.view.server
        if server is None or not (server.alive or self._app.view.store.tunings):
            tell(self._app, "no running server is selected", hint=self._no_server)
        else:
            self._app.push_screen(TuneScreen(self._app.view, server.info.id))

    def action_history(self) -> None:
        """The stored runs."""
        from tokpit.ui.screens.history import HistoryScreen

        self._app.push_screen(HistoryScreen(self._app.view))

    def action_help(self) -> None:
        """Keys of the screen that is open."""
        from tokpit.ui.screens.help import HelpScreen

        name = type(self._app.screen).__name__.removesuffix("Screen").lower()
        self._app.push_screen(HelpScreen(self._app.view, name))

"""Keys that move in time: hold and scroll back on hosts themselves; pause, seek and speed on a recording."""

from __future__ import annotations

from textual.message import Message

from tokpit.ui.actions import key_of
from tokpit.ui.screens.base import PumpedScreen, tell
from tokpit.ui.widgets.timebar import TimeBar

STEPS = 60
"""Steps that make one width of the charts."""


class TimedScreen(PumpedScreen):
    """A screen with a TimeBar."""

    class TimeChosen(Message):
        """A moment was pointed at; real UTC seconds."""

        def __init__(self, wall: float) -> None:
            super().__init__()
            self.wall = wall

    def before_pump(self) -> None:
        """The bar follows."""
        self.query_one(TimeBar).follow()

    def moved(self) -> None:
        """Hook: everything is read at another moment now."""

    def action_pause(self) -> None:
        """Hold everything still, or go on; a recording that has ended begins again."""
        player = self.view.player
        if player is not None and player.ended:
            player.playing = True
            self.run_worker(player.seek(player.summary.start), exit_on_error=False)
        elif player is not None:
            player.toggle()
        elif self.view.past is None:
            self._hold(self.view.clock.wall())
        else:
            self.release()

    def release(self) -> None:
        """Go on with what is now."""
        self.view.release()
        self._redraw()

    def action_time(self, steps: int) -> None:
        """A step back or forth."""
        step, player = steps * self.view.span() / STEPS, self.view.player
        if player is not None:
            self.run_worker(player.seek(player.heading + step), exit_on_error=False)
            return
        held = self.view.clock.held
        if held is None and steps > 0:
            tell(
                self.console,
                "this is now",
                hint=f"{key_of(self.app, 'cockpit.pause')} holds it, {key_of(self.app, 'cockpit.earlier')} goes back",
            )
            return
        self._hold((self.view.clock.wall() if held is None else held) + step)

    def action_speed(self, steps: int) -> None:
        """A recording plays slower or quicker."""
        if self.view.player is not None:
            self.view.player.faster(steps)
        else:
            tell(self.console, "hosts themselves have one speed", hint="recordings have more: tokpit replay FILE")

    def on_timed_screen_time_chosen(self, message: TimeChosen) -> None:
        """Read everything there; a recording goes there."""
        player = self.view.player
        if player is None:
            self._hold(message.wall)
        else:
            there = player.heading + message.wall - self.view.clock.wall()
            self.run_worker(player.seek(there), exit_on_error=False)

    def _hold(self, wall: float) -> None:
        self.view.hold(wall)
        self._redraw()

    def _redraw(self) -> None:
        self.query_one(TimeBar).follow()
        self.moved()
        self.redraw_all()

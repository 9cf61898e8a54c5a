"""The line that says at which moment everything is read: held time, or a recording with its position."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual import events

from tokpit.ui import figures
from tokpit.ui.actions import key_of
from tokpit.ui.text import Row, Span, row_width, safe
from tokpit.ui.view import View
from tokpit.ui.widgets.panel import Panel


class TimeBar(Panel):
    """One row above the keys; not there while time simply runs."""

    framed = False
    DEFAULT_CSS = "TimeBar { height: 1; display: none; }"

    def __init__(self, view: View) -> None:
        super().__init__(id="timebar")
        self.view = view
        self.min_interval_s = 0.24
        self._bar = (0, 0)
        self._drawn: tuple[object, ...] = ()

    def wanted(self) -> bool:
        """Whether there is something to say."""
        return self.view.player is not None or self.view.past is not None

    def follow(self) -> None:
        """Show or hide, and draw anew where something has changed."""
        player = self.view.player
        key: tuple[object, ...] = (self.wanted(), self.view.clock.held)
        if player is not None:
            key += (int(player.position), player.playing, player.speed, player.seeking)
        if key != self._drawn:
            self._drawn = key
            self.display = self.wanted()
            self.redraw()

    def body(self, width: int, height: int) -> Sequence[Row]:
        """State, time, place, keys."""
        return [self._replay(width) if self.view.player is not None else self._held(width)]

    def _held(self, width: int) -> Row:
        held, edge = self.view.clock.held, self.view.edge
        if held is None or edge is None:
            return []
        back = self.view.clock.wall() - held
        row: list[Span] = [
            (" ❚❚ HELD ", "badge"),
            (f" {_clock(self.view.now())} ", "bold"),
            (f" {figures.duration(back)} ago ", "fg"),
        ]
        keys = (
            (self._shown("earlier", "later"), "move"),
            (self._shown("much earlier", "much later"), "further"),
            (self._shown("pause"), "go on"),
        )
        return [*row, *_keys(keys, width - row_width(row))]

    def _shown(self, *names: str) -> str:
        return " ".join(key_of(self.app, f"cockpit.{name}") for name in names)

    def _replay(self, width: int) -> Row:
        player = self.view.player
        assert player is not None
        summary = player.summary
        sign = "… SEEK" if player.seeking else "■ END" if player.ended else "▶ PLAY" if player.playing else "❚❚ PAUSE"
        place = f"{_span(player.position - summary.start)} / {_span(summary.end - summary.start)}"
        row: list[Span] = [
            (f" {sign} ", "badge"),
            (f" {_clock(self.view.now() if self.view.host else player.position)} ", "bold"),
            (f" {place}  ×{player.speed:g} ", "fg"),
        ]
        shown = (
            (self._shown("pause"), "again" if player.ended else "pause"),
            (self._shown("earlier", "later"), "move"),
            (self._shown("slower", "quicker"), "speed"),
        )
        keys = _keys(shown, width - row_width(row) - 14)
        room = max(0, width - row_width(row) - row_width(keys) - 2)
        share = (player.position - summary.start) / max(1e-9, summary.end - summary.start)
        self._bar = (row_width(row), room)
        filled, rest = figures.bar(share, room)
        return [*row, (filled, "accent"), (rest, "track"), *keys]

    async def on_click(self, event: events.Click) -> None:
        """A click on the bar of a recording goes there."""
        player, (start, room) = self.view.player, self._bar
        if player is not None and room and start <= event.x < start + room:
            summary = player.summary
            share = (event.x - start + 0.5) / room
            self.run_worker(player.seek(summary.start + share * (summary.end - summary.start)), exit_on_error=False)


def _keys(pairs: Sequence[tuple[str, str]], room: int) -> list[Span]:
    spans: list[Span] = []
    for key, word in pairs:
        more: list[Span] = [("  ", "fg"), (key, "key"), (f" {word}", "dim")]
        if row_width(spans) + row_width(more) > room:
            break
        spans += more
    return spans


def _clock(t: float) -> str:
    return safe(time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(t)))


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

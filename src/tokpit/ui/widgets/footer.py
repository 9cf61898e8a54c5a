"""The bottom line: keys of this screen, the important ones first when there is little room."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.widgets import Input

from tokpit.ui.actions import Action, actions_for, typed
from tokpit.ui.text import Row, Span
from tokpit.ui.widgets.panel import Panel


class Footer(Panel):
    """Made from the action table; a click does what the key does."""

    framed = False
    ages = False
    DEFAULT_CSS = "Footer { height: 1; dock: bottom; }"

    def __init__(self, screen_name: str) -> None:
        super().__init__(id="footer")
        self.screen_name = screen_name
        self._spots: list[tuple[int, int, Action]] = []

    def on_mount(self) -> None:
        """Keys that are letters do nothing while a field is typed into."""
        self.watch(self.screen, "focused", self.redraw, init=False)

    def fitting(self, width: int) -> list[Action]:
        """The actions that fit, in table order; low ranks stay longest."""
        every = actions_for(self.screen_name, getattr(self.app, "own_keys", None))
        if isinstance(self.screen.focused, Input):
            every = [a for a in every if not typed(a.key)]
        kept: list[Action] = []
        left = width + 1  # nothing stands behind the last one
        for action in sorted(every, key=lambda a: a.rank):
            cells = len(action.key_text) + len(action.label) + 3
            if cells <= left:
                kept.append(action)
                left -= cells
        return [a for a in every if a in kept]

    def body(self, width: int, height: int) -> Sequence[Row]:
        """One row."""
        row: list[Span] = [(" ", "fg")]
        at = 1
        self._spots = []
        for action in self.fitting(width):
            cells = len(action.key_text) + len(action.label) + 3
            self._spots.append((at, at + cells, action))
            row += [(action.key_text, "key"), (" ", "fg"), (action.label, "dim"), ("  ", "fg")]
            at += cells
        return [row[:-1]]

    async def on_click(self, event: events.Click) -> None:
        """Do what the key at this place does."""
        for start, end, action in self._spots:
            if start <= event.x < end:
                self.app.simulate_key(action.key)
                return

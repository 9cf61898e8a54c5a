"""The bottom line: keys of this screen, the important ones first when there is little room."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

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
        self._spots: list[tuple[int, int, str]] = []
        self._now: tuple[tuple[str, str, str], ...] = ()

    def on_mount(self) -> None:
        """Keys that are letters do nothing while a field is typed into."""
        self.watch(self.screen, "focused", self.redraw, init=False)

    def fitting(self, width: int) -> list[Action]:
        """The actions that fit, in table order; low ranks stay longest."""
        every = actions_for(self.screen_name, getattr(self.app, "own_keys", None))
        if getattr(self.screen, "typing", False):
            every = [a for a in every if not typed(a.key)]
        kept: list[Action] = []
        left = width + 1  # nothing stands behind the last one
        for action in sorted(every, key=lambda a: a.rank):
            cells = len(action.key_text) + len(action.label) + 3
            if cells <= left:
                kept.append(action)
                left -= cells
        return [a for a in every if a in kept]

    def now_keys(self) -> Sequence[tuple[str, str, str]]:
        """Keys that mean something else just now (key, as written, what it does): a screen gives them as `now_keys`."""
        found = getattr(self.screen, "now_keys", None)
        return found() if callable(found) else ()

    def follow(self) -> None:
        """Draw anew where other keys work now."""
        if (now := tuple(self.now_keys())) != self._now:
            self._now = now
            self.redraw()

    def body(self, width: int, height: int) -> Sequence[Row]:
        """One row: what works just now, then the table."""
        row: list[Span] = [(" ", "fg")]
        self._now = tuple(self.now_keys())
        shown = [(key, written, label) for key, written, label in self._now]
        taken = sum(len(written) + len(label) + 3 for _, written, label in shown)
        at = 1
        self._spots = []
        others = [a for a in self.fitting(width - taken) if a.key not in {key for key, _, _ in shown}]
        for key, written, label in [*shown, *((a.key, a.key_text, a.label) for a in others)]:
            cells = len(written) + len(label) + 3
            self._spots.append((at, at + cells, key))
            row += [(written, "key"), (" ", "fg"), (label, "dim"), ("  ", "fg")]
            at += cells
        return [row[:-1]]

    async def on_click(self, event: events.Click) -> None:
        """Do what the key at this place does."""
        for start, end, key in self._spots:
            if start <= event.x < end:
                self.app.simulate_key(key)
                return

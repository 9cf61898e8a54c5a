"""Keys act in the order in which they were typed, however far a person is ahead of the screen.

Textual hands each key to the widget that has the focus then, and lets the key climb from there, through one queue of
messages after the other, up to the application, where its binding acts. What is typed meanwhile goes to the same
widget: of a quick `/retract` the letters `r`, `e` and `t` would refresh, export and open the tuning before `/` has
opened the line for them, and letters behind a `tab` would land in the field before.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from textual import events
from textual.message_pump import MessagePump
from textual.widgets import Input

if TYPE_CHECKING:
    from textual.app import App

    _Base = App[None]
else:
    _Base = object

PATIENCE_S = 3.0
"""A key whose deed takes longer than this no longer holds back the next one."""


class KeysInOrder(_Base):
    """Mixed into the application, before App."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ahead: deque[events.Key | events.Paste] = deque()
        """Typed, and not yet given to anything."""
        self._acting: asyncio.Task[None] | None = None

    async def on_event(self, event: events.Event) -> None:
        """A key or a paste waits until what was typed before it has acted."""
        if not isinstance(event, (events.Key, events.Paste)) or event.is_forwarded:
            await super().on_event(event)
        elif self._acting is not None:
            self._ahead.append(event)
        else:
            await self._give(event)

    async def _give(self, event: events.Key | events.Paste) -> None:
        """To the widget with the focus. Text for a field needs no wait: nothing can come of it but text there.

        A screen that comes back from under another one focuses its first field for a moment even where its form is
        folded away: what is not shown gets no keys.
        """
        if self.focused is not None and not all(node.display for node in self.focused.ancestors_with_self):
            self.screen.set_focus(None)
        text = isinstance(event, events.Paste) or event.is_printable
        chain = [] if text and isinstance(self.focused, Input) else list(self._chain())
        await super().on_event(event)
        if chain:
            self._acting = asyncio.get_running_loop().create_task(self._acted(chain))

    def _chain(self) -> Iterator[MessagePump]:
        """Whom a key meets, from the widget with the focus up to the application."""
        node: MessagePump | None = self.focused or self.screen
        while node is not None:
            yield node
            node = node._parent

    async def _acted(self, chain: list[MessagePump]) -> None:
        """Wait until a key has climbed the chain, what came of it (a field's `Submitted`) has climbed it too, and a
        screen that was opened has composed itself and chosen its focus; then go on.
        """
        until = time.monotonic() + PATIENCE_S
        try:
            for pump in (*chain, *chain):
                await _passed(pump, until)
            for pump in (self.screen, self):
                await _passed(pump, until)
        finally:
            self.call_later(self._go_on)

    async def _go_on(self) -> None:
        self._acting = None
        while self._ahead and self._acting is None:
            await self._give(self._ahead.popleft())


async def _passed(pump: MessagePump, until: float) -> None:
    """Wait until a pump has dealt with all that stands in its queue now, or has ended."""
    done = asyncio.Event()
    if not pump.post_message(events.Callback(callback=done.set)):
        return
    while not done.is_set() and pump.is_running and time.monotonic() < until:
        try:
            await asyncio.wait_for(done.wait(), 0.05)
        except TimeoutError:
            continue

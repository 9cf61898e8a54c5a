"""A level that ends before its time: because somebody stops the sweep, or because going on with it is in vain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tokpit.ops.sweep.underway import Rate, Underway

if TYPE_CHECKING:
    from tokpit.load.events import Progress
    from tokpit.load.plan import Plan


class Early:
    """`hopeless` is asked with the rate of a level under way; a text that is not empty ends it, and the sweep."""

    def __init__(self, stop: asyncio.Event, hopeless: Callable[[Rate], str] | None) -> None:
        self.reason = ""
        """Why it was in vain; empty: it was not."""
        self._stop, self._hopeless = stop, hopeless
        self._cut = asyncio.Event()
        self._underway: Underway | None = None

    @property
    def over(self) -> bool:
        """Whether no further level is to begin."""
        return self._cut.is_set()

    @asynccontextmanager
    async def level(self, plan: Plan, concurrency: int) -> AsyncIterator[asyncio.Event]:
        """One level; the event that ends it."""
        if self._hopeless is not None and not plan.rates:
            total = plan.requests_at(concurrency)
            self._underway = Underway(concurrency, total=total, duration_s=plan.duration_s)
        passing_on = asyncio.ensure_future(self._pass_on())
        try:
            yield self._cut
        finally:
            self._underway = None
            passing_on.cancel()
            await asyncio.gather(passing_on, return_exceptions=True)

    def look(self, seen: Progress) -> None:
        """Take a progress line of the level in."""
        if self._underway is None or self._hopeless is None or self._cut.is_set():
            return
        rate = self._underway.add(seen)
        if rate is not None and (why := self._hopeless(rate)):
            self.reason = why
            self._cut.set()

    async def _pass_on(self) -> None:
        await self._stop.wait()
        self._cut.set()

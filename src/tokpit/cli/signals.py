"""Ctrl-C for long work: the first asks it to end in order, the second ends at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

from tokpit.cli.errors import INTERRUPTED

AT_ONCE_S = 2.0
"""After the second Ctrl-C, how long the clean-up may take."""


class Signals:
    """The first SIGINT or SIGTERM sets `stop`, where `orderly` finds something to end; the next ends at once."""

    def __init__(self, orderly: Callable[[], bool], on_first: Callable[[], None] = lambda: None) -> None:
        self._orderly, self._on_first = orderly, on_first
        self._task: asyncio.Future[Any] | None = None
        self.stop = asyncio.Event()
        self.heard = 0

    async def guard(self, work: Any) -> Any:
        """Await `work` with the signals caught; None where it was ended at once."""
        loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(work)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._hear)
        try:
            return await self._task
        except asyncio.CancelledError:
            if not self.heard:
                raise
            return None
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _hear(self) -> None:
        self.heard += 1
        if self.heard == 1 and self._orderly():
            self.stop.set()
            self._on_first()
            return
        assert self._task is not None
        self._task.cancel()
        # A host that does not answer must not hold up somebody who pressed it twice.
        asyncio.get_running_loop().call_later(AT_ONCE_S, os._exit, INTERRUPTED)

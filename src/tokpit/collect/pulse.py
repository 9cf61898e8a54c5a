"""The watch over tokpit's own event loop: what blocks it makes keepalives, log readers and forwards wait unseen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tokpit.domain.records import Stall

EVERY_S = 0.5
LATE_S = 2.0
"""Shorter delays are those of a busy machine, which nobody sees."""


async def watch_pulse(sink: Callable[[Stall], None], *, every_s: float = EVERY_S, late_s: float = LATE_S) -> None:
    """Tell of every time the loop was late by `late_s` or more, until cancelled. A machine asleep is not late."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(every_s)
        late = time.monotonic() - before - every_s
        if late >= late_s:
            sink(Stall(time.time(), late))

from __future__ import annotations

import asyncio
import time

from tokpit.collect.pulse import watch_pulse
from tokpit.domain.records import Stall
from tokpit.store.live import LiveStore


async def test_a_loop_that_was_blocked_is_told_with_how_long() -> None:
    store = LiveStore()
    task = asyncio.ensure_future(watch_pulse(store.apply, every_s=0.01, late_s=0.5))
    await asyncio.sleep(0.05)
    time.sleep(0.6)  # what must not happen in tokpit: the loop stands still
    while not store.stalls:
        await asyncio.sleep(0.01)
    task.cancel()
    assert store.stalls[-1].late_s >= 0.5
    assert store.version("stalls") >= 1
    assert isinstance(store.stalls[-1], Stall)

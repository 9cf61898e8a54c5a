"""The server's own users: a few requests at a time, so that charts move. They leave when anybody else sends one."""

from __future__ import annotations

import asyncio
import math
import random

from tokpit.sim.serving import Serving

QUIET_S = 30.0
"""Simulated seconds without foreign requests after which the own users come back."""


async def background(serving: Serving, seed: int = 7) -> None:
    """Submit requests for ever; the number at a time swings between none and six, over some minutes."""
    rng = random.Random(seed)  # noqa: S311
    clock = serving.clock
    seen: list[int] = []
    while True:
        await asyncio.sleep(max(0.02, rng.expovariate(1 / 2.5) / clock.factor))
        now = clock.now()
        if serving.draining:
            return
        if serving.foreign or now - serving.last_foreign_t < QUIET_S:
            continue
        wanted = 3.2 + 2.4 * math.sin(now / 47) + 1.2 * math.sin(now / 13)
        if serving.unfinished < wanted:
            length = int(min(1600, rng.lognormvariate(5.9, 0.6))) + 16
            # Half of the prompts have been seen before, so that the prefix cache has something to do.
            if rng.random() < 0.5 or not seen:
                seen.append(int(min(3000, rng.lognormvariate(6.0, 0.9))) + 80)
                topic = len(seen) - 1
            else:
                topic = rng.randrange(len(seen))
            serving.submit(f"topic {topic}", seen[topic], length, lambda _: None, background=True)

"""How a level is divided among processes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .plan import Plan

ONE_PROCESS_STREAMS = 128
"""Streams that one process is given at most, unless asked otherwise."""
ONE_PROCESS_CHUNKS_PER_S = 8000.0
"""Chunks/s that one process is given at most: a core's limit for true gaps is about three times as much."""


@dataclass(frozen=True)
class Share:
    """What one process does of a level: worker `number` of `of`. None as in the plan: not set, or no limit."""

    number: int = 0
    of: int = 1
    concurrency: int | None = None
    requests: int | None = None
    max_in_flight: int = 4096
    first: int = 0
    step: int = 1
    """Its conversations are first, first + step, ...: no prompt is sent by two. In an open loop, its arrivals too."""

    def plan(self, plan: Plan) -> Plan:
        """`plan` as this share of it."""
        levels = plan.levels if self.concurrency is None else (self.concurrency,)
        return replace(plan, levels=levels, requests=self.requests, max_in_flight=self.max_in_flight, processes=1)


def split(total: int, weights: Sequence[int]) -> list[int]:
    """`total` in whole parts as proportional to `weights` as can be; the parts add up to `total`."""
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    rests = sorted(range(len(weights)), key=lambda i: (-(total * weights[i] % whole), i))
    for i in rests[: total - sum(parts)]:
        parts[i] += 1
    return parts


def shares(plan: Plan, processes: int, concurrency: int | None, total: int | None) -> list[Share]:
    """The level's parts for `processes` workers; those without any request are left out.

    A closed loop divides its slots and, in proportion, its requests, in blocks of neighbouring prompts so that each
    part has the same mix. An open loop deals its arrivals out in turn, so that all together keep the one schedule.
    """
    many = max(1, min(processes, concurrency if concurrency is not None else plan.max_in_flight))
    even = [1] * many
    limits = split(plan.max_in_flight, even)
    if concurrency is None:
        counts: list[int | None] = [None if total is None else len(range(i, total, many)) for i in range(many)]
        found = [Share(i, many, None, counts[i], limits[i], i, many) for i in range(many)]
    else:
        slots = split(concurrency, even)
        if total is None:
            found = [Share(i, many, slots[i], None, limits[i], i, many) for i in range(many)]
        else:
            blocks = split(total, slots)
            found = [Share(i, many, slots[i], blocks[i], limits[i], sum(blocks[:i]), 1) for i in range(many)]
    kept = [share for share in found if share.requests != 0]
    return [replace(share, number=i, of=len(kept)) for i, share in enumerate(kept)]


def processes_for(plan: Plan, concurrency: int | None, chunks_per_s: float, cores: int) -> int:
    """How many processes a level takes: as many as the plan says, or as many as it needs where it says 0.

    `chunks_per_s` is what is expected of the whole level (0: not known yet). On its own the generator takes half of
    the `cores` at most: an engine may run beside it.
    """
    if plan.processes:
        return plan.processes
    need = math.ceil(chunks_per_s / ONE_PROCESS_CHUNKS_PER_S)
    if concurrency is not None:
        need = max(need, math.ceil(concurrency / ONE_PROCESS_STREAMS))
    return max(1, min(need, cores // 2))

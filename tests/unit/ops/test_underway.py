"""A level's rate while it runs: it says what the whole level will say, and is not fooled by its beginning."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tokpit.load.events import Progress
from tokpit.ops.sweep.underway import LOOKS, Rate, Underway

C, REQUESTS, TOKENS, EACH = 8, 64, 200, 2.5
"""Slots, requests of a level, tokens of each, tokens in a chunk."""


def lines(stream_tps: float, *, ttft_s: float = 0.0, noise: float = 0.1, seed: int = 1) -> Iterator[Progress]:
    """Four progress lines a second of a closed loop whose streams run at about this speed."""
    rng = random.Random(seed)
    left, done, chunks_done, t = REQUESTS, 0, 0.0, 0.0
    slots = [0.0] * C
    waits = [ttft_s] * C
    left -= C
    while slots:
        t += 0.25
        for place in reversed(range(len(slots))):
            if waits[place] > 0:
                waits[place] -= 0.25
                continue
            slots[place] += 0.25 * stream_tps * rng.gauss(1, noise)
            if slots[place] >= TOKENS:
                done += 1
                chunks_done += TOKENS / EACH
                if left:
                    left -= 1
                    slots[place], waits[place] = slots[place] - TOKENS, ttft_s
                else:
                    del slots[place], waits[place]
        chunks = int(chunks_done + sum(slots) / EACH)
        # Until a request has ended, nobody knows how many tokens a chunk holds.
        tokens = chunks * (EACH if done else 1.0)
        yield Progress(
            level=0, done=done, total=REQUESTS, ok=done, err=0, running=len(slots), tps=0.0, tokens=tokens,
            elapsed_s=t, eta_s=None, chunks=chunks,
        )  # fmt: skip


def looks(progress: Iterator[Progress]) -> list[Rate]:
    underway = Underway(C, total=REQUESTS, duration_s=None)
    return [rate for line in progress if (rate := underway.add(line)) is not None]


def test_the_true_rate_lies_within_the_intervals_of_all_looks_together() -> None:
    misses = 0
    for seed in range(20):
        found = looks(lines(50.0, seed=seed))
        assert 5 <= len(found) <= LOOKS
        assert found[0].done >= 2
        assert found[-1].half < 0.1 * C * 50.0
        assert {rate.concurrency for rate in found} == {C}
        misses += any(abs(rate.tps - C * 50.0) > rate.half for rate in found)
    assert misses <= 1, "5 % of the levels may be judged wrongly at some look"


def test_a_long_wait_for_the_first_prompts_is_not_taken_for_a_slow_server() -> None:
    """Eight prompts wait 6 s each time: the level as a whole gives 8 x 200 tokens in 10 s."""
    whole = C * TOKENS / (6 + TOKENS / 50)
    found = looks(lines(50.0, ttft_s=6.0))
    assert found
    assert all(rate.tps + rate.half > whole for rate in found)


def test_nothing_is_said_of_too_little() -> None:
    few = [line for line in lines(50.0) if line.done < 2]
    assert looks(iter(few)) == []
    assert looks(iter(list(lines(50.0))[-3:])) == []


def test_a_level_by_time_is_looked_at_by_its_time() -> None:
    underway = Underway(C, total=None, duration_s=30.0)
    found = [rate for line in lines(50.0) if (rate := underway.add(line)) is not None]
    assert 0 < len(found) <= LOOKS

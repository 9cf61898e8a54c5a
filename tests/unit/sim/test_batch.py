"""The lock-step batch in simulated time: no clock runs here, so the story's whole table costs nothing."""

from __future__ import annotations

import heapq

import pytest

from tokpit.sim import args, story
from tokpit.sim.batch import Batch, PrefillTick, Request, Tick
from tokpit.sim.plan import make_plan, total_gib


def batch_of(*flags: str) -> Batch:
    parsed = args.parse(["--model-path", "m", *story.FLAGS, *flags], "launch_server.py")
    return Batch(make_plan(parsed, total_gib()))


def request(name: str, arrival: float = 0.0, *, max_new: int = 1024, prompt: int = 40) -> Request:
    return Request(rid=name, prompt_tokens=prompt, max_new=max_new, arrival=arrival)


def sweep(batch: Batch, concurrency: int, count: int) -> float:
    """Closed loop: a client sends its next request when one ends; the simulated seconds until all have ended."""
    over: list[tuple[float, int]] = []
    batch.on_finish = lambda r: heapq.heappush(over, (r.finished or 0.0, int(r.rid)))
    sent = 0
    now = 0.0
    for sent in range(min(concurrency, count)):
        batch.submit(request(str(sent), now), now)
    sent += 1
    done = 0
    while done < count:
        due = batch.next_delivery()
        assert due is not None
        now = due
        batch.advance(now)
        while over:
            heapq.heappop(over)
            done += 1
            if sent < count:
                batch.submit(request(str(sent), now), now)
                sent += 1
    return now


@pytest.mark.parametrize(("concurrency", "count", "elapsed_s", "tps"), story.TABLE)
def test_closed_loop_gives_the_measured_table(concurrency: int, count: int, elapsed_s: float, tps: float) -> None:
    took = sweep(batch_of(), concurrency, count)

    assert took == pytest.approx(elapsed_s, rel=0.05)
    assert count * story.OUTPUT_TOKENS / took == pytest.approx(tps, rel=0.05)


def test_raised_slots_lift_the_plateau_that_the_cap_set() -> None:
    capped = sweep(batch_of(), 16, 32)
    wider = sweep(batch_of("--max-mamba-cache-size", "80"), 16, 32)

    assert wider < 0.75 * capped


def test_1024_tokens_take_320_verify_steps_whatever_the_phase() -> None:
    for phase in (0.0, 0.37, 0.98):
        batch = batch_of()
        one = request("a")
        one.phase = phase
        batch.submit(one, 0.0)
        batch.advance(1e6)
        assert (one.steps, one.done) == (320, 1024)


def test_ninth_runs_and_tenth_waits_in_order() -> None:
    batch = batch_of()
    all_of_them = [request(f"{i}", 0.0) for i in range(12)]
    for one in all_of_them:
        batch.submit(one, 0.0)
    batch.advance(5.0)

    assert len(batch.running) == story.RUNNING_CAP
    assert [r.rid for r in batch.waiting] == ["9", "10", "11"]


def test_aborted_request_frees_its_place_for_the_first_that_waits() -> None:
    batch = batch_of()
    rows = [request(f"{i}") for i in range(10)]
    for one in rows:
        batch.submit(one, 0.0)
    batch.advance(3.0)
    batch.abort(rows[4], 3.0)
    batch.advance(4.0)

    assert rows[9] in batch.running
    assert rows[4].finished is None


def test_decode_line_comes_every_forty_steps_and_tells_the_rate() -> None:
    batch = batch_of()
    ticks: list[Tick] = []
    batch.on_decode = ticks.append
    batch.submit(request("a"), 0.0)
    batch.advance(1e6)

    assert len(ticks) == 320 // 40
    assert ticks[3].accept_len == pytest.approx(3.2, abs=0.05)
    assert ticks[3].tps == pytest.approx(3.2 / 0.052, rel=0.02)


def test_prefill_line_counts_cached_tokens_apart() -> None:
    batch = batch_of()
    seen: list[PrefillTick] = []
    batch.on_prefill = seen.append
    one = request("a", prompt=500)
    one.cached_tokens = 448
    batch.submit(one, 0.0)

    assert (seen[0].new_tokens, seen[0].cached_tokens) == (52, 448)


def test_figures_do_not_depend_on_how_often_the_caller_wakes() -> None:
    ends = []
    for pause in (0.001, 0.5, 1000.0):
        batch = batch_of()
        one = request("a", max_new=200)
        batch.submit(one, 0.0)
        now = 0.0
        while one.finished is None:
            now += pause
            batch.advance(now)
        ends.append(one.finished)

    assert ends[0] == ends[1] == ends[2]


def test_prompt_longer_than_the_pool_lets_nothing_else_in_beside_it() -> None:
    batch = batch_of()
    big = request("big", prompt=batch.plan.kv_tokens - 2000)
    small = request("small", prompt=3000)
    batch.submit(big, 0.0)
    batch.submit(small, 0.0)
    batch.advance(40.0)

    assert batch.running == [big]
    assert list(batch.waiting) == [small]

"""A level divided among processes: nothing is lost, doubled or averaged."""

from __future__ import annotations

import asyncio
import random
from array import array
from dataclasses import replace

import pytest

from tokpit.load.clock import Clock
from tokpit.load.level import LevelRun
from tokpit.load.plan import Plan
from tokpit.load.prompts import PromptSource
from tokpit.load.records import HEAD, Part, frame, merge, pack, unpack
from tokpit.load.share import Share, processes_for, shares, split
from tokpit.load.stream import Exchange
from tokpit.load.summary import summarize

PLAN = Plan(url="http://h", model="m", max_tokens=20, processes=4)


@pytest.mark.parametrize(("total", "weights"), [(10, [3, 3, 2, 2]), (7, [1, 1, 1]), (2, [1, 1, 1, 1]), (0, [1, 2])])
def test_parts_add_up_to_the_whole(total: int, weights: list[int]) -> None:
    parts = split(total, weights)
    assert sum(parts) == total
    assert all(abs(part - total * weight / sum(weights)) < 1 for part, weight in zip(parts, weights, strict=True))


@pytest.mark.parametrize(("concurrency", "total"), [(64, 128), (10, 20), (7, 8), (3, 50), (5, 2), (1, 8)])
def test_slots_requests_and_prompts_of_a_closed_loop_are_divided_without_rest(concurrency: int, total: int) -> None:
    parts = shares(PLAN, 4, concurrency, total)
    assert sum(part.requests or 0 for part in parts) == total
    assert sum(min(part.concurrency or 0, part.requests or 0) for part in parts) == min(concurrency, total)
    prompts = [part.first + i * part.step for part in parts for i in range(part.requests or 0)]
    assert sorted(prompts) == list(range(total))


def test_a_level_by_time_gives_no_prompt_twice() -> None:
    parts = shares(PLAN, 3, 8, None)
    assert [part.concurrency for part in parts] == [3, 3, 2]
    assert [part.requests for part in parts] == [None] * 3
    prompts = [part.first + i * part.step for part in parts for i in range(50)]
    assert len(set(prompts)) == 150


@pytest.mark.parametrize("total", [1, 3, 100])
def test_the_arrivals_of_an_open_loop_are_dealt_out_in_turn(total: int) -> None:
    parts = shares(PLAN, 4, None, total)
    assert sum(part.requests or 0 for part in parts) == total
    assert [part.first for part in parts] == list(range(min(4, total)))
    assert {part.step for part in parts} == {4}


def test_the_limit_of_open_requests_is_divided_too() -> None:
    assert sum(part.max_in_flight for part in shares(replace(PLAN, max_in_flight=10), 4, None, 40)) == 10


@pytest.mark.parametrize(
    ("asked", "concurrency", "chunks_per_s", "cores", "expected"),
    [(0, 8, 0.0, 16, 1), (0, 512, 0.0, 16, 4), (0, 64, 40_000.0, 16, 5), (0, 4096, 0.0, 4, 2), (0, 512, 0.0, 2, 1),
     (0, None, 20_000.0, 16, 3), (6, 1024, 0.0, 2, 6)],
)  # fmt: skip
def test_more_processes_only_past_what_one_core_can_time(
    asked: int, concurrency: int | None, chunks_per_s: float, cores: int, expected: int
) -> None:
    assert processes_for(replace(PLAN, processes=asked), concurrency, chunks_per_s, cores) == expected


def exchange(index: int, draw: random.Random) -> Exchange:
    x = Exchange(index)
    x.t_start = 1_000_000_000 + index * 7_000_001
    x.t_sent = x.t_start + 100_000
    at = x.t_sent + draw.randrange(10**7, 10**8)
    x.t_first = x.t_answer = at
    for count in range(1, 21):
        x.stamps.append(at)
        x.cum_tokens.append(count)
        at += draw.randrange(10**6, 10**7)
    x.t_end = x.t_last_rx = at
    x.completion_tokens, x.prompt_tokens, x.finish, x.done, x.outcome = 20, 9, "length", True, "ok"
    x.reads = x.kernel_reads = 21
    if draw.randrange(2):
        x.blur.append(draw.randrange(10**7))
    x.events, x.status = 23, 200
    if index % 17 == 5:
        x.outcome, x.detail, x.completion_tokens = "reset", "the connection was reset – after ‘20’ chunks", None
        x.cum_tokens = array("q")
    return x


def measured(exchanges: list[Exchange], lag: list[float], cpu_s: float) -> LevelRun:
    plan = replace(PLAN, requests=len(exchanges))
    source = PromptSource(plan, "m", "nonce")
    run = LevelRun(plan, source, None, Clock(), level=0, stop=asyncio.Event(), concurrency=8)  # type: ignore[arg-type]
    run.exchanges, run.cpu_s, run.lag_s = exchanges, cpu_s, array("d", lag)
    run.t_begin, run.t_end = 1_000_000_000, max(x.t_end for x in exchanges) + 5
    run.prepare()
    return run


@pytest.mark.parametrize("processes", [1, 2, 5])
async def test_figures_of_merged_parts_are_those_of_one_process_on_the_same_requests(processes: int) -> None:
    draw = random.Random(11)
    whole = [exchange(index, draw) for index in range(120)]
    lag = [draw.random() / 100 for _ in range(50)]
    one = measured(whole, lag, 4.0)
    expected = summarize(one)

    parts = []
    for number in range(processes):
        own = whole[number::processes]
        part = Part(
            own, 1_000_000_000, max(x.t_end for x in own) + 5, 4.0 / processes, array("d", lag[number::processes])
        )
        parts.append(unpack(*pack(part)))
    for part in parts:
        for place, x in enumerate(part.exchanges):
            x.index = place  # each process counts its own
    merged = merge(list(reversed(parts)))
    again = measured(merged.exchanges, list(merged.lag_s), merged.cpu_s)
    again.t_begin, again.t_end = merged.t_begin, merged.t_end
    assert summarize(again) == expected
    assert merged.busiest_s == pytest.approx(4.0 / processes)


def test_the_same_prompt_in_two_processes_counts_as_one() -> None:
    parts = [Part(prompts=array("Q", [1, 2**63]), built=2), Part(prompts=array("Q", [2**63, 5]), built=2)]
    merged = merge([unpack(*pack(part)) for part in parts])
    assert (list(merged.prompts), merged.built) == ([1, 5, 2**63], 4)


def test_records_that_were_cut_are_refused() -> None:
    data, raw = pack(Part([exchange(0, random.Random(1))]))
    with pytest.raises(ValueError, match="cut"):
        unpack(data, raw[:-8])


def test_a_frame_tells_its_own_length() -> None:
    data = frame({"a": "ü"}, b"12345")
    text, raw = HEAD.unpack(data[: HEAD.size])
    assert len(data) == HEAD.size + text + raw
    assert data.endswith(b"12345")


def test_a_share_is_a_plan_of_its_own() -> None:
    plan = Share(concurrency=3, requests=6, max_in_flight=7).plan(PLAN)
    assert (plan.levels, plan.requests, plan.max_in_flight, plan.processes) == ((3,), 6, 7, 1)

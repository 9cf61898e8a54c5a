"""Whole sweeps against a real server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from load_server import DONE, END, HOLD, Head, Raw, ScriptServer, Sleep, Step, answer, finish, role, token, usage
from tokpit.load import events
from tokpit.load.events import Event, LevelFinished, LevelStarted, Progress, RequestFinished, SweepFinished, Warmup
from tokpit.load.plan import Plan, Slo, Timeouts
from tokpit.load.results import LevelResult, SweepResult
from tokpit.load.run import run_sweep


def plan(url: str, **changes: Any) -> Plan:
    settings: dict[str, Any] = {"url": url, "levels": (1, 3), "requests": 6, "max_tokens": 4, **changes}
    return Plan(**settings)


async def sweep(asked: Plan, **more: Any) -> tuple[SweepResult, list[Event]]:
    told: list[Event] = []
    result = await run_sweep(asked, on_event=told.append, **more)
    return result, told


def check(level: LevelResult, code: str) -> bool | None:
    return next(item.ok for item in level.checks if item.code == code)


async def test_a_sweep_tells_every_level_and_counts_by_usage() -> None:
    async with ScriptServer(lambda body, index: answer(12, per_chunk=3, gap_s=0.005)) as server:
        result, told = await sweep(plan(server.url, max_tokens=12))
        assert len(server.bodies) == 1 + 6 + 6
        assert server.peak == 3
    assert (result.status, result.reason, result.model) == ("done", "", "the-model")
    assert [level.concurrency for level in result.levels] == [1, 3]
    for level in result.levels:
        assert (level.ok, level.err, level.output_tokens, level.avg_output) == (6, 0, 72, 12)
        assert (level.tokens_per_chunk, level.token_source) == (3, "usage")
        assert level.output_tps == pytest.approx(72 / level.elapsed_s)
        assert level.prompt_tokens == 6 * 12
    kinds = [type(event) for event in told if not isinstance(event, (Progress, RequestFinished))]
    assert kinds == [Warmup, LevelStarted, LevelFinished, LevelStarted, LevelFinished, SweepFinished]


async def test_every_event_survives_a_pipe() -> None:
    def script(body: Any, index: int) -> list[Step]:
        return [Head(503, ("Content-Length: 0",))] if index == 3 else answer(4)

    async with ScriptServer(script) as server:
        result, told = await sweep(plan(server.url, slo=Slo(ttft_s=5)))
    for event in told:
        assert events.from_dict(json.loads(json.dumps(events.to_dict(event)))) == event
    assert SweepResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


async def test_a_level_is_stored_before_the_next_one_begins() -> None:
    order: list[str] = []

    async def store(level: LevelResult) -> None:
        order.append(f"storing {level.label}")
        await asyncio.sleep(0.02)
        order.append(f"stored {level.label}")

    def told(event: Event) -> None:
        if isinstance(event, LevelStarted):
            order.append(f"began {event.label}")

    async with ScriptServer(lambda body, index: answer(4)) as server:
        await run_sweep(plan(server.url), on_event=told, on_level=store)
    assert order == ["began C=1", "storing C=1", "stored C=1", "began C=3", "storing C=3", "stored C=3"]


def test_other_lines_are_no_events() -> None:
    for data in ({}, {"event": "x"}, {"event": "progress"}, {"event": ["progress"]}, {"event": "level_finished"}):
        with pytest.raises(ValueError, match="event"):
            events.from_dict(data)


async def test_no_more_are_in_flight_than_the_level_says_beyond_a_hundred() -> None:
    """aiohttp's default of 100 connections would cap a level without a word."""
    gate = asyncio.Event()

    class Gated(ScriptServer):
        async def _answer(self, writer: asyncio.StreamWriter, steps: list[Step]) -> bool:
            if self.running >= 150:
                gate.set()
            await gate.wait()
            return await super()._answer(writer, steps)

    async with Gated(lambda body, index: answer(1)) as server:
        result, _ = await sweep(plan(server.url, levels=(150,), requests=150, warmup=0, max_tokens=1, model="m"))
        assert server.peak == 150
    assert result.levels[0].ok == 150
    assert result.levels[0].peak_in_flight == 150


async def test_a_stop_cancels_what_runs_and_keeps_what_was_measured() -> None:
    stop = asyncio.Event()

    def script(body: Any, index: int) -> list[Step]:
        return answer(4) if index < 4 else [role(), token(), HOLD]

    def on_event(event: Event) -> None:
        if isinstance(event, Progress) and event.running == 2 and event.done == 4:
            stop.set()

    async with ScriptServer(script) as server:
        result = await run_sweep(
            plan(server.url, levels=(2, 4), warmup=0, requests=9, model="m"), on_event=on_event, stop=stop
        )
    assert result.status == "stopped"
    assert len(result.levels) == 1
    level = result.levels[0]
    assert (level.ok, level.err, level.cancelled, level.output_tokens) == (4, 0, 2, 16)
    assert level.partial
    assert level.outcomes["cancelled"].count == 2


async def test_a_cancelled_sweep_leaves_no_task_behind() -> None:
    async with ScriptServer(lambda body, index: [role(), token(), HOLD]) as server:
        task = asyncio.ensure_future(run_sweep(plan(server.url, warmup=0, model="m")))
        while not server.running:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    mine = asyncio.current_task()
    left = [one for one in asyncio.all_tasks() if one is not mine and "tokpit" in repr(one.get_coro())]
    assert left == []


async def test_a_server_that_is_not_there_ends_the_sweep_before_its_first_level() -> None:
    async with ScriptServer(lambda body, index: answer(1)) as server:
        url = server.url
    result, _ = await sweep(plan(url, model="m"))
    assert (result.status, result.levels) == ("failed", ())
    assert "refused" in result.reason
    result, _ = await sweep(plan(url))
    assert (result.status, result.levels) == ("failed", ())
    assert "does not answer" in result.reason


async def test_a_server_that_dies_in_a_sweep_ends_it_with_the_levels_before() -> None:
    holder: list[ScriptServer] = []
    closing: list[asyncio.Task[None]] = []

    def script(body: Any, index: int) -> list[Step]:
        if index == 12:
            closing.append(asyncio.ensure_future(holder[0].close()))
        return answer(4)

    async with ScriptServer(script) as server:
        holder.append(server)
        result, _ = await sweep(plan(server.url, levels=(1, 2, 4), requests=10, warmup=0))
    assert result.status == "failed"
    assert "does not answer" in result.reason
    assert result.levels[0].ok == 10
    assert len(result.levels) == 2
    assert result.levels[1].partial
    assert 0 < result.levels[1].ok < 10


async def test_a_refused_key_stops_at_the_warmup() -> None:
    head = Head(401, ("Content-Length: 28",))
    async with ScriptServer(lambda body, index: [head, Raw(b'{"error":{"message":"a key"}}'[:28])]) as server:
        result, told = await sweep(plan(server.url))
    assert (result.status, result.levels) == ("failed", ())
    assert "401" in result.reason
    assert isinstance(told[0], Warmup)


async def test_the_first_error_stops_where_asked() -> None:
    def script(body: Any, index: int) -> list[Step]:
        return [Head(500, ("Content-Length: 0",))] if index == 4 else answer(4)

    async with ScriptServer(script) as server:
        result, _ = await sweep(plan(server.url, warmup=0, stop_on_error=True))
    assert result.status == "stopped"
    assert result.levels[0].err == 1
    assert len(result.levels) == 1


async def test_a_rejecting_server_is_not_flattered() -> None:
    def script(body: Any, index: int) -> list[Step]:
        return answer(4) if index % 4 == 0 else [Head(503, ("Content-Length: 0",))]

    async with ScriptServer(script) as server:
        result, _ = await sweep(plan(server.url, levels=(8,), requests=32, warmup=0))
    level = result.levels[0]
    assert (level.ok, level.err, level.outcomes["5xx"].count) == (8, 24, 24)
    assert check(level, "REJECTED") is False
    assert {"output_tps", "ttft_s"} <= level.distrust


async def test_a_server_without_usage_is_estimated_and_labelled() -> None:
    steps = [role(), token(), token(), finish(), DONE, END]
    async with ScriptServer(lambda body, index: steps) as server:
        result, _ = await sweep(plan(server.url, levels=(1,)))
    level = result.levels[0]
    assert (level.ok, level.output_tokens, level.token_source) == (6, 12, "chunks")
    assert check(level, "NO_USAGE") is False


async def test_an_answer_without_usage_among_others_is_incomplete() -> None:
    def script(body: Any, index: int) -> list[Step]:
        return [role(), token(), finish(), DONE, END] if index == 2 else answer(4)

    async with ScriptServer(script) as server:
        result, _ = await sweep(plan(server.url, levels=(1,), warmup=0))
    level = result.levels[0]
    assert (level.ok, level.outcomes["truncated"].count) == (5, 1)


async def test_answers_without_a_single_token_are_no_zero_speed() -> None:
    async with ScriptServer(lambda body, index: [role(), finish(), DONE, END]) as server:
        result, _ = await sweep(plan(server.url, levels=(1,)))
    level = result.levels[0]
    assert (level.ok, level.output_tps, level.steady_tps, level.avg_output) == (0, None, None, None)
    assert check(level, "ZERO_TOKENS_SUSPECT") is False


async def test_goodput_counts_what_keeps_every_limit() -> None:
    def script(body: Any, index: int) -> list[Step]:
        slow = [role(), Sleep(0.4), token(), token(), finish(), usage(2), DONE, END]
        return slow if index % 2 else answer(2)

    async with ScriptServer(script) as server:
        result, _ = await sweep(plan(server.url, levels=(2,), warmup=0, max_tokens=2, slo=Slo(ttft_s=0.3)))
    level = result.levels[0]
    assert level.goodput_share == 0.5
    assert level.goodput_rps == pytest.approx(3 / level.elapsed_s)


async def test_figures_are_on_the_clock_of_a_simulated_host() -> None:
    async with ScriptServer(lambda body, index: answer(3, gap_s=0.02)) as server:
        asked = plan(server.url, levels=(2,), warmup=0, max_tokens=3, clock_factor=50.0)
        result, _ = await sweep(asked)
    level = result.levels[0]
    assert level.ttft_s is not None
    assert level.e2e_s is not None
    assert level.ttft_s.min >= 1.0  # 20 ms here are 1 s there
    assert level.e2e_s.min >= 3.0
    assert level.output_tps == pytest.approx(18 / level.elapsed_s)
    assert level.elapsed_s >= 9


async def test_a_level_by_time_starts_nothing_after_it_and_finishes_what_runs() -> None:
    async with ScriptServer(lambda body, index: answer(4, gap_s=0.005)) as server:
        result, _ = await sweep(plan(server.url, levels=(2,), requests=None, duration_s=0.4, warmup=0))
    level = result.levels[0]
    assert level.cancelled == 0
    assert level.partial == ""
    assert level.ok == level.requests > 2
    assert max(row[0] for row in level.rows) < 0.4


@pytest.mark.parametrize("arrival", ["constant", "poisson"])
async def test_an_open_loop_sends_on_its_schedule_whatever_the_server_does(arrival: str) -> None:
    async with ScriptServer(lambda body, index: [Sleep(0.3), *answer(2)]) as server:
        result, _ = await sweep(
            plan(server.url, rates=(60.0,), arrival=arrival, requests=24, warmup=0, max_tokens=2, model="m")
        )
        assert server.peak > 6  # a closed loop would wait
    level = result.levels[0]
    assert (level.ok, level.rate, level.concurrency) == (24, 60.0, None)
    assert level.send_delay_s is not None
    assert level.send_delay_s.min >= 0
    if arrival == "constant":
        sent = [row[0] for row in level.rows]
        assert all(at >= number / 60 - 1e-3 for number, at in enumerate(sent))


async def test_arrivals_over_the_limit_wait_and_are_told() -> None:
    async with ScriptServer(lambda body, index: [Sleep(0.05), *answer(2)]) as server:
        asked = plan(server.url, rates=(500.0,), requests=12, max_in_flight=2, warmup=0, max_tokens=2, model="m")
        result, _ = await sweep(asked)
        assert server.peak <= 2
    assert result.levels[0].held_back > 0
    assert check(result.levels[0], "LATE_SENDS") is False


async def test_turns_of_a_conversation_carry_the_answers_before() -> None:
    async with ScriptServer(lambda body, index: answer(2)) as server:
        result, _ = await sweep(plan(server.url, levels=(1,), requests=3, turns=3, warmup=0, max_tokens=2))
        sizes = [len(body["messages"]) for body in server.bodies]
    assert sizes == [1, 3, 5]
    assert server.bodies[1]["messages"][1] == {"role": "assistant", "content": " t t"}
    assert result.levels[0].ok == 3


async def test_a_given_session_is_used_and_closed() -> None:
    made: list[aiohttp.ClientSession] = []

    async def factory() -> aiohttp.ClientSession:
        made.append(aiohttp.ClientSession(headers={"X-Mine": "1"}))
        return made[0]

    async with ScriptServer(lambda body, index: answer(2)) as server:
        result, _ = await sweep(plan(server.url, levels=(1,), max_tokens=2), session_factory=factory)
    assert made[0].closed
    assert result.levels[0].ok == 6
    assert result.levels[0].kernel_share == 0
    assert result.client["session"] == "given"


async def test_a_model_list_without_models_is_a_sentence() -> None:
    async with ScriptServer(lambda body, index: answer(2), models=[]) as server:
        result, _ = await sweep(plan(server.url))
    assert result.status == "failed"
    assert "names no model" in result.reason


async def test_long_waits_do_not_count_as_errors_of_the_server() -> None:
    limits = Timeouts(connect_s=2, first_s=0.2, between_s=1)
    async with ScriptServer(lambda body, index: [HOLD]) as server:
        result, _ = await sweep(plan(server.url, levels=(2,), requests=2, warmup=0, timeouts=limits, model="m"))
    level = result.levels[0]
    assert level.outcomes["timeout.first"].count == 2
    assert check(level, "CLIENT_TIMEOUT") is False


async def test_a_failing_listener_ends_the_sweep_instead_of_hanging_it() -> None:
    def broken(event: Event) -> None:
        if isinstance(event, Progress):
            raise RuntimeError("listener")

    async with ScriptServer(lambda body, index: [role(), token(), HOLD]) as server:
        with pytest.raises(RuntimeError, match="listener"):
            await run_sweep(plan(server.url, warmup=0, model="m"), on_event=broken)


async def test_staggered_starts_keep_their_distance() -> None:
    async with ScriptServer(lambda body, index: [role(), Sleep(0.2), *answer(2)[1:]]) as server:
        result, _ = await sweep(plan(server.url, levels=(6,), requests=6, warmup=0, stagger_s=0.03))
    sent = sorted(float(row[0] or 0) for row in result.levels[0].rows)
    assert all(at >= 0.03 * place - 0.001 for place, at in enumerate(sent))
    assert result.levels[0].ok == 6


def test_staggered_slots_of_several_processes_take_turns() -> None:
    from tokpit.load.share import shares

    two = shares(Plan(url="http://h", levels=(5,), stagger_s=0.001), 2, 5, 10)
    dues = [place * share.of + share.number for share in two for place in range(share.concurrency or 0)]
    assert sorted(dues) == [0, 1, 2, 3, 4]


async def test_every_kind_of_dataset_reaches_the_server_as_it_says(tmp_path: Any) -> None:
    """JSONL of prompts, of messages and of conversations, random prompts of a length, and a shared front."""
    path = tmp_path / "rows.jsonl"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a mutex?"}]
    path.write_text(
        "\n".join(json.dumps(row) for row in ({"prompt": "one"}, {"messages": messages}, {"turns": ["two", "three"]}))
    )

    async def asked(**changes: Any) -> list[Any]:
        async with ScriptServer(lambda body, index: answer(2)) as server:
            base = plan(server.url, levels=(1,), warmup=0, max_tokens=2, **changes)
            made = base.with_file(path) if changes.get("turns") else base
            result, _ = await sweep(made)
            assert (result.levels[0].err, result.levels[0].ok) == (0, len(server.bodies))
            return [body.get("messages") or body["prompt"] for body in server.bodies]

    rows = await asked(requests=4, turns=2)
    assert [[message["role"] for message in sent] for sent in rows] == [
        ["user"], ["system", "user"], ["user"], ["user", "assistant", "user"],
    ]  # fmt: skip
    assert [sent[-1]["content"].split(" ")[-1] for sent in rows] == ["one", "mutex?", "two", "three"]

    words = [sent[0]["content"].split(" ") for sent in await asked(requests=3, prompts="random", input_tokens=64)]
    assert [len(one) for one in words] == [65, 65, 65]  # and the mark in front
    assert len({one[1] + one[2] + one[3] for one in words}) == 3

    shared = await asked(requests=3, prompts="random", input_tokens=64, prefix_share=0.75, api="completions")
    assert [len(ids) for ids in shared] == [64, 64, 64]
    assert len({tuple(ids[:48]) for ids in shared}) == 1
    assert len({tuple(ids[48:]) for ids in shared}) == 3

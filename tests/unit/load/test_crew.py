"""Real processes that make one level's load together, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from load_server import HOLD, ScriptServer, answer, role, token
from process_tools import alive
from tokpit.load import events, zipapp
from tokpit.load.crew import Crew
from tokpit.load.plan import Plan
from tokpit.load.run import run_sweep

SRC = Path(__file__).parents[3] / "src"


def held(body: object, index: int) -> list[object]:
    return [role(), token(), HOLD]


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.01)


async def test_a_divided_level_sends_exactly_what_was_asked() -> None:
    told: list[events.Event] = []
    async with ScriptServer(lambda body, index: answer(6, gap_s=0.01)) as server:
        plan = Plan(url=server.url, levels=(7,), requests=23, max_tokens=6, processes=3, warmup=0)
        result = await run_sweep(plan, on_event=told.append)
        peak, bodies = server.peak, server.bodies
    level = result.levels[0]
    assert (level.requests, level.ok, level.err, level.output_tokens) == (23, 23, 0, 138)
    assert (level.processes, level.partial, result.status) == (3, "", "done")
    assert peak == 7
    assert len({json.dumps(body["messages"]) for body in bodies}) == 23
    assert level.unique_prompt_share == 1.0
    assert level.ttft_s is not None
    assert level.icl_s is not None
    assert (level.ttft_s.n, level.icl_s.n) == (23, 23 * 5)
    assert level.peak_in_flight <= 7
    progress = [event for event in told if isinstance(event, events.Progress)]
    assert (progress[-1].done, progress[-1].ok, progress[-1].running) == (23, 23, 0)
    assert any(isinstance(event, events.RequestFinished) for event in told)


async def test_the_arrivals_of_a_divided_open_loop_are_those_of_one_process() -> None:
    sent = []
    for processes in (1, 3):
        async with ScriptServer(lambda body, index: answer(2)) as server:
            plan = Plan(
                url=server.url, rates=(100.0,), requests=20, max_tokens=2, processes=processes, warmup=0, seed=4
            )
            level = (await run_sweep(plan)).levels[0]
        assert (level.ok, level.processes) == (20, processes)
        sent.append(level)
    late_s = sum(level.send_delay_s.max for level in sent if level.send_delay_s is not None)
    assert all(level.send_delay_s is not None for level in sent)
    gaps = [[b[0] - a[0] for a, b in zip(level.rows, level.rows[1:], strict=False)] for level in sent]
    assert sum(gaps[0]) == pytest.approx(sum(gaps[1]), abs=0.01 + late_s)


async def test_a_killed_process_takes_its_share_out_of_the_level_and_that_is_said() -> None:
    crew = Crew()
    async with ScriptServer(lambda body, index: answer(30, gap_s=0.02)) as server:
        plan = Plan(url=server.url, model="m", levels=(6, 3), requests=12, max_tokens=30, processes=3, warmup=0)
        sweep = asyncio.ensure_future(run_sweep(plan, crew=crew))
        await until(lambda: server.running == 6)
        os.kill(crew.workers[1].pid, signal.SIGKILL)
        result = await sweep
    level = result.levels[0]
    assert (level.ok, level.requests) == (8, 8)
    assert level.partial == "worker 2 of 3 was ended by signal 9: 2 of the 6 slots are missing from the figures"
    assert (result.status, result.reason) == ("stopped", level.partial)
    assert len(result.levels) == 1
    await crew.close()


async def test_a_stop_ends_every_process_with_what_was_measured() -> None:
    crew, stop = Crew(), asyncio.Event()
    async with ScriptServer(held) as server:
        plan = Plan(url=server.url, model="m", levels=(4, 8), max_tokens=5, processes=2, warmup=0)
        sweep = asyncio.ensure_future(run_sweep(plan, stop=stop, crew=crew))
        await until(lambda: server.running == 4)
        pids = [worker.pid for worker in crew.workers]
        stop.set()
        result = await sweep
        assert (result.status, result.levels[0].cancelled, result.levels[0].partial) == ("stopped", 4, "stopped")
        assert all(alive(pid) for pid in pids)  # kept for the next level
        await crew.close()
    assert not any(alive(pid) for pid in pids)


async def test_the_first_error_in_one_process_stops_the_others() -> None:
    script = lambda body, index: [role(), token(), HOLD] if index else answer(3)[:-3]  # noqa: E731
    async with ScriptServer(script) as server:
        plan = Plan(
            url=server.url, model="m", levels=(4,), max_tokens=3, processes=2, warmup=0, stop_on_error=True,
            timeouts={"between_s": 0.3},  # type: ignore[arg-type]
        )  # fmt: skip
        plan = Plan.from_dict(plan.to_dict())
        result = await run_sweep(plan)
    level = result.levels[0]
    assert level.partial.startswith("stopped at the first error")
    assert level.err >= 1
    assert level.requests == 4


async def test_a_cancelled_sweep_leaves_no_process() -> None:
    crew = Crew()
    async with ScriptServer(held) as server:
        plan = Plan(url=server.url, model="m", levels=(4,), processes=2, warmup=0)
        sweep = asyncio.ensure_future(run_sweep(plan, crew=crew))
        await until(lambda: server.running == 4)
        pids = [worker.pid for worker in crew.workers]
        sweep.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sweep
        await crew.close()
    assert not any(alive(pid) for pid in pids)


PARENT = """\
import asyncio, signal, sys
from tokpit.load.crew import Crew
from tokpit.load.plan import Plan
from tokpit.load.run import run_sweep

async def main():
    crew, stop = Crew(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    plan = Plan(url=sys.argv[1], model="m", levels=(4,), processes=2, warmup=0)
    sweep = asyncio.ensure_future(run_sweep(plan, stop=stop, crew=crew))
    while len(crew.workers) < 2:
        await asyncio.sleep(0.01)
    print(*(worker.pid for worker in crew.workers), flush=True)
    result = await sweep
    await crew.close()
    print(result.status, result.levels[0].cancelled, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
async def test_no_process_outlives_an_interrupted_or_killed_parent(how: signal.Signals) -> None:
    async with ScriptServer(held) as server:
        parent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PARENT, server.url),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SRC)},
            start_new_session=True,
        )
        assert parent.stdout is not None
        pids = [int(pid) for pid in (await parent.stdout.readline()).split()]
        await until(lambda: server.running == 4)
        os.killpg(parent.pid, how)  # what a terminal does at Ctrl-C: the whole foreground group hears it
        rest = await parent.stdout.read()
        assert await parent.wait() == (0 if how == signal.SIGINT else -9)
        await until(lambda: not any(alive(pid) for pid in pids))
    assert rest == (b"stopped 4\n" if how == signal.SIGINT else b"")
    assert len(pids) == 2


async def test_the_one_file_generator_divides_its_load_too(tmp_path: Path) -> None:
    packed = zipapp.write(tmp_path / "load.pyz")
    async with ScriptServer(lambda body, index: answer(4)) as server:
        plan = Plan(url=server.url, model="m", levels=(4,), requests=10, max_tokens=4, processes=2, warmup=0)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, packed.name, plan.to_json()),
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        assert process.stdout is not None
        told = [json.loads(line) async for line in process.stdout]
        assert await process.wait() == 0
        assert process.stdin is not None
        process.stdin.close()
    level = told[-1]["result"]["levels"][0]
    assert (level["ok"], level["processes"], level["output_tokens"]) == (10, 2, 40)


async def test_a_process_that_cannot_start_is_told_as_the_sweeps_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokpit.load.pipes.sys.executable", "/nowhere/python")
    async with ScriptServer(lambda body, index: answer(2)) as server:
        result = await run_sweep(Plan(url=server.url, model="m", levels=(4,), processes=2, warmup=0))
    assert result.status == "failed"
    assert "cannot be started" in result.reason

"""The generator in a process of its own, as the console uses it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from load_server import HOLD, ScriptServer, answer, role, token
from process_tools import alive
from tokpit.load import events
from tokpit.load.plan import Plan
from tokpit.load.process import Generator, ProcessEnded, run_sweep
from tokpit.load.results import LevelResult


async def test_it_tells_and_returns_what_the_generator_in_this_process_does() -> None:
    told: list[events.Event] = []
    async with ScriptServer(lambda body, index: answer(4)) as server:
        plan = Plan(url=server.url, levels=(1, 2), requests=4, max_tokens=4, headers={"X-Team": "search"})
        result = await run_sweep(plan, on_event=told.append)
    kinds = [type(event).__name__ for event in told]
    assert kinds[0] == "Warmup"
    assert [kind for kind in kinds if kind.startswith("Level")] == ["LevelStarted", "LevelFinished"] * 2
    assert told[-1] == events.SweepFinished(result)
    assert [level.ok for level in result.levels] == [4, 4]
    assert result.plan["headers"] == {"X-Team": "***"}


async def test_the_next_level_waits_until_the_last_one_is_stored() -> None:
    stored: list[int] = []
    async with ScriptServer(lambda body, index: answer(2)) as server:

        async def store(level: LevelResult) -> None:
            seen = len(server.bodies)
            await asyncio.sleep(0.3)
            assert len(server.bodies) == seen
            stored.append(seen)

        plan = Plan(url=server.url, model="m", levels=(1, 2), requests=3, max_tokens=2, warmup=0)
        await run_sweep(plan, on_level=store)
    assert stored == [3, 6]


async def test_a_stop_keeps_the_level_and_the_next_plan_runs_again() -> None:
    hold = True
    script = ScriptServer(lambda body, index: [role(), token(), HOLD] if hold else answer(2))
    async with script as server, Generator() as generator:
        stop = asyncio.Event()
        plan = Plan(url=server.url, model="m", levels=(2,), requests=2, max_tokens=2, warmup=0)
        first = asyncio.ensure_future(generator.run(plan, stop=stop))
        while server.running < 2:
            await asyncio.sleep(0.01)
        stop.set()
        assert ((await first).status, (await first).levels[0].cancelled) == ("stopped", 2)
        hold = False
        again = await generator.run(plan, stop=asyncio.Event())
        assert (again.status, again.levels[0].ok) == ("done", 2)
        pid = generator.pid
    assert pid is not None
    assert not alive(pid)


@pytest.mark.parametrize("how", ["kill", "cancel"])
async def test_a_killed_process_is_told_and_a_cancelled_run_ends_it(how: str) -> None:
    async with ScriptServer(lambda body, index: [role(), token(), HOLD]) as server:
        generator = Generator()
        run = asyncio.ensure_future(generator.run(Plan(url=server.url, model="m", levels=(2,), warmup=0)))
        while server.running < 2:
            await asyncio.sleep(0.01)
        assert generator.pid is not None
        pid = generator.pid
        if how == "kill":
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(ProcessEnded, match="status -9"):
                await run
        else:
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
        assert not alive(pid)

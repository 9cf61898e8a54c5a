"""The one-file generator, run the way a GPU host runs it: another folder, no tokpit in sight."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from load_server import HOLD, ScriptServer, answer, role, token
from tokpit.load import events, zipapp
from tokpit.load.plan import Plan


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zipapp.write(tmp_path_factory.mktemp("host") / "load.pyz")


async def start(packed: Path, *args: str) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        packed.name,
        *args,
        cwd=packed.parent,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )


async def lines(process: asyncio.subprocess.Process) -> list[dict[str, Any]]:
    assert process.stdout is not None
    return [json.loads(line) async for line in process.stdout]


def test_the_file_is_the_same_for_the_same_sources() -> None:
    first = zipapp.build()
    assert first == zipapp.build()
    assert first.startswith(b"#!")


def test_the_file_needs_nothing_else_of_tokpit(packed: Path) -> None:
    with zipfile.ZipFile(packed) as archive:
        names = archive.namelist()
        text = b"".join(archive.read(name) for name in names)
    assert "tokpit_load/agent.py" in names
    assert b"from tokpit." not in text
    assert b"import tokpit." not in text


async def test_a_plan_on_standard_input_gives_events_up_to_the_result(packed: Path) -> None:
    async with ScriptServer(lambda body, index: answer(4)) as server:
        process = await start(packed)
        assert process.stdin is not None
        plan = Plan(url=server.url, levels=(2,), requests=4, max_tokens=4)
        process.stdin.write(plan.to_json().encode() + b"\n")
        told = [events.from_dict(data) for data in await lines(process)]
        assert await process.wait() == 0
        process.stdin.close()
        assert process.stderr is not None
        assert await process.stderr.read() == b""
    last = told[-1]
    assert isinstance(last, events.SweepFinished)
    assert last.result.status == "done"
    assert last.result.levels[0].ok == 4


@pytest.mark.parametrize("how", ["close", "stop"])
async def test_it_ends_with_its_input_or_when_told_and_gives_what_it_has(packed: Path, how: str) -> None:
    async with ScriptServer(lambda body, index: [role(), token(), HOLD]) as server:
        plan = Plan(url=server.url, model="m", levels=(2, 4), warmup=0)
        process = await start(packed, plan.to_json())
        assert process.stdin is not None
        while server.running < 2:
            await asyncio.sleep(0.01)
        if how == "close":
            process.stdin.close()
        else:
            process.stdin.write(b"stop\n")
        told = await lines(process)
        assert await process.wait() == 0
        process.stdin.close()
    assert told[-1]["event"] == "sweep_finished"
    assert told[-1]["result"]["status"] == "stopped"
    assert told[-1]["result"]["levels"][0]["cancelled"] == 2


async def test_it_does_not_outlive_a_reader_that_went_away(packed: Path) -> None:
    async with ScriptServer(lambda body, index: [role(), token(), HOLD]) as server:
        process = await start(packed, Plan(url=server.url, model="m", levels=(1,), warmup=0).to_json())
        while not server.running:
            await asyncio.sleep(0.01)
        transport = process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
        transport.close()
        await process.wait()
        assert process.stdin is not None
        process.stdin.close()


async def test_a_plan_that_cannot_be_read_is_one_line_and_status_2(packed: Path) -> None:
    process = await start(packed, '{"url":"ftp://x"}')
    told = await lines(process)
    assert await process.wait() == 2
    assert process.stdin is not None
    process.stdin.close()
    assert told == [{"event": "error", "message": "the url 'ftp://x' does not start with http:// or https://"}]

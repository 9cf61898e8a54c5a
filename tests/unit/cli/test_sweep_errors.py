"""A sweep tells failed requests as they come, not when the level is over."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from load_server import Head, Raw, ScriptServer, Step, answer


async def test_the_first_failure_of_each_class_is_told_while_its_level_still_runs(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    def script(body: dict[str, Any], index: int) -> list[Step]:
        if index == 1:
            return [Head(503, ("Content-Length: 13", "Retry-After: 1")), Raw(b"queue is full")]
        return answer(4) if index < 3 else [Head(), go_on, *answer(4)]

    env = {name: value for name, value in os.environ.items() if not name.startswith("TOKPIT")}
    env |= {f"TOKPIT_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "STATE", "CACHE")}
    async with ScriptServer(script) as server:
        words = ("sweep", server.url, "-c", "1", "-n", "4", "--max-tokens", "4", "--warmup", "0", "--model", "m")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tokpit", *words, env=env, stderr=-1, stdout=asyncio.subprocess.DEVNULL
        )
        assert process.stderr is not None
        told: list[str] = []
        while not any("5xx" in line for line in told):
            line = await process.stderr.readline()
            assert line, told
            told.append(line.decode())
        assert "503 queue is full" in told[-1]
        assert not any("ok" in line and "err" in line for line in told), "the level was over before"
        go_on.set()
        rest = (await process.stderr.read()).decode()
        assert await process.wait() == 0
    assert "3 ok 1 err" in rest
    assert "5xx" not in rest

"""A sweep in a process of its own: what stalls the caller's event loop, such as a screen, cannot touch the times."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from . import events, pipes
from .plan import Plan
from .results import LevelResult, SweepResult

CLOSE_S = 6.0
"""How long the process has for its end before it is killed: its own grace time and a little."""
_LONGEST_LINE = 64 << 20


class ProcessEnded(Exception):
    """The process ended, or refused the plan, without a result; the message is one sentence."""


class Generator:
    """The load generator in one process for any number of plans, started with the first; `close` ends it.

    It reaches servers through its own sockets, so only those that this machine reaches.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Its process id; None while there is none."""
        return self._process.pid if self._process is not None else None

    async def __aenter__(self) -> Generator:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def run(
        self,
        plan: Plan,
        *,
        on_event: Callable[[events.Event], None] | None = None,
        on_level: Callable[[LevelResult], Awaitable[None]] | None = None,
        stop: asyncio.Event | None = None,
    ) -> SweepResult:
        """As `load.run.run_sweep`; raises ProcessEnded, OSError where no process can be started."""
        if self._process is None:
            self._process = await self._start()
        process = self._process
        await self._say(plan.to_json())
        try:
            async with self._passing_on(stop):
                async for event in self._events(process):
                    if on_event is not None:
                        on_event(event)
                    if isinstance(event, events.LevelFinished):
                        if on_level is not None:
                            await on_level(event.result)
                        await self._say("next")
                    if isinstance(event, events.SweepFinished):
                        return event.result
        except BaseException:
            await self.close()  # what it says later would be taken for the next plan's
            raise
        await self.close()
        raise ProcessEnded(f"the load generator's process ended without a result (status {process.returncode})")

    async def close(self) -> None:
        """Ends the process and what it runs; kills it if it does not."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.stdout.read(), CLOSE_S)
            await asyncio.wait_for(process.wait(), CLOSE_S)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            if not isinstance(error, asyncio.TimeoutError):
                raise
            await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        # A session of its own: Ctrl-C in the terminal goes to the caller alone, which ends the level in order.
        return await asyncio.create_subprocess_exec(
            *pipes.command("agent"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "TOKPIT_LOAD_PATIENCE_S": "0", "TOKPIT_LOAD_STEP": "1"},
            start_new_session=True,
            limit=_LONGEST_LINE,
        )

    async def _say(self, line: str) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(line.encode() + b"\n")
            await self._process.stdin.drain()

    async def _events(self, process: asyncio.subprocess.Process) -> AsyncIterator[events.Event]:
        assert process.stdout is not None
        async for line in process.stdout:
            data: dict[str, Any] = json.loads(line)
            if data.get("event") == "error":
                raise ProcessEnded(str(data.get("message")))
            yield events.from_dict(data)

    @contextlib.asynccontextmanager
    async def _passing_on(self, stop: asyncio.Event | None) -> AsyncIterator[None]:
        async def pass_on(asked: asyncio.Event) -> None:
            await asked.wait()
            await self._say("stop")

        task = asyncio.ensure_future(pass_on(stop)) if stop is not None else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def run_sweep(
    plan: Plan,
    *,
    on_event: Callable[[events.Event], None] | None = None,
    on_level: Callable[[LevelResult], Awaitable[None]] | None = None,
    stop: asyncio.Event | None = None,
) -> SweepResult:
    """One sweep in a process that ends with it; see `Generator.run`."""
    async with Generator() as generator:
        return await generator.run(plan, on_event=on_event, on_level=on_level, stop=stop)

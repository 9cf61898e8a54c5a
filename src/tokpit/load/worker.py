"""One of several processes that make a level's load together. Its parent sends commands; it answers with frames.

A command is one line of JSON on standard input: `{"level": …}` prepares a level, `{"go": ns}` begins it at that moment,
`{"stop": true}` ends it, `{"ping": true}` asks for its clock and `{"reach": address}` whether it gets there; any other
line is a sign of life. It ends when its standard input closes, so that it never outlives its parent; with
TOKPIT_LOAD_PATIENCE_S in the environment also after so many seconds without a line.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
from array import array
from typing import Any

from . import events
from .clock import Clock, now_ns
from .member import hello
from .pipes import Lines, Writer, listen
from .plan import Plan
from .records import Part, frame, pack
from .share import Share


def main() -> int:
    """Serves levels until standard input ends."""
    writer = Writer()
    try:
        gc.collect()
        gc.freeze()
        asyncio.run(_Worker(writer).serve())
    except Exception as error:
        writer.put(frame({"failed": f"{type(error).__name__}: {error}"}))
        writer.close()
        return 1
    writer.close()
    return 0


class _Worker:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def serve(self) -> None:
        self._commands: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._stop = asyncio.Event()
        self._writer.put(hello())
        lines = Lines()
        lines.patience_s = float(os.environ.get("TOKPIT_LOAD_PATIENCE_S") or 0) or None
        listen(lines, self._hear)
        while command := await self._commands.get():
            if "level" in command:
                await self._level(command["level"])
            elif "reach" in command:
                self._put({"reached": await _reach(command["reach"])})

    def _hear(self, line: bytes) -> None:
        if line and not line.startswith(b"{"):
            return
        command: dict[str, Any] = json.loads(line) if line else {}
        if "ping" in command:
            self._put({"pong": now_ns()})
            return
        if not command or "stop" in command:
            self._stop.set()
        if "stop" not in command:
            self._commands.put_nowait(command)

    async def _level(self, asked: dict[str, Any]) -> None:
        from .level import LevelRun
        from .prompts import PromptSource
        from .request import Client
        from .telling import Sampler, told
        from .wire import allow_connections, open_session

        self._stop = stop = asyncio.Event()
        share = Share(**asked["share"])
        plan = share.plan(Plan.from_dict(asked["plan"]))
        clock, sampler = Clock(plan.clock_factor), Sampler()
        allow_connections(share.concurrency or share.max_in_flight)

        def on_request(x: Any) -> None:
            if sampler.wanted(x.outcome):
                self._put({"request": events.to_dict(told(x, run.level, run.t_begin, clock))})

        async with open_session(clock, connect_timeout_s=clock.real_s(plan.timeouts.connect_s)) as session:
            run = LevelRun(
                plan,
                PromptSource(plan, asked["model"], asked["nonce"]),
                Client(session, plan.endpoint, plan.headers),
                clock,
                level=asked["level"],
                stop=stop,
                concurrency=share.concurrency,
                rate=asked["rate"],
                share=share,
                on_progress=self._progress,
                on_request=on_request,
            )
            run.prepare()
            self._put({"ready": True})
            go = await self._commands.get()
            if "go" not in go:
                self._commands.put_nowait(go)
                return
            await run.run(go["go"])
        self._put(*_records(run))

    def _progress(self, run: Any) -> None:
        figures = {"done": run.done, "ok": run.ok, "failed": run.failed, "running": run.running}
        self._put({"progress": {**figures, "tokens": run.tokens_so_far(), "chunks": run.chunks_so_far()}})

    def _put(self, data: dict[str, Any], raw: bytes = b"") -> None:
        self._writer.put(frame(data, raw))


async def _reach(url: str) -> str:
    """Why an HTTP server does not answer at `url`; empty where it does, with whatever status."""
    import aiohttp

    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session, session.get(url):
            return ""
    except (aiohttp.ClientError, OSError, asyncio.TimeoutError, ValueError) as error:
        return str(error) or type(error).__name__


def _records(run: Any) -> tuple[dict[str, Any], bytes]:
    data, raw = pack(
        Part(
            exchanges=run.exchanges,
            t_begin=run.t_begin,
            t_end=run.t_end,
            cpu_s=run.cpu_s,
            lag_s=run.lag_s,
            held_back=run.held_back,
            clock_steps=run.clock.steps,
            cut=run.cut,
            dead=run.dead,
            prompts=array("Q", sorted(run.bodies.hashes)),
            built=run.bodies.built,
        )
    )
    return {"records": data}, raw

"""The generator as a process of its own: a plan comes in as JSON, events go out as JSON lines.

It ends when its standard input closes, so that it never outlives the connection that started it. Run as
`python tokpit-load.pyz` with the plan as the first line of standard input, or as the only argument. A line `stop`
ends the sweep early with what was measured; any other line is a sign of life. The exit status is 0 for a result, 2 for
a plan that cannot be read and 3 where aiohttp is missing. With `worker` as its only argument it takes a share of the
levels of a parent elsewhere, see worker.py.

With TOKPIT_LOAD_PATIENCE_S in the environment it is attended: it takes plan after plan, one a line, until its input
ends, and ends by itself after so many seconds without a line, because a dead link need not tell (0: never). With
TOKPIT_LOAD_STEP as well it waits after every level for a line `next`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from typing import Any

from . import events
from .pipes import Lines, Writer, listen
from .plan import Plan


class _Input:
    """Plans and stops from standard input, read in a thread, handed over in the event loop."""

    def __init__(self, first: bytes, lines: Lines, *, attended: bool) -> None:
        self.stop = asyncio.Event()
        self.next = asyncio.Event()
        self.plans: asyncio.Queue[bytes] = asyncio.Queue()
        """Lines that begin like a plan; an empty one is the end."""
        self.plans.put_nowait(first)
        if not attended:
            self.plans.put_nowait(b"")
        listen(lines, self._hear)

    def _hear(self, line: bytes) -> None:
        if line.startswith(b"{"):
            self.stop.clear()
        if not line or line.strip() == b"stop":
            self.stop.set()
        if not line or line.strip() in (b"stop", b"next"):
            self.next.set()
        if not line or line.startswith(b"{"):
            self.plans.put_nowait(line)


def main() -> int:
    """Runs the plan of the command line or the plans of standard input; `worker`: a share of somebody's levels."""
    if sys.argv[1:] == ["worker"]:
        from . import worker

        return worker.main()
    writer, lines = Writer(), Lines()
    lines.patience_s = float(os.environ.get("TOKPIT_LOAD_PATIENCE_S") or 0) or None
    first = sys.argv[1].encode() if len(sys.argv) > 1 else lines.next()
    try:
        Plan.from_json(first.decode("utf-8", "replace"))
    except ValueError as error:
        _say(writer, {"event": "error", "message": str(error)})
        writer.close()
        return 2
    try:
        import aiohttp  # noqa: F401
    except ImportError:
        message = (
            f"{sys.executable} has no aiohttp: use the python of the engine's environment, or `pip install aiohttp`"
        )
        _say(writer, {"event": "error", "message": message})
        writer.close()
        return 3
    gc.collect()
    gc.freeze()
    asyncio.run(_serve(first, writer, lines))
    writer.close()
    return 0


async def _serve(first: bytes, writer: Writer, lines: Lines) -> None:
    from .crew import Crew
    from .run import run_sweep

    given = _Input(first, lines, attended="TOKPIT_LOAD_PATIENCE_S" in os.environ and len(sys.argv) < 2)

    async def on_level(_: Any) -> None:
        if "TOKPIT_LOAD_STEP" in os.environ and not given.stop.is_set():
            await given.next.wait()
            given.next.clear()

    crew = Crew()
    try:
        while line := await given.plans.get():
            try:
                plan = Plan.from_json(line.decode("utf-8", "replace"))
            except ValueError as error:
                _say(writer, {"event": "error", "message": str(error)})
                continue
            await run_sweep(
                plan,
                on_event=lambda event: _say(writer, events.to_dict(event)),
                on_level=on_level,
                stop=given.stop,
                crew=crew,
            )
    finally:
        await crew.close()


def _say(writer: Writer, data: dict[str, Any]) -> None:
    writer.put(json.dumps(data, separators=(",", ":")).encode() + b"\n")

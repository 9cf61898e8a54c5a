"""The generator as a process of its own: a plan comes in as JSON, events go out as JSON lines.

It ends when its standard input closes, so that it never outlives the connection that started it. Run as
`python tokpit-load.pyz` with the plan as the first line of standard input, or as the only argument. A line `stop`
ends the sweep early with what was measured. The exit status is 0 for a result, 2 for a plan that cannot be read and
3 where aiohttp is missing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import queue
import sys
import threading
from typing import Any

from . import events
from .plan import Plan

GRACE_S = 5.0
"""After standard input closed, how long the end may take."""


class _Writer:
    """Writes lines in a thread: a pipe that is full must not hold up the measurement."""

    def __init__(self) -> None:
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, data: dict[str, Any]) -> None:
        self._lines.put(json.dumps(data, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        self._lines.put(None)
        self._thread.join(GRACE_S)

    def _run(self) -> None:
        out = sys.stdout.buffer
        try:
            while True:
                line = self._lines.get()
                if line is None:
                    return
                out.write(line)
                out.flush()
        except (OSError, ValueError):
            os._exit(1)  # nobody listens any more


class _Lines:
    """Lines of standard input, read without Python's buffer: its lock would outlive the reading thread at exit."""

    def __init__(self) -> None:
        self._rest = b""

    def next(self) -> bytes:
        """The next line; what is left, then nothing, at the end of the input."""
        while b"\n" not in self._rest:
            try:
                data = os.read(0, 65536)
            except OSError:
                data = b""
            if not data:
                line, self._rest = self._rest, b""
                return line
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line + b"\n"


def main() -> int:
    """Runs the plan of the command line or of standard input."""
    writer, lines = _Writer(), _Lines()
    try:
        text = sys.argv[1] if len(sys.argv) > 1 else lines.next().decode("utf-8", "replace")
        plan = Plan.from_json(text)
    except ValueError as error:
        writer.put({"event": "error", "message": str(error)})
        writer.close()
        return 2
    try:
        import aiohttp  # noqa: F401
    except ImportError:
        message = (
            f"{sys.executable} has no aiohttp: use the python of the engine's environment, or `pip install aiohttp`"
        )
        writer.put({"event": "error", "message": message})
        writer.close()
        return 3
    gc.collect()
    gc.freeze()
    asyncio.run(_sweep(plan, writer, lines))
    writer.close()
    return 0


async def _sweep(plan: Plan, writer: _Writer, lines: _Lines) -> None:
    from .run import run_sweep

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    threading.Thread(target=_listen, args=(loop, stop, lines), daemon=True).start()
    await run_sweep(plan, on_event=lambda event: writer.put(events.to_dict(event)), stop=stop)


def _listen(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, lines: _Lines) -> None:
    """Waits for `stop` or for the end of standard input."""
    while True:
        line = lines.next()
        try:
            if not line or line.strip() == b"stop":
                loop.call_soon_threadsafe(stop.set)
        except RuntimeError:  # the loop is closed: done already
            return
        if not line:
            threading.Timer(GRACE_S, os._exit, (1,)).start()
            return

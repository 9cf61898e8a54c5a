"""The generator as a process of its own: a plan comes in as JSON, events go out as JSON lines.

It ends when its standard input closes, so that it never outlives the connection that started it. Run as
`python tokpit-load.pyz` with the plan as the first line of standard input, or as the only argument. A line `stop`
ends the sweep early with what was measured; any other line is a sign of life. The exit status is 0 for a result, 2 for
a plan that cannot be read and 3 where aiohttp is missing.

With TOKPIT_LOAD_PATIENCE_S in the environment it is attended: it takes plan after plan, one a line, until its input
ends, and ends by itself after so many seconds without a line, because a dead link need not tell.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import queue
import select
import sys
import threading
from typing import Any, Optional

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

    patience_s: Optional[float] = None
    """How long a silence may last before it counts as the end; None: for ever."""

    def __init__(self) -> None:
        self._rest = b""

    def next(self) -> bytes:
        """The next line; what is left, then nothing, at the end of the input."""
        while b"\n" not in self._rest:
            try:
                waiting = select.select([0], [], [], self.patience_s)[0]
                data = os.read(0, 65536) if waiting else b""
            except OSError:
                data = b""
            if not data:
                line, self._rest = self._rest, b""
                return line
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line + b"\n"


class _Input:
    """Plans and stops from standard input, read in a thread, handed over in the event loop."""

    def __init__(self, first: bytes, lines: _Lines, *, attended: bool) -> None:
        self.stop = asyncio.Event()
        self.plans: asyncio.Queue[bytes] = asyncio.Queue()
        """Lines that begin like a plan; an empty one is the end."""
        self.plans.put_nowait(first)
        if not attended:
            self.plans.put_nowait(b"")
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(lines,), daemon=True).start()

    def _listen(self, lines: _Lines) -> None:
        while True:
            line = lines.next()
            try:
                self._loop.call_soon_threadsafe(self._hear, line)
            except RuntimeError:  # the loop is closed: done already
                return
            if not line:
                threading.Timer(GRACE_S, os._exit, (1,)).start()
                return

    def _hear(self, line: bytes) -> None:
        if not line or line.strip() == b"stop":
            self.stop.set()
        if not line or line.startswith(b"{"):
            self.plans.put_nowait(line)


def main() -> int:
    """Runs the plan of the command line or the plans of standard input."""
    writer, lines = _Writer(), _Lines()
    lines.patience_s = float(os.environ.get("TOKPIT_LOAD_PATIENCE_S") or 0) or None
    first = sys.argv[1].encode() if len(sys.argv) > 1 else lines.next()
    try:
        Plan.from_json(first.decode("utf-8", "replace"))
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
    asyncio.run(_serve(first, writer, lines))
    writer.close()
    return 0


async def _serve(first: bytes, writer: _Writer, lines: _Lines) -> None:
    from .run import run_sweep

    given = _Input(first, lines, attended=lines.patience_s is not None and len(sys.argv) < 2)
    while line := await given.plans.get():
        try:
            plan = Plan.from_json(line.decode("utf-8", "replace"))
        except ValueError as error:
            writer.put({"event": "error", "message": str(error)})
            continue
        await run_sweep(plan, on_event=lambda event: writer.put(events.to_dict(event)), stop=given.stop)

"""Standard input and output of a process of the generator, and how another one is started from the same files."""

from __future__ import annotations

import asyncio
import os
import queue
import select
import sys
import threading
from collections.abc import Callable
from typing import Optional

GRACE_S = 5.0
"""After standard input closed, how long the end may take."""
_BOOT = """\
import sys
root, module = sys.argv.pop(1), sys.argv.pop(1)
path = [entry for entry in sys.path if entry]
path.insert(next((n for n, entry in enumerate(path) if entry.endswith("-packages")), len(path)), root)
sys.path[:] = path
import importlib
sys.exit(importlib.import_module(module).main())
"""


def command(module: str) -> list[str]:
    """The command that runs `main()` of `module` of this package, from a checkout, a wheel and a zip alike.

    The package's own folder comes before installed packages, but never before the standard library.
    """
    package = __package__ or "tokpit.load"
    root = os.path.abspath(__file__)  # noqa: PTH100 # a path inside a zip is none for pathlib either
    for _ in range(len(package.split(".")) + 1):
        root = os.path.dirname(root)  # noqa: PTH120
    return [sys.executable, "-c", _BOOT, root, f"{package}.{module}"]


class Writer:
    """Writes to standard output in a thread: a pipe that is full must not hold up the measurement."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[bytes | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, data: bytes) -> None:
        """Writes `data` soon, in order."""
        self._waiting.put(data)

    def close(self) -> None:
        """Waits until everything is written, for the grace time at most."""
        self._waiting.put(None)
        self._thread.join(GRACE_S)

    def _run(self) -> None:
        out = sys.stdout.buffer
        try:
            while True:
                data = self._waiting.get()
                if data is None:
                    return
                out.write(data)
                out.flush()
        except (OSError, ValueError):
            os._exit(1)  # nobody listens any more


class Lines:
    """Lines of standard input, read without Python's buffer: its lock would outlive the reading thread at exit."""

    patience_s: Optional[float] = None
    """How long a silence may last before it counts as the end; None: for ever."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._ready: list[bytes] = []

    def next(self) -> bytes:
        """The next line; what is left, then nothing, at the end of the input."""
        while not self._ready:
            try:
                waiting = select.select([0], [], [], self.patience_s)[0]
                data = os.read(0, 65536) if waiting else b""
            except OSError:
                data = b""
            if not data:
                line, self._parts = b"".join(self._parts), []
                return line
            first, *others = data.split(b"\n")
            self._parts.append(first)
            for part in others:
                self._ready.append(b"".join(self._parts) + b"\n")
                self._parts = [part]
            self._ready.reverse()
        return self._ready.pop()


def end_soon() -> None:
    """Ends this process in the grace time, whatever it does."""
    timer = threading.Timer(GRACE_S, os._exit, (1,))
    timer.daemon = True
    timer.start()


def listen(lines: Lines, hear: Callable[[bytes], None]) -> None:
    """Reads `lines` in a thread and calls `hear` with each in the running event loop; the empty one is the end.

    Then, or where the loop is closed before, the thread ends; after the end this process has the grace time left.
    """
    loop = asyncio.get_running_loop()

    def read() -> None:
        while True:
            line = lines.next()
            try:
                loop.call_soon_threadsafe(hear, line)
            except RuntimeError:  # the loop is closed: done already
                return
            if not line:
                end_soon()
                return

    threading.Thread(target=read, daemon=True).start()

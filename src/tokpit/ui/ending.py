"""Told to end (`kill`, a terminal that was closed), the console leaves as by its key.

The terminal is left as it was, and the caller closes the session in order. A terminal that is gone must not hold that
up: Textual's thread that writes to it ends with the first error, and the next writes would wait for it for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from textual.app import App

ENDING = (signal.SIGTERM, signal.SIGHUP)
AT_MOST_S = 10.0
"""For the screen to go; what the session still has to put in order takes as long as it takes."""


@contextlib.contextmanager
def leaving(app: App[None]) -> Iterator[None]:
    """While the application runs within it, ENDING makes it leave."""
    loop = asyncio.get_running_loop()
    limits: list[threading.Timer] = []

    # A handler of asyncio's would not be called while the loop itself waits for the terminal.
    def leave(number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _let_go(app)
        limits.append(threading.Timer(AT_MOST_S, os._exit, (128 + number,)))
        limits[-1].daemon = True
        limits[-1].start()
        loop.call_soon_threadsafe(app.exit)

    before = {number: signal.signal(number, leave) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for limit in limits:
            limit.cancel()


def _let_go(app: App[None]) -> None:
    """What is written from now on goes nowhere; what waits to be written waits no longer."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)
    writer = getattr(app._driver, "_writer_thread", None)

    def drain() -> None:
        while writer is not None:
            writer.join(0.1)
            if not writer.is_alive():
                writer._queue.get()

    threading.Thread(target=drain, daemon=True).start()

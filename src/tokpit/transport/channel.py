"""One command channel of an SSH connection. Imports asyncssh: import it late."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncssh

from tokpit.errors import LinkLost

RTT_TIMEOUT_S = 5.0

T = TypeVar("T")
_opening: set[asyncio.Future[Any]] = set()


async def opened(opening: Awaitable[T], close: Callable[[T], None]) -> T:
    """Wait for a channel to open; one that the caller no longer waits for is closed as soon as it is open.

    A cancelled opening would leave it open on the far side for ever (asyncssh issue 823), until none can be opened.
    """
    task = asyncio.ensure_future(opening)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:

        def end(done: asyncio.Future[T]) -> None:
            _opening.discard(done)
            if not done.cancelled() and done.exception() is None:
                close(done.result())

        _opening.add(task)
        task.add_done_callback(end)
        raise


class SshProcess:
    """Process over an asyncssh channel."""

    def __init__(self, channel: asyncssh.SSHClientProcess[bytes], lost: Callable[[], LinkLost]) -> None:
        self._channel = channel
        self._lost = lost
        self.ended = False

    async def write(self, data: bytes) -> None:
        """Send to stdin, waiting while the window is closed."""
        try:
            for start in range(0, len(data), 1 << 16):
                self._channel.stdin.write(data[start : start + (1 << 16)])
                await self._channel.stdin.drain()
        except asyncssh.Error as error:
            raise self._lost() from error

    def write_eof(self) -> None:
        """End stdin."""
        with contextlib.suppress(OSError):
            if not self._channel.is_closing():
                self._channel.stdin.write_eof()

    async def _read(self, reader: asyncssh.SSHReader[bytes], size: int) -> bytes:
        try:
            return await reader.read(size)
        except (asyncssh.Error, OSError) as error:
            raise self._lost() from error

    async def read(self, size: int) -> bytes:
        """Up to `size` bytes of stdout."""
        return await self._read(self._channel.stdout, size)

    async def read_stderr(self, size: int) -> bytes:
        """Up to `size` bytes of stderr."""
        return await self._read(self._channel.stderr, size)

    async def wait(self) -> int | None:
        """The exit status, negative for a signal; None: the link broke."""
        await self._channel.wait_closed()
        self.ended = True
        status = self._channel.exit_status
        if status is None:
            return None
        named = self._channel.exit_signal
        if named is not None:
            number = getattr(signal, "SIG" + named[0], None)
            return -int(number) if number is not None else -1
        return status

    async def drain(self) -> None:
        """Read and drop what still comes until the remote side has ended."""

        async def drop(reader: asyncssh.SSHReader[bytes]) -> None:
            while await self._read(reader, 1 << 16):
                pass

        await asyncio.gather(drop(self._channel.stdout), drop(self._channel.stderr))
        await self._channel.wait_closed()
        self.ended = True

    def close(self) -> None:
        """Give the channel up."""
        self._channel.close()


async def round_trip_s(connection: asyncssh.SSHClientConnection) -> float | None:
    """Seconds of one request and its answer, None where the library has no such request any more."""
    request = getattr(connection, "_make_global_request", None)
    if request is None:
        return None
    start = time.perf_counter()
    try:
        async with asyncio.timeout(RTT_TIMEOUT_S):
            await request(b"keepalive@openssh.com")
    except TimeoutError:
        return None
    return time.perf_counter() - start

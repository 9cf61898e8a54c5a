"""A remote command whose stdin stays open while its stdout is read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from tokpit.domain.text import sanitize
from tokpit.errors import HostError, LinkLost, RemoteFailed
from tokpit.transport.script import Unframer

if TYPE_CHECKING:
    from tokpit.transport.commands import Process

_CHUNK = 1 << 16
_STDERR_KEPT = 1 << 14


class ScriptDialog:
    """Dialog over a framed process. `pid`: the script's process group, once it has begun."""

    def __init__(
        self,
        process: Process,
        marker: str,
        lost: Callable[[], LinkLost],
        no_shell: Callable[[Unframer, Unframer, int], RemoteFailed],
    ) -> None:
        self._process, self._lost, self._no_shell = process, lost, no_shell
        self._frame, self._err_frame = Unframer(marker), Unframer(marker)
        self._tail = bytearray()
        self._drainer = asyncio.ensure_future(self._drain())
        self.status: int | None = None

    @property
    def pid(self) -> int | None:
        """The script's process group, once it has begun."""
        return self._frame.pid

    @property
    def errors(self) -> str:
        """The last part of stderr as text."""
        return "\n".join(map(sanitize, self._tail.decode("utf-8", "replace").splitlines()))

    async def write(self, data: bytes) -> None:
        """Send to stdin; a command that has ended already takes nothing, and its status tells why."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await self._process.write(data)

    async def chunks(self) -> AsyncIterator[bytes]:
        """stdout in chunks as they come; see Dialog."""
        while data := await self._process.read(_CHUNK):
            if payload := self._frame.feed(data):
                yield payload
        status = await self._process.wait()
        await asyncio.gather(self._drainer, return_exceptions=True)
        if status is None:
            raise self._lost()
        self.status = status
        if not self._frame.found:
            raise self._no_shell(self._frame, self._err_frame, status)

    async def close(self) -> None:
        """End stdin and stop reading."""
        self._process.write_eof()
        self._drainer.cancel()
        await asyncio.gather(self._drainer, return_exceptions=True)

    async def _drain(self) -> None:
        # Unread stderr would fill the window that stdout shares.
        with contextlib.suppress(HostError):
            while data := await self._process.read_stderr(_CHUNK):
                self._tail.extend(self._err_frame.feed(data))
                del self._tail[:-_STDERR_KEPT]

"""This machine, without SSH: the same scripts under /bin/sh, the same guarantees."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from tokpit.domain.records import LinkRecord, LinkState
from tokpit.errors import LinkLost
from tokpit.transport.base import HostSpec
from tokpit.transport.commands import STOP_GRACE_S, Process, ScriptHost
from tokpit.transport.script import READ_AND_RUN

if TYPE_CHECKING:
    import aiohttp


class LocalHost(ScriptHost):
    """The Host protocol over subprocesses."""

    def __init__(self, spec: HostSpec) -> None:
        super().__init__(spec)
        self._listeners: list[Callable[[LinkRecord], None]] = []
        self.link = LinkRecord(spec.name, self.now(), LinkState.NEW)
        self._running: set[asyncio.subprocess.Process] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def on_link(self, listener: Callable[[LinkRecord], None]) -> Callable[[], None]:
        """Call `listener` at each change of the link's state, until what is returned is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _emit(self, state: LinkState, rtt_s: float | None = None) -> None:
        self.link = LinkRecord(self.name, self.now(), state, rtt_s=rtt_s)
        for listener in list(self._listeners):
            listener(self.link)

    async def connect(self) -> None:
        """Nothing to open; tells the listeners that the link is up."""
        if self.link.state is LinkState.CLOSED:
            raise LinkLost(f"{self.name} was closed.")
        if self.link.state is not LinkState.UP:
            self._emit(LinkState.UP, 0.0)

    async def wait_up(self) -> None:
        """Return at once. Raises LinkLost after close()."""
        await self.connect()

    async def close(self) -> None:
        """End what this side runs; servers live on."""
        if self.link.state is LinkState.CLOSED:
            return
        self._emit(LinkState.CLOSED)
        await self._end_all()
        for process in list(self._running):
            _end_group(process)
            await process.wait()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _process(self, *, lasting: bool) -> AbstractAsyncContextManager[Process]:
        return self._opened()

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Process]:
        await self.connect()
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", READ_AND_RUN, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        self._running.add(process)
        try:
            yield _LocalProcess(process)
        finally:
            if process.returncode is None:
                task = asyncio.ensure_future(self._reap(process))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
            else:
                self._running.discard(process)

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        """Let the watchman end the group; make sure after a while."""
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await process.communicate()
        except TimeoutError:
            _end_group(process)
            await process.communicate()
        finally:
            self._running.discard(process)

    def session(self) -> aiohttp.ClientSession:
        """An HTTP session; see Host.session."""
        from tokpit.transport.http import local_session

        return local_session()


def _end_group(process: asyncio.subprocess.Process) -> None:
    # start_new_session made the process the leader of its own group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class _LocalProcess:
    """Process over a subprocess."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), 1 << 16):
            self._stdin.write(data[start : start + (1 << 16)])
            await self._stdin.drain()

    def write_eof(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._stdin.close()

    async def read(self, size: int) -> bytes:
        return await self._stdout.read(size)

    async def read_stderr(self, size: int) -> bytes:
        return await self._stderr.read(size)

    async def wait(self) -> int | None:
        status = await self._process.wait()
        self.write_eof()
        return status

    def close(self) -> None:
        self.write_eof()

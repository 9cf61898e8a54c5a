"""A TCP relay in front of a server: its connections can be cut, or go silent as behind a dead router."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Relay:
    """Passes connections on while it is open; closing it cuts them and refuses new ones."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._flows.set()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_closed(), 5)

    def freeze(self) -> None:
        """Swallow everything in both directions; connections stay, and new ones are taken and not answered."""
        self._flows.clear()

    def thaw(self) -> None:
        """Let it flow again, for connections made from now on: what was swallowed is gone."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers |= {writer, far_writer}
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


class Speaker:
    """A server that says the same thing to everybody, once it has heard `after`, and waits for them to go."""

    def __init__(self, says: bytes, *, after: bytes = b"") -> None:
        self.says, self.after = says, after
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Speaker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self.after:
                await reader.readuntil(self.after)
            writer.write(self.says)
            await reader.read()
        finally:
            writer.transport.abort()

"""A host over SSH: one connection, kept up in the background; commands, streams and HTTP over it.

asyncssh is imported on the first connect, not with this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokpit.domain.records import LinkRecord, LinkState
from tokpit.errors import HostError, LinkLost, RemoteFailed
from tokpit.transport.base import HostSpec, Prompt
from tokpit.transport.commands import STOP_GRACE_S, Process, ScriptHost
from tokpit.transport.script import BOOTSTRAP

if TYPE_CHECKING:
    import aiohttp
    import asyncssh

COMMAND_CHANNELS = 4
LASTING_CHANNELS = 5
"""Streams have places of their own, so that they cannot starve commands; 4 + 5 stays below sshd's MaxSessions of 10."""
CHANNEL_PATIENCE_S = 20.0
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 30.0
STABLE_S = 60.0
"""A link that held this long starts over with the shortest wait."""
RTT_TIMEOUT_S = 5.0


def backoff_s(attempt: int, *, jitter: float) -> float:
    """Seconds to wait before attempt number `attempt` (from 0): 1, 2, 4 .. 30, times 0.75 to 1.25 (`jitter` 0..1)."""
    base = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(attempt, 16))
    return min(BACKOFF_MAX_S, max(BACKOFF_FIRST_S, base * (0.75 + jitter / 2)))


class SshHost(ScriptHost):
    """The Host protocol over one SSH connection."""

    def __init__(
        self,
        spec: HostSpec,
        *,
        prompt: Prompt | None = None,
        ssh_config: Sequence[Path] | None = None,
        keepalive_s: float | None = None,
    ) -> None:
        super().__init__(spec)
        self._prompt = prompt
        self._ssh_config = ssh_config
        self._keepalive_s = keepalive_s
        self._listeners: list[Callable[[LinkRecord], None]] = []
        self.link = LinkRecord(spec.name, self.now(), LinkState.NEW)
        self._dialer: Any = None
        self._chain: list[asyncssh.SSHClientConnection] = []
        self._lock = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._was_up = False
        self._closed = False
        self._commands = asyncio.Semaphore(COMMAND_CHANNELS)
        self._lasting = asyncio.Semaphore(LASTING_CHANNELS)
        self._closing: set[asyncio.Task[None]] = set()

    # --- the link

    def on_link(self, listener: Callable[[LinkRecord], None]) -> None:
        """Call `listener` at each change of the link's state."""
        self._listeners.append(listener)

    def _emit(
        self,
        state: LinkState,
        reason: str = "",
        *,
        retry_in_s: float | None = None,
        rtt_s: float | None = None,
    ) -> None:
        self.link = LinkRecord(self.name, self.now(), state, reason, retry_in_s, rtt_s)
        self._changed.set()
        self._changed = asyncio.Event()
        for listener in list(self._listeners):
            listener(self.link)

    @property
    def _connection(self) -> asyncssh.SSHClientConnection | None:
        return self._chain[-1] if self._chain else None

    async def connect(self) -> None:
        """Open the connection if it is not open; see Host.connect.

        After a failure that may mend itself, attempts go on in the background until close().
        """
        self._check_open()
        async with self._lock:
            if self._chain:
                return
            try:
                await self._dial(ask=True)
            except HostError as error:
                self._after_failure(error, attempt=0)
                raise
            self._keep()

    def _check_open(self) -> None:
        if self._closed:
            raise LinkLost(f"The connection to {self.name} was closed.")

    async def _dial(self, *, ask: bool) -> None:
        """One attempt; the caller holds the lock."""
        from tokpit.transport.dial import KEEPALIVE_S, Dialer

        if self._dialer is None:
            self._dialer = Dialer(
                self.spec,
                prompt=self._prompt,
                config_files=self._ssh_config,
                keepalive_s=KEEPALIVE_S if self._keepalive_s is None else self._keepalive_s,
            )
        self._emit(LinkState.CONNECTING)
        chain = await self._dialer.dial(ask=ask)
        try:
            rtt_s = await _round_trip_s(chain[-1])
        except BaseException:
            for connection in reversed(chain):
                connection.abort()
            raise
        self._chain = chain
        self._was_up = True
        self._emit(LinkState.UP, rtt_s=rtt_s)

    def _after_failure(self, error: HostError, *, attempt: int) -> None:
        from tokpit.transport.mapping import is_final

        if is_final(error, was_up=self._was_up):
            self._emit(LinkState.FAILED, error.message)
            return
        wait_s = backoff_s(attempt, jitter=random.random())  # noqa: S311  # spreads reconnects, guards nothing
        self._emit(LinkState.LOST, error.message, retry_in_s=wait_s)
        self._keep(wait_s=wait_s, attempt=attempt + 1)

    def _keep(self, *, wait_s: float | None = None, attempt: int = 0) -> None:
        """Start the keeper if none runs: it watches the connection and opens it again."""
        if self._keeper is not None and not self._keeper.done():
            return
        self._keeper = asyncio.create_task(self._keep_up(wait_s, attempt), name=f"link {self.name}")

    async def _keep_up(self, wait_s: float | None, attempt: int) -> None:
        from tokpit.transport.mapping import is_final

        while not self._closed:
            if wait_s is not None:
                await asyncio.sleep(wait_s)
                async with self._lock:
                    if not self._chain:
                        try:
                            await self._dial(ask=False)
                        except HostError as error:
                            if is_final(error, was_up=self._was_up):
                                self._emit(LinkState.FAILED, error.message)
                                return
                            wait_s = backoff_s(attempt, jitter=random.random())  # noqa: S311  # spreads reconnects
                            attempt += 1
                            self._emit(LinkState.LOST, error.message, retry_in_s=wait_s)
                            continue
            since = time.monotonic()
            reason = await self._watch()
            if time.monotonic() - since > STABLE_S:
                attempt = 0
            wait_s = backoff_s(attempt, jitter=random.random())  # noqa: S311  # spreads reconnects
            attempt += 1
            self._emit(LinkState.LOST, reason, retry_in_s=wait_s)

    async def _watch(self) -> str:
        """Wait for the connection to end; a sentence why."""
        from tokpit.transport.mapping import translate

        connection = self._chain[-1]
        await connection.wait_closed()
        for hop in reversed(self._chain):
            hop.abort()
        self._chain = []
        error = self._dialer.why_ended(connection)
        return translate(error, self.name).message if error else f"{self.name} closed the connection."

    async def wait_up(self) -> None:
        """Return once the link is up. Raises HostError if it will not come up by itself."""
        while True:
            self._check_open()
            if self._chain:
                return
            if self.link.state is LinkState.NEW:
                await self.connect()
                continue
            if self.link.state is LinkState.FAILED:
                raise LinkLost(self.link.reason)
            await self._changed.wait()

    async def _up(self) -> asyncssh.SSHClientConnection:
        """The open connection; opens it the first time, and fails at once while it is being opened again."""
        self._check_open()
        if self._connection is None and self.link.state in (LinkState.NEW, LinkState.CONNECTING):
            await self.connect()
        if self._connection is None:
            raise LinkLost(
                f"{self.name} is not connected: {self.link.reason}",
                hint="It is opened again as soon as the host answers.",
            )
        return self._connection

    async def close(self) -> None:
        """Close the connection and end what this side runs over it; servers on the host live on."""
        if self._closed:
            return
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._end_all()
        chain, self._chain = self._chain, []
        for connection in reversed(chain):
            connection.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_GRACE_S):
                    await connection.wait_closed()
        for task in list(self._closing):
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        self._emit(LinkState.CLOSED)

    # --- commands

    def _process(self, *, lasting: bool) -> AbstractAsyncContextManager[Process]:
        return self._opened(lasting=lasting)

    @contextlib.asynccontextmanager
    async def _opened(self, *, lasting: bool) -> AsyncIterator[Process]:
        places = self._lasting if lasting else self._commands
        await places.acquire()
        process: _SshProcess | None = None
        try:
            process = await self._open_channel()
            yield process
        finally:
            if process is None or process.ended:
                if process is not None:
                    process.close()
                places.release()
            else:
                # sshd counts the session until the remote group is gone, so the place is given back only then.
                task = asyncio.ensure_future(self._give_back(process, places))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def _give_back(self, process: _SshProcess, places: asyncio.Semaphore) -> None:
        try:
            with contextlib.suppress(TimeoutError, HostError):
                async with asyncio.timeout(STOP_GRACE_S):
                    await process.drain()
        finally:
            process.close()
            places.release()

    async def _open_channel(self) -> _SshProcess:
        import asyncssh

        from tokpit.transport.mapping import translate

        deadline = time.monotonic() + CHANNEL_PATIENCE_S
        pause_s = 0.1
        while True:
            connection = await self._up()
            try:
                channel = await connection.create_process(BOOTSTRAP, encoding=None, request_pty=False)
            except asyncssh.ChannelOpenError as error:
                # MaxSessions: places come free when other commands end.
                if connection.is_closed() or "closed" in str(error):
                    raise self._lost() from error
                if time.monotonic() > deadline:
                    raise RemoteFailed(
                        f"{self.name} opens no further session ({error.reason}).",
                        hint="MaxSessions of its sshd may be low, or other sessions hang.",
                    ) from error
                await asyncio.sleep(pause_s * (0.5 + random.random()))  # noqa: S311  # spreads retries
                pause_s = min(1.0, pause_s * 2)
            except (asyncssh.Error, OSError) as error:
                raise translate(error, self.name) from error
            else:
                return _SshProcess(channel, self._lost)

    # --- HTTP

    def session(self) -> aiohttp.ClientSession:
        """An HTTP session whose connections start on the host; see Host.session."""
        from tokpit.transport.http import ssh_session

        return ssh_session(self._up, self.name)


class _SshProcess:
    """Process over an asyncssh channel."""

    def __init__(self, channel: asyncssh.SSHClientProcess[bytes], lost: Callable[[], LinkLost]) -> None:
        self._channel = channel
        self._lost = lost
        self.ended = False

    async def write(self, data: bytes) -> None:
        import asyncssh

        try:
            for start in range(0, len(data), 1 << 16):
                self._channel.stdin.write(data[start : start + (1 << 16)])
                await self._channel.stdin.drain()
        except asyncssh.Error as error:
            raise self._lost() from error

    def write_eof(self) -> None:
        with contextlib.suppress(OSError):
            if not self._channel.is_closing():
                self._channel.stdin.write_eof()

    async def _read(self, reader: asyncssh.SSHReader[bytes], size: int) -> bytes:
        import asyncssh

        try:
            return await reader.read(size)
        except (asyncssh.Error, OSError) as error:
            raise self._lost() from error

    async def read(self, size: int) -> bytes:
        return await self._read(self._channel.stdout, size)

    async def read_stderr(self, size: int) -> bytes:
        return await self._read(self._channel.stderr, size)

    async def wait(self) -> int | None:
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
        self._channel.close()


async def _round_trip_s(connection: asyncssh.SSHClientConnection) -> float | None:
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

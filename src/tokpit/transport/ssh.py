"""A host over SSH: one connection, kept up in the background; commands, streams and HTTP over it.

asyncssh is imported on the first connect, not with this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
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

    from tokpit.transport.channel import SshProcess

COMMAND_CHANNELS = 4
LASTING_CHANNELS = 6
"""Streams have places of their own, so that they cannot starve commands; 4 + 6 is sshd's MaxSessions of 10."""
CHANNEL_PATIENCE_S = 20.0
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 30.0
STABLE_S = 60.0
"""A link that held this long starts over with the shortest wait."""


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

    def on_link(self, listener: Callable[[LinkRecord], None]) -> Callable[[], None]:
        """Call `listener` at each change of the link's state, until what is returned is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

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
            try:
                listener(self.link)
            except Exception as error:
                # A faulty listener must not end the upkeep of the link.
                asyncio.get_running_loop().call_exception_handler({"message": "link listener", "exception": error})

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
            await self._stop_keeper()
            try:
                await self._dial(ask=True)
            except HostError as error:
                if not self._closed:
                    wait_s = self._fail(error, attempt=0)
                    if wait_s is not None:
                        self._keeper = asyncio.create_task(self._keep_up(wait_s, 1), name=f"link {self.name}")
                raise
            self._keeper = asyncio.create_task(self._keep_up(None, 0), name=f"link {self.name}")

    def _check_open(self) -> None:
        if self._closed:
            raise LinkLost(f"The connection to {self.name} was closed.")

    async def _dial(self, *, ask: bool) -> None:
        """One attempt; the caller holds the lock."""
        from tokpit.transport.channel import round_trip_s
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
            rtt_s = await round_trip_s(chain[-1])
            self._check_open()
        except BaseException:
            for connection in reversed(chain):
                connection.abort()
            raise
        self._chain = chain
        self._was_up = True
        self._emit(LinkState.UP, rtt_s=rtt_s)

    def _fail(self, error: HostError, *, attempt: int) -> float | None:
        """Tell of a failed attempt; seconds until the next one, None if trying again cannot mend it."""
        from tokpit.transport.mapping import is_final

        if is_final(error, was_up=self._was_up):
            self._emit(LinkState.FAILED, error.message)
            return None
        return self._lose(error.message, attempt)

    def _lose(self, reason: str, attempt: int) -> float:
        wait_s = backoff_s(attempt, jitter=random.random())  # noqa: S311  # spreads reconnects, guards nothing
        self._emit(LinkState.LOST, reason, retry_in_s=wait_s)
        return wait_s

    async def _keep_up(self, wait_s: float | None, attempt: int) -> None:
        """Watch the connection and open it again, for ever; `wait_s` None: it is open now."""
        while True:
            if wait_s is not None:
                await asyncio.sleep(wait_s)
                async with self._lock:
                    try:
                        await self._dial(ask=False)
                    except HostError as error:
                        wait_s = self._fail(error, attempt=attempt)
                        if wait_s is None:
                            return
                        attempt += 1
                        continue
            since = time.monotonic()
            reason = await self._watch()
            if time.monotonic() - since > STABLE_S:
                attempt = 0
            wait_s = self._lose(reason, attempt)
            attempt += 1

    async def _stop_keeper(self) -> None:
        """The old keeper is awaited before another one starts."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

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
                # A failure is in the link's state, which the next turn looks at.
                with contextlib.suppress(HostError):
                    await self.connect()
                continue
            if self.link.state is LinkState.FAILED:
                raise LinkLost(self.link.reason)
            await self._changed.wait()

    async def _up(self) -> asyncssh.SSHClientConnection:
        """The open connection; opens it the first time, and fails at once while it is being opened again."""
        self._check_open()
        if self.link.state is LinkState.NEW:
            await self.connect()
        while self.link.state is LinkState.CONNECTING:
            await self._changed.wait()
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
        await self._stop_keeper()
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

    def lasting_free(self) -> bool:
        """Whether a lasting stream would start at once."""
        return not self._lasting.locked()

    @contextlib.asynccontextmanager
    async def _opened(self, *, lasting: bool) -> AsyncIterator[Process]:
        places = self._lasting if lasting else self._commands
        await places.acquire()
        process: SshProcess | None = None
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

    async def _give_back(self, process: SshProcess, places: asyncio.Semaphore) -> None:
        try:
            with contextlib.suppress(TimeoutError, HostError):
                async with asyncio.timeout(STOP_GRACE_S):
                    await process.drain()
        finally:
            process.close()
            places.release()

    async def _open_channel(self) -> SshProcess:
        import asyncssh

        from tokpit.transport.channel import SshProcess, opened
        from tokpit.transport.mapping import translate

        deadline = time.monotonic() + CHANNEL_PATIENCE_S
        pause_s = 0.1
        while True:
            connection = await self._up()
            try:
                channel = await opened(
                    connection.create_process(BOOTSTRAP, encoding=None, request_pty=False), lambda late: late.close()
                )
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
                return SshProcess(channel, self._lost)

    # --- HTTP

    def session(self) -> aiohttp.ClientSession:
        """An HTTP session whose connections start on the host; see Host.session."""
        from tokpit.transport.http import ssh_session

        return ssh_session(self._up, self.name)

"""HTTP through the SSH connection: aiohttp over direct-tcpip channels, without opening a local port.

aiohttp has no public way to hand a connector its own transport; `_create_connection` is overridden, which is why the
dependency is pinned to a narrow range and a test runs requests through it.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import aiohttp
import asyncssh
from aiohttp.client_proto import ResponseHandler

from tokpit.errors import HostError
from tokpit.transport.channel import opened
from tokpit.transport.mapping import translate

CONNECT_TIMEOUT_S = 10.0

Up = Callable[[], Awaitable[asyncssh.SSHClientConnection]]


class _Channel(asyncssh.SSHTCPSession[bytes]):
    """Passes what a channel receives to an asyncio protocol."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol
        self.transport: ChannelTransport | None = None

    def connection_made(self, chan: asyncssh.SSHTCPChannel[bytes]) -> None:
        self.transport = ChannelTransport(chan, self)
        self.protocol.connection_made(self.transport)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self.protocol.data_received(data)

    def eof_received(self) -> bool:
        return bool(self.protocol.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        self.protocol.connection_lost(None if exc is None else ConnectionResetError(f"The SSH link broke: {exc}"))

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()


class ChannelTransport(asyncio.Transport):
    """An asyncio transport over one SSH channel; pausing it closes the SSH window, so the far server waits."""

    def __init__(self, channel: asyncssh.SSHTCPChannel[bytes], session: _Channel) -> None:
        super().__init__()
        self._channel = channel
        self._session = session
        self._reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Nothing is known of the socket on the far side."""
        return default

    def is_closing(self) -> bool:
        """Whether the channel is closing or closed."""
        return self._channel.is_closing()

    def close(self) -> None:
        """Send what is buffered, then close."""
        self._channel.close()

    def abort(self) -> None:
        """Close at once."""
        self._channel.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the incoming bytes to another protocol."""
        assert isinstance(protocol, asyncio.Protocol)
        self._session.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who gets the incoming bytes."""
        return self._session.protocol

    def is_reading(self) -> bool:
        """Whether bytes are handed on."""
        return self._reading

    def pause_reading(self) -> None:
        """Hand nothing on; the SSH window fills and the far server waits."""
        self._reading = False
        self._channel.pause_reading()

    def resume_reading(self) -> None:
        """Hand bytes on again."""
        self._reading = True
        self._channel.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When the protocol is told to pause and to go on writing, in bytes."""
        self._channel.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait to be sent."""
        return self._channel.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        # A closed channel is reported by connection_lost, as a socket transport would.
        if not self._channel.is_closing():
            self._channel.write(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send the bytes of a list."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """A channel can be closed for one direction."""
        return True

    def write_eof(self) -> None:
        """End the outgoing direction."""
        if not self._channel.is_closing():
            self._channel.write_eof()


class SshConnector(aiohttp.BaseConnector):
    """Connections that start on the far side of an SSH connection. No limit on their number."""

    def __init__(self, up: Up, host: str) -> None:
        super().__init__(limit=0, limit_per_host=0)
        self._up = up
        self._host = host

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        key = req.connection_key
        if req.is_ssl():
            raise aiohttp.ClientConnectorError(key, OSError(errno.EPROTONOSUPPORT, "https over SSH is not supported"))
        address = req.url.raw_host or "127.0.0.1"
        port = req.url.port or 80
        protocol = self._factory()
        try:
            async with asyncio.timeout(timeout.sock_connect or CONNECT_TIMEOUT_S):
                connection = await self._up()
                await opened(
                    connection.create_connection(lambda: _Channel(protocol), address, port),
                    lambda pair: pair[0].abort(),
                )
        except HostError as error:
            raise aiohttp.ClientConnectorError(key, OSError(errno.ENOTCONN, error.message)) from error
        except asyncssh.ChannelOpenError as error:
            refused = "refused" in str(error).lower()
            text = f"{address}:{port} on {self._host}: {str(error).strip() or 'not reachable'}"
            number = errno.ECONNREFUSED if refused else errno.EHOSTUNREACH
            raise aiohttp.ClientConnectorError(key, OSError(number, text)) from error
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"{address}:{port} on {self._host} did not answer in time") from error
        except (asyncssh.Error, OSError) as error:
            told = translate(error, self._host)
            raise aiohttp.ClientConnectorError(key, OSError(errno.ENOTCONN, told.message)) from error
        return protocol


def ssh_session(up: Up, host: str) -> aiohttp.ClientSession:
    """A session over the connection that `up` gives; no total timeout, no connection limit."""
    return _session(SshConnector(up, host))


def local_session() -> aiohttp.ClientSession:
    """The same session without SSH."""
    return _session(aiohttp.TCPConnector(limit=0))


def _session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
    )

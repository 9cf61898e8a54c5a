"""The own session: sockets that carry the kernel's receive time, and responses read inside the event loop's callback.

The arrival of a chunk is the time at which the kernel took the segment (SO_TIMESTAMPNS through `recvmsg`), so that
neither a busy event loop nor a parser adds to it. Everything goes through public interfaces: `socket_factory` of
aiohttp's TCPConnector, a socket subclass whose `recv` is what asyncio calls, and `set_protocol` of the transport.
Plain sockets are read past the transport while an answer streams (`taken`). On other systems and with an older
aiohttp the stamp is the time at which the callback ran.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import weakref
from typing import Any, Optional, cast

import aiohttp
from aiohttp.payload import BytesPayload

from .clock import Clock, now_ns
from .intake import ANCILLARY, READ_BYTES, Intake, kernel_stamp
from .stream import Decoder, Exchange

SO_TIMESTAMPNS = 35
"""asm-generic/socket.h; the socket module has no name for it before Python 3.15. The control message has the same."""
STALE_AFTER_NS = 200_000_000
"""A connection that was free for this long may have been closed by the server without any fault."""


class StampedSocket(socket.socket):
    """A stream socket that remembers when the kernel received what it last read (CLOCK_REALTIME, 0 = unknown)."""

    stamp_ns = 0
    free_since_ns = 0
    """When its last response ended; 0 for a new connection."""

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """As socket.recv, and keeps the stamp."""
        data, ancillary, _, _ = self.recvmsg(min(bufsize, READ_BYTES), ANCILLARY, flags)
        self._keep(ancillary)
        return data

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0, /) -> int:
        """As socket.recv_into, and keeps the stamp."""
        view = memoryview(buffer)[:nbytes] if nbytes else buffer
        size, ancillary, _, _ = self.recvmsg_into([view], ANCILLARY, flags)
        self._keep(ancillary)
        return size

    def _keep(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        self.stamp_ns = kernel_stamp(ancillary)


class StampedBody(BytesPayload):
    """A request body that starts its request's clock when it is written, which is when the request goes out."""

    def __init__(self, body: bytes, exchange: Exchange) -> None:
        super().__init__(body, content_type="application/json")
        self._exchange = exchange

    async def write(self, writer: Any) -> None:
        """Starts the clock, then writes (aiohttp before 3.12 calls this one)."""
        self._exchange.t_sent = now_ns()
        await super().write(writer)

    async def write_with_length(self, writer: Any, content_length: int | None) -> None:
        """Starts the clock, then writes."""
        self._exchange.t_sent = now_ns()
        await super().write_with_length(writer, content_length)


class Relay(asyncio.Protocol):
    """Sits between a transport and aiohttp's protocol while one response streams; hands on what it does not take."""

    def __init__(self, transport: Any, inner: Any) -> None:
        self._transport = transport
        self._inner = inner
        self._decoder: Decoder | None = None
        self._done: asyncio.Future[None] | None = None
        self.lost: BaseException | None = None
        """What broke the connection, where that is known."""
        transport.set_protocol(self)

    def attach(self, response: aiohttp.ClientResponse, decoder: Decoder) -> asyncio.Future[None]:
        """Starts decoding; the future is done at the end of the body, or carries what broke it."""
        raise NotImplementedError

    def detach(self) -> None:
        """Gives the transport back to aiohttp."""
        if self._transport.get_protocol() is self:
            self._transport.set_protocol(self._inner)

    def eof_received(self) -> bool | None:
        """The peer closed its side."""
        return cast(Optional[bool], self._inner.eof_received())

    def pause_writing(self) -> None:
        """Handed on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Handed on."""
        self._inner.resume_writing()


class Tap(Relay):
    """Lets aiohttp's parser have the bytes, and takes out at once what it decoded, with the time of the read.

    From the end of the head until the decoder is attached the transport is paused, so that every byte of the body is
    matched to its own read.
    """

    def __init__(self, transport: Any, inner: Any, sock: StampedSocket | None, clock: Clock) -> None:
        super().__init__(transport, inner)
        self._sock = sock
        self._clock = clock
        self._head = b""
        self._head_seen = self._paused = False
        self._stamp = 0
        self._kernel = False
        self._content: Any = None

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer."""
        sock = self._sock
        kernel = sock is not None and sock.stamp_ns > 0
        self.take(data, self._clock.from_realtime(sock.stamp_ns) if sock is not None and kernel else 0)

    def take(self, data: bytes, kernel_ns: int) -> None:
        """Bytes of the answer that the kernel took at `kernel_ns` (0: not known)."""
        self._stamp, self._kernel = kernel_ns or now_ns(), kernel_ns > 0
        if self._content is None and not self._head_seen:
            self._head = (self._head + data)[-65536:]
            self._head_seen = b"\r\n\r\n" in self._head
            if self._head_seen and not self._transport.is_closing():
                self._transport.pause_reading()
                self._paused = True
        self._inner.data_received(data)
        if self._content is not None:
            self._drain()

    def attach(self, response: aiohttp.ClientResponse, decoder: Decoder) -> asyncio.Future[None]:
        """See Relay."""
        self._content, self._decoder = response.content, decoder
        self._done = asyncio.get_running_loop().create_future()
        self._drain()
        self._resume()
        return self._done

    def detach(self) -> None:
        """See Relay."""
        self._content = None
        if self._sock is not None:
            self._sock.free_since_ns = now_ns()
        super().detach()
        self._resume()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone, cleanly if `exc` is None."""
        self.lost = exc
        self._inner.connection_lost(exc)
        if self._content is not None:
            self._drain(closed=True)

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def _drain(self, *, closed: bool = False) -> None:
        content, done, decoder = self._content, self._done, self._decoder
        if done is None or decoder is None or done.done():
            return
        error = content.exception()
        if error is None:
            data = content.read_nowait()
            if data:
                if self._kernel:
                    decoder.x.kernel_reads += 1
                decoder.spread(decoder.feed(data, self._stamp), 0)
            error = content.exception()
        if error is not None:
            done.set_exception(error)
        elif content.at_eof():
            self.detach()
            done.set_result(None)
        elif closed:
            done.set_exception(self.lost or ConnectionResetError("the connection closed inside the body"))


def untap(response: aiohttp.ClientResponse) -> None:
    """Lets aiohttp read `response` itself; does nothing for a response of a foreign session."""
    tap = getattr(response, "tap", None)
    if isinstance(tap, Relay):
        tap.detach()


class Wire:
    """What belongs to one own session: its clock and its sockets by descriptor."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.kernel_stamps = False
        """Whether this session's sockets can carry kernel stamps."""
        self.intake = Intake(clock) if sys.platform == "linux" else None
        """Reads the streams of plain own sockets."""
        self._sockets: weakref.WeakValueDictionary[int, StampedSocket] = weakref.WeakValueDictionary()

    def open_socket(self, address: Any) -> socket.socket:
        """A socket for aiohttp's `socket_factory`; `address` is an entry of getaddrinfo."""
        family, kind, proto = address[0], address[1], address[2]
        sock = StampedSocket(family=family, type=kind, proto=proto)
        sock.setblocking(False)
        if sys.platform == "linux":
            try:
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            except OSError:
                pass
        self._sockets[sock.fileno()] = sock
        return sock

    def socket_of(self, transport: Any) -> StampedSocket | None:
        """The own socket under `transport`; None for a foreign one."""
        sock = transport.get_extra_info("socket")
        return self._sockets.get(sock.fileno()) if sock is not None else None

    def tap(self, transport: Any, inner: Any, sock: StampedSocket | None) -> Relay:
        """What reads the next response on `transport`."""
        from .taken import Taken

        plain = transport.get_extra_info("ssl_object") is None and not transport.is_closing()
        if sock is not None and self.intake is not None and self.kernel_stamps and plain:
            return Taken(transport, inner, sock, self.intake, self.clock)
        return Tap(transport, inner, sock, self.clock)

    def response_class(self) -> type[aiohttp.ClientResponse]:
        """The response class for a session on this wire."""
        wire = self

        class TappedResponse(aiohttp.ClientResponse):
            """Installs the tap before the first byte of the answer."""

            tap: Relay | None = None
            stale = False

            async def start(self, connection: Any) -> aiohttp.ClientResponse:
                transport = connection.transport
                if transport is not None and hasattr(transport, "set_protocol"):
                    sock = wire.socket_of(transport)
                    self.tap = wire.tap(transport, connection.protocol, sock)
                    if sock is not None and sock.free_since_ns:
                        self.stale = now_ns() - sock.free_since_ns > STALE_AFTER_NS
                try:
                    return await super().start(connection)
                except BaseException as error:
                    if self.tap is not None:
                        self.tap.detach()
                        error.tokpit_stale = self.stale  # type: ignore[attr-defined] # read by the caller
                    raise

        return TappedResponse


def allow_connections(count: int) -> None:
    """Raises this process's soft limit of open files, as far as its hard limit lets it, to fit `count` sockets."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = count + 256
        if soft != resource.RLIM_INFINITY and soft < wanted:
            limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    except (ImportError, OSError, ValueError):
        pass


def open_session(clock: Clock, *, connect_timeout_s: float, wire: Wire | None = None) -> aiohttp.ClientSession:
    """A session made for measuring: no connection limit, no cookies, no proxy, kernel stamps where possible."""
    wire = Wire(clock) if wire is None else wire
    options: dict[str, Any] = {"limit": 0, "limit_per_host": 0, "keepalive_timeout": 4.0, "ttl_dns_cache": 3600}
    try:
        connector = aiohttp.TCPConnector(socket_factory=wire.open_socket, **options)
        wire.kernel_stamps = sys.platform == "linux"
    except TypeError:  # aiohttp before 3.12
        connector = aiohttp.TCPConnector(**options)
    return aiohttp.ClientSession(
        connector=connector,
        response_class=wire.response_class(),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s, sock_read=None),
        trust_env=False,
        auto_decompress=False,
    )

"""One streaming answer read past its transport, from the socket itself, by the session's Intake."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from .chunked import ChunkedError, Dechunker, holds_one
from .clock import Clock, now_ns
from .intake import Intake, segments_in
from .stream import Decoder
from .wire import Relay, StampedSocket, Tap

_LONGEST_HEAD = 64 * 1024
_END = b"0\r\n\r\n"


class Taken(Relay):
    """The transport is paused and the intake reads. aiohttp's parser gets the head, and of a chunked body its end.

    So the parser stands where the stream does when the connection is used again. A body that is not chunked, a
    status other than 200 and whatever breaks off go back to the transport.
    """

    def __init__(self, transport: Any, inner: Any, sock: StampedSocket, intake: Intake, clock: Clock) -> None:
        super().__init__(transport, inner)
        self.sock, self.fd = sock, sock.fileno()
        self._intake, self._clock = intake, clock
        self._head = b""
        self._head_seen = self._closed = False
        self._early: list[tuple[bytes, int, int]] = []
        """Reads of the body before a decoder is attached."""
        self._body = Dechunker()
        self._segments = segments_in(sock)
        self._reads = 0
        self._usual: tuple[bytes, bytes] | None = None
        """Around the text of the next event, while a read that holds just that event may be taken without a parse."""
        transport.pause_reading()
        intake.add(self)

    def arrived(self, data: bytes, stamp_ns: int, since_ns: int) -> int:
        """See intake.Source."""
        self._reads += 1
        if self._decoder is not None:
            if self._usual is not None and holds_one(data, *self._usual):
                self._decoder.x.kernel_reads += 1
                self._decoder.again(stamp_ns)
                return 1
            return self._take(data, stamp_ns, since_ns)
        if self._head_seen:
            self._early.append((data, stamp_ns, since_ns))
            return 0
        self._head += data
        end = _end_of_head(self._head)
        if end or len(self._head) > _LONGEST_HEAD:
            head, rest = self._head[: end or None], self._head[end:] if end else b""
            self._head, self._head_seen = b"", True
            self._inner.data_received(head)
            if rest:
                self._early.append((rest, stamp_ns, since_ns))
        return 0

    def ended(self, error: OSError | None) -> None:
        """See intake.Source."""
        self._closed, self.lost = True, error
        if self._decoder is not None:
            self._break(error or aiohttp.ClientPayloadError("the connection closed inside the body"))
        elif not self._head_seen:
            self._give_back()

    def attach(self, response: aiohttp.ClientResponse, decoder: Decoder) -> asyncio.Future[None]:
        """See Relay."""
        if response.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self._through_aiohttp(response, decoder)
        self._decoder = decoder
        self._done = done = asyncio.get_running_loop().create_future()
        early, self._early = self._early, []
        for data, stamp_ns, since_ns in early:
            self._take(data, stamp_ns, since_ns)
        if self._closed and not done.done():
            self.ended(self.lost if isinstance(self.lost, OSError) else None)
        return done

    def detach(self) -> None:
        """See Relay."""
        if self._transport.get_protocol() is self:
            self._give_back()
            super().detach()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone, cleanly if `exc` is None."""
        self._intake.remove(self)
        self.lost = self.lost or exc
        self._inner.connection_lost(self.lost)
        if self._done is not None and not self._done.done():
            self._done.set_exception(self.lost or aiohttp.ClientPayloadError("the connection closed inside the body"))

    def _take(self, data: bytes, stamp_ns: int, since_ns: int) -> int:
        body, decoder, done = self._body, self._decoder, self._done
        if decoder is None or done is None or done.done():
            return 0
        try:
            text = body.feed(data)
        except ChunkedError as error:
            decoder.x.malformed = decoder.x.malformed or f"the chunked coding of the answer is broken: {error}"
            self._break(aiohttp.ClientPayloadError(str(error)))
            return 0
        got = 0
        if text:
            decoder.x.kernel_reads += 1
            got = decoder.feed(text, stamp_ns)
            if got > 1 and not self._in_one_segment():
                decoder.spread(got, since_ns)
        self._usual = decoder.usual() if body.between else None
        if body.ended:
            self._intake.remove(self)
            self._inner.data_received(_END)
            self.detach()
            if body.rest:
                self._transport.close()
            done.set_result(None)
        return got

    def _in_one_segment(self) -> bool:
        """Whether all reads since the last question were of one segment each: then nothing came apart in time."""
        before, reads = self._segments, self._reads
        self._segments, self._reads = segments_in(self.sock), 0
        return before is not None and self._segments is not None and self._segments - before <= reads

    def _through_aiohttp(self, response: aiohttp.ClientResponse, decoder: Decoder) -> asyncio.Future[None]:
        self._intake.remove(self)
        tap = Tap(self._transport, self._inner, self.sock, self._clock)
        done = tap.attach(response, decoder)
        for data, stamp_ns, _ in self._early:
            tap.take(data, stamp_ns)
        self._resume()
        return done

    def _break(self, error: BaseException) -> None:
        assert self._done is not None
        if not self._done.done():
            self._done.set_exception(error)
        self._intake.remove(self)
        self._transport.abort()

    def _give_back(self) -> None:
        """What was read goes to aiohttp; the rest, the end included, the transport finds itself."""
        self._intake.remove(self)
        self.sock.free_since_ns = now_ns()
        early, self._early = self._early, []
        for data in (self._head, *(data for data, _, _ in early)):
            if data:
                self._inner.data_received(data)
        self._head = b""
        self._resume()

    def _resume(self) -> None:
        if isinstance(self.lost, OSError):
            self._transport.abort()
        elif not self._transport.is_closing():
            self._transport.resume_reading()


def _end_of_head(data: bytes) -> int:
    """Where the body begins, after the head of the final answer; 0: not yet."""
    at = 0
    while (end := data.find(b"\r\n\r\n", at)) >= 0:
        if data[at : at + 10] not in (b"HTTP/1.1 1", b"HTTP/1.0 1"):
            return end + 4
        at = end + 4
    return 0

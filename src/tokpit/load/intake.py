"""Reads every streaming answer of a session from one epoll, and does not hurry: the kernel keeps the time.

A chunk's arrival is when the kernel took its segment (SO_TIMESTAMPNS through `recvmsg`), so reading it a millisecond
later costs no truth and saves a wake-up of the event loop for each chunk. The pause between two reads stays far below
the gaps between a stream's chunks, so that two of them do not fall into one read; where they do (a machine that took
the core away), the time of the poll before bounds when the first of them came.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
from typing import TYPE_CHECKING, Any, Protocol

from .clock import Clock, now_ns

if TYPE_CHECKING:
    from .wire import StampedSocket

LONGEST_PAUSE_S = 0.002
SHORTEST_PAUSE_S = 0.001
"""Under it asyncio's timers do not tell pauses apart; the sockets' readiness wakes the loop then."""
PAUSE_OF_GAP = 0.125
PAUSE_OF_REQUEST = 0.001
"""A closed loop sends its next request late by half a pause: that must not show in the throughput."""
WINDOW_NS = 100_000_000
LATE_NS = 2_000_000
"""A read whose oldest segment waited this long was late: the core was elsewhere."""
MERGED_SHARE = 0.01
"""Reads with several chunks, of all reads in a window, over which the pause is left out for a second."""
READ_BYTES = 64 * 1024
_SPEC = struct.Struct("@qq")
ANCILLARY = socket.CMSG_SPACE(_SPEC.size) if hasattr(socket, "CMSG_SPACE") else 0
_SEGMENTS_IN = struct.Struct("=I")
_SEGMENTS_AT = 152
"""Offset of tcpi_data_segs_in in struct tcp_info (linux/tcp.h, since Linux 4.6)."""


class Source(Protocol):
    """Who owns a stream: gets its bytes, and its end (None: closed by the peer)."""

    sock: StampedSocket
    fd: int

    def arrived(self, data: bytes, stamp_ns: int, since_ns: int) -> int:
        """Bytes with the kernel's monotonic stamp, none of them here before `since_ns` (0: not known).

        Returns how many chunks of text were in them.
        """

    def ended(self, error: OSError | None) -> None:
        """No more bytes will come."""


class Intake:
    """The streams that are read now. It opens its epoll with the first one and closes it with the last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sources: dict[int, Source] = {}
        self._begun: dict[int, int] = {}
        self._epoll: Any = None
        self._loop: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._polled_ns = 0
        self.pause_s = 0.0
        """How long nothing is read after a read; 0: readiness wakes."""
        self._request_s = float("inf")
        self._window_ns = self._reads = self._merged = self._hold = 0
        self._active: set[int] = set()

    def add(self, source: Source) -> None:
        """Begins to read `source`."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._epoll.fileno(), self._ready)
        self._sources[source.fd] = source
        self._begun[source.fd] = now_ns()
        self._epoll.register(source.fd, select.EPOLLIN)

    def remove(self, source: Source) -> None:
        """Ends to read `source`; does nothing where it was not read."""
        if self._sources.get(source.fd) is not source:
            return
        del self._sources[source.fd]
        took_s = (now_ns() - self._begun.pop(source.fd)) / 1e9
        self._request_s = took_s if self._request_s == float("inf") else 0.9 * self._request_s + 0.1 * took_s
        with contextlib.suppress(OSError):  # closed already
            self._epoll.unregister(source.fd)
        if not self._sources:
            self._close()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        else:
            self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._epoll = None

    # -- two ways to wake: readiness, or the end of a pause

    def _ready(self) -> None:
        self._poll(known=False)
        if self._epoll is not None and self.pause_s:
            self._loop.remove_reader(self._epoll.fileno())
            self._timer = self._loop.call_later(self.pause_s, self._again)

    def _again(self) -> None:
        found = self._poll(known=True)
        if self._timer is None or self._epoll is None:
            return
        if found and self.pause_s:
            self._timer = self._loop.call_later(self.pause_s, self._again)
        else:
            self._timer = None
            self._loop.add_reader(self._epoll.fileno(), self._ready)

    def _poll(self, *, known: bool) -> bool:
        """Reads what is there; `known`: what the poll before did not find came after it, and that was just now."""
        before, self._polled_ns = self._polled_ns, now_ns()
        came: list[tuple[Source, bytes, int]] = []
        broken: list[tuple[Source, OSError]] = []
        offset, oldest = self._clock.offset_ns, self._polled_ns
        for fd, _ in self._epoll.poll(0, len(self._sources)):
            source = self._sources[fd]
            try:
                data, ancillary, _, _ = source.sock.recvmsg(READ_BYTES, ANCILLARY)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                broken.append((source, error))
                continue
            stamp = kernel_stamp(ancillary)
            stamp = stamp - offset if stamp else self._polled_ns
            oldest = min(oldest, stamp)
            came.append((source, data, stamp))
        since = before if known else oldest if oldest < self._polled_ns - LATE_NS else 0
        for source, data, stamp in came:
            if not data:
                self._end(source, None)
            elif self._sources.get(source.fd) is source:
                self._merged += source.arrived(data, stamp, since) > 1
                self._active.add(id(source))
        for source, what in broken:
            self._end(source, what)
        self._reads += len(came)
        if self._polled_ns - self._window_ns > WINDOW_NS:
            self._settle()
        return bool(came)

    def _end(self, source: Source, error: OSError | None) -> None:
        if self._sources.get(source.fd) is source:
            self.remove(source)
            source.ended(error)

    def _settle(self) -> None:
        """Sets the pause from the gaps in the last window."""
        length_s = (self._polled_ns - self._window_ns) / 1e9
        if self._reads and length_s < 1:
            gap_s = len(self._active) * length_s / self._reads
            pause_s = min(LONGEST_PAUSE_S, PAUSE_OF_GAP * gap_s, PAUSE_OF_REQUEST * self._request_s)
            self._hold = 10 if self.pause_s and self._merged > MERGED_SHARE * self._reads else max(0, self._hold - 1)
            self.pause_s = 0.0 if self._hold or pause_s < SHORTEST_PAUSE_S else pause_s
        self._window_ns, self._reads, self._merged = self._polled_ns, 0, 0
        self._active.clear()


def kernel_stamp(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The receive time (CLOCK_REALTIME, ns) in the control messages of a read; 0 if there is none."""
    for _level, _kind, data in ancillary:
        if len(data) == _SPEC.size:
            seconds, nanoseconds = _SPEC.unpack(data)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return 0


def segments_in(sock: socket.socket) -> int | None:
    """Segments with data that `sock` has received so far; None where the system does not say."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except (OSError, AttributeError):
        return None
    if len(info) < _SEGMENTS_AT + _SEGMENTS_IN.size:
        return None
    return int(_SEGMENTS_IN.unpack_from(info, _SEGMENTS_AT)[0])

"""Server-sent events from raw bytes: linear in the input, whatever way the network cut it."""

from __future__ import annotations

MAX_EVENT_BYTES = 32 * 1024 * 1024


class SseError(ValueError):
    """The stream is not server-sent events any more."""


class SseSplitter:
    """Bytes in, event data out.

    Follows the HTML standard's event stream format (LF, CRLF or CR line ends, comments, several `data` lines joined
    by LF, one optional space after the colon) and stays in bytes, so that neither a split UTF-8 character nor
    U+2028 inside a string can break a line. `flush` also gives an event that the peer did not end with a blank line.
    """

    __slots__ = ("_buf", "_data", "_error_event", "_scan", "_skip_lf", "_started", "error_events")

    def __init__(self) -> None:
        self._buf = bytearray()
        self._scan = 0
        self._data: list[bytes] = []
        self._skip_lf = False
        self._started = False
        self._error_event = False
        self.error_events: list[bytes] = []
        """Data of the events that were named `error`; they are in the returned list too."""

    @property
    def clean(self) -> bool:
        """Whether the next byte begins an event, and nothing before bears on it."""
        return self._started and not (self._buf or self._data or self._skip_lf or self._error_event)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of every event that `chunk` completes; raises SseError for an event over 32 MiB."""
        if not self.clean or chunk[-2:] != b"\n\n" or b"\r" in chunk:
            return self._general(chunk)
        # The usual read: whole events, LF only. No copy through the buffer.
        events: list[bytes] = []
        for block in chunk[:-2].split(b"\n\n"):
            if block[:6] == b"data: " and b"\n" not in block:
                events.append(block[6:])
            else:
                self._block(block, events)
        return events

    def flush(self) -> list[bytes]:
        """What is left at a clean end of the body."""
        events: list[bytes] = []
        if self._buf:
            self._line(bytes(self._buf), events)
            self._buf.clear()
        self._line(b"", events)
        return events

    @property
    def pending(self) -> bool:
        """Whether an unfinished event is held."""
        return bool(self._buf or self._data)

    def _block(self, block: bytes, events: list[bytes]) -> None:
        for line in block.split(b"\n"):
            self._line(line, events)
        self._line(b"", events)

    def _general(self, chunk: bytes) -> list[bytes]:
        events: list[bytes] = []
        buf = self._buf
        buf += chunk
        if not self._started:
            if len(buf) < 3 and b"\xef\xbb\xbf".startswith(bytes(buf)):
                return events
            self._started = True
            if buf.startswith(b"\xef\xbb\xbf"):
                del buf[:3]
        start, scan = 0, self._scan
        size = len(buf)
        while scan < size:
            if self._skip_lf:
                self._skip_lf = False
                if buf[scan] == 10:
                    scan += 1
                    start = scan
                    continue
            lf = buf.find(b"\n", scan)
            cr = buf.find(b"\r", scan, lf if lf >= 0 else size)
            end = cr if cr >= 0 else lf
            if end < 0:
                break
            self._line(bytes(buf[start:end]), events)
            self._skip_lf = cr >= 0
            start = scan = end + 1
        if start:
            del buf[:start]
        self._scan = len(buf)
        if len(buf) + sum(map(len, self._data)) > MAX_EVENT_BYTES:
            raise SseError(f"one event is over {MAX_EVENT_BYTES >> 20} MiB")
        return events

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self._data = []
                events.append(data)
                if self._error_event:
                    self.error_events.append(data)
            self._error_event = False
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            self._data.append(b"")
        elif line.startswith(b"event:"):
            self._error_event = line[6:].strip() == b"error"

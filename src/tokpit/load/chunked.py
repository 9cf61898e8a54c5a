"""The body inside HTTP/1.1's chunked transfer coding (RFC 9112, section 7.1). Pure."""

from __future__ import annotations

_LONGEST_LINE = 64 * 1024
_SIZE, _CONTENT, _LINE_END, _TRAILER = range(4)


class ChunkedError(ValueError):
    """The framing is broken: no later byte of the connection can be understood."""


class Dechunker:
    """Bytes of a chunked body in, its content out, whatever way the network cut it; extensions and trailers go."""

    __slots__ = ("_left", "_line", "_next", "ended", "rest")

    def __init__(self) -> None:
        self._next = _SIZE
        self._left = 0
        """Bytes of the current chunk still to come."""
        self._line = b""
        self.ended = False
        """Whether the last chunk and its trailer were read."""
        self.rest = b""
        """What came after the end."""

    @property
    def between(self) -> bool:
        """Whether the next byte begins a chunk."""
        return self._next == _SIZE and not self._line

    def feed(self, data: bytes) -> bytes:
        """The content in `data`; raises ChunkedError."""
        if self.between:
            # The usual read: one whole chunk.
            end = data.find(b"\r\n", 0, 18)
            if end > 0 and data[-2:] == b"\r\n" and len(data) == end + 4 + (_size(data[:end]) or -1):
                return data[end + 2 : -2]
        return self._general(data)

    def _general(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        at = 0
        while at < len(data) and not self.ended:
            if self._next == _CONTENT:
                take = data[at : at + self._left]
                parts.append(take)
                at += len(take)
                self._left -= len(take)
                if not self._left:
                    self._next = _LINE_END
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self._line += data[at:]
                at = len(data)
                if len(self._line) > _LONGEST_LINE:
                    raise ChunkedError("a line of the chunked coding does not end")
            else:
                line, self._line = self._line + data[at:end], b""
                at = end + 1
                self._take_line(line[:-1] if line[-1:] == b"\r" else line)
        if self.ended:
            self.rest += data[at:]
        return b"".join(parts)

    def _take_line(self, line: bytes) -> None:
        if self._next == _SIZE:
            self._left = _size(line)
            self._next = _CONTENT if self._left else _TRAILER
        elif self._next == _TRAILER:
            self.ended = not line
        elif line:
            raise ChunkedError("a chunk does not end where its size says")
        else:
            self._next = _SIZE


def holds_one(data: bytes, head: bytes, tail: bytes) -> bool:
    """Whether `data` is one whole chunk whose content is `head`, a text without a quotation mark, and `tail`."""
    end = data.find(b"\r\n", 0, 18)
    begin, stop = end + 2 + len(head), len(data) - 2 - len(tail)
    if (
        end < 1
        or begin >= stop
        or data[stop:-2] != tail
        or data[-2:] != b"\r\n"
        or not data.startswith(head, end + 2)
        or data.find(b'"', begin, stop) >= 0
    ):
        return False
    try:
        return _size(data[:end]) == len(data) - end - 4
    except ChunkedError:
        return False


def _size(line: bytes) -> int:
    text = line.split(b";", 1)[0].strip()
    if not text or text[:1] in b"+-" or b"_" in text or b"x" in text:
        raise ChunkedError(f"{line[:20]!r} is no chunk size")
    try:
        return int(text, 16)
    except ValueError:
        raise ChunkedError(f"{line[:20]!r} is no chunk size") from None

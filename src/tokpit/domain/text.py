"""Text hygiene: bytes from a host become lines that are only text.

`LineSplitter` cuts bytes into lines without ever holding more than `limit` bytes of one line; `sanitize` makes a
decoded line safe to print on any terminal: no escape sequence, control character or bidirectional override is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
# C0 except tab, DEL, C1, zero-width and bidirectional controls, line and paragraph separators, BOM, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def sanitize(text: str) -> str:
    """`text` without terminal escapes and control characters; tabs stay, everything else is unchanged.

    Linear in the length of the text. Each unsafe character that is not part of an escape becomes U+FFFD, so that
    a reader sees that something was there.
    """
    if "\x1b" in text or "\x9b" in text:
        text = _ANSI.sub("", text)
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub("\ufffd", text)


class LineSplitter:
    """Cuts a byte stream into lines at `\\n` and at `\\r` (progress bars); `\\r\\n` is one ending.

    A line longer than `limit` bytes is handed out in pieces of `limit` bytes, so memory stays bounded whatever the
    host sends. `offset` is the number of bytes consumed by the lines handed out so far, from which a follow can resume.
    """

    def __init__(self, *, limit: int = 1 << 20, offset: int = 0) -> None:
        self._limit = limit
        self._rest = b""
        self.offset = offset

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each complete line in `data` (and what was held back), without its ending."""
        buffer = self._rest + data if self._rest else data
        start = 0
        size = len(buffer)
        while start < size:
            newline = buffer.find(b"\n", start)
            stop = size if newline < 0 else newline
            bar = buffer.find(b"\r", start, stop)
            if bar >= 0 and bar + 1 == size:
                break  # the ending may be half of \r\n: wait for the next byte
            if bar >= 0 and buffer[bar + 1] == 0x0A:
                end, after = bar, bar + 2
            elif bar >= 0:
                end, after = bar, bar + 1
            elif newline >= 0:
                end, after = newline, newline + 1
            elif size - start >= self._limit:
                end = after = start + self._limit
            else:
                break
            if end - start > self._limit:
                end = after = start + self._limit
            self.offset += after - start
            yield buffer[start:end]
            start = after
        self._rest = buffer[start:]

    def flush(self) -> bytes | None:
        """The unfinished last line, if any, once the stream has ended."""
        rest, self._rest = self._rest, b""
        if not rest:
            return None
        self.offset += len(rest)
        return rest.rstrip(b"\r")


def decode_line(raw: bytes) -> str:
    """One line of bytes as safe text; undecodable bytes become U+FFFD."""
    return sanitize(raw.decode("utf-8", "replace"))


def decode_lines(data: bytes) -> list[str]:
    """The lines of a whole piece of a log, the last one also where it has no ending."""
    splitter = LineSplitter()
    raw = list(splitter.feed(data))
    if (rest := splitter.flush()) is not None:
        raw.append(rest)
    return [decode_line(line) for line in raw]


def mask_secrets(text: str) -> str:
    """`text` with API keys, tokens and passwords in flags, headers and environment settings replaced by `***`."""
    return _SECRET.sub(lambda m: m.group(1) + MASK, text)


MASK = "***"
"""What stands for a secret wherever it is shown or stored."""


_SECRET = re.compile(
    r"""(?ix)
    ( --(?:admin-)?(?:api|hf|auth)[-_]?(?:key|token)(?:=|\s+)
    | --(?:ssl-keyfile-)?password(?:=|\s+)
    | \b[A-Z0-9_]*(?:API_KEY|TOKEN|SECRET|PASSWORD)=
    | ['"]?\b(?:admin_|ssl_keyfile_)?(?:api_key|hf_token|password|auth_token)['"]?\s*[=:]\s*['"\[]*
    | \bAuthorization:\s*(?:Bearer|Basic)\s+ )
    (?!None\b|\*\*\*)[^\s'",\]\)]+
    """
)

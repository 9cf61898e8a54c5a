"""The chunked transfer coding, whatever way the network cut it."""

from __future__ import annotations

import itertools
import random

import pytest

from tokpit.load.chunked import ChunkedError, Dechunker

BODY = b"5\r\nhello\r\n18;name=value\r\n" + b"\r\n0\r\n\r\nfff\r\n" * 2 + b"\r\n0\r\nTrailer: x\r\n\r\n"
CONTENT = b"hello" + b"\r\n0\r\n\r\nfff\r\n" * 2


def test_every_cut_gives_the_same_content() -> None:
    assert len(CONTENT) == 5 + 0x18
    for seed in range(200):
        draw = random.Random(seed)
        cuts = sorted(draw.sample(range(len(BODY)), draw.randrange(1, 20)))
        body, content = Dechunker(), b""
        for start, end in itertools.pairwise([0, *cuts, len(BODY)]):
            assert not body.ended
            content += body.feed(BODY[start:end])
        assert (content, body.ended, body.rest) == (CONTENT, True, b""), cuts


def test_one_chunk_a_read_and_the_end_on_its_own() -> None:
    body = Dechunker()
    assert body.feed(b"3\r\nabc\r\n") == b"abc"
    assert body.feed(b"3\r\nabc\r\n2\r\nde\r\n") == b"abcde"
    assert (body.feed(b"0\r\n\r\n"), body.ended) == (b"", True)


def test_what_follows_the_end_is_not_content() -> None:
    body = Dechunker()
    assert (body.feed(b"0\r\n\r\nHTTP/1.1"), body.rest) == (b"", b"HTTP/1.1")
    assert (body.feed(b" 200"), body.rest) == (b"", b"HTTP/1.1 200")


@pytest.mark.parametrize("bad", [b"zz\r\n", b"-1\r\n", b"0x1\r\n", b"1_0\r\n", b"\r\n", b"2\r\nabc\r\n", b"1" * 70_000])
def test_broken_framing_is_an_error(bad: bytes) -> None:
    with pytest.raises(ChunkedError):
        Dechunker().feed(bad)

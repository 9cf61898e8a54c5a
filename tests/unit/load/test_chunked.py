"""The chunked transfer coding, whatever way the network cut it."""

from __future__ import annotations

import itertools
import random

import pytest

from tokpit.load.chunked import ChunkedError, Dechunker, holds_one
from tokpit.load.stream import Decoder, Exchange

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


def _event(text: str, role: str = "") -> bytes:
    return b'data: {"id":"a","choices":[{"index":0,"delta":{%s"content":"%s"},"finish_reason":null}]}\n\n' % (
        role.encode(),
        text.encode(),
    )


def _chunk(*parts: bytes) -> bytes:
    content = b"".join(parts)
    return b"%x\r\n%s\r\n" % (len(content), content)


@pytest.mark.parametrize(
    ("read", "one"),
    [
        (_chunk(_event("word")), True),
        (_chunk(_event("\u00e9\\n")), True),
        (_chunk(_event("a"), _event("b")), False),
        (_chunk(_event("a")) + _chunk(_event("b")), False),
        (_chunk(_event("")), False),
        (_chunk(_event('say \\"x\\"')), False),
        (_chunk(_event("word", '"role":"assistant",')), False),
        (_chunk(_event("word"))[:-3], False),
        (_chunk(_event("word"))[1:], False),
        (b"0x" + _chunk(_event("word")), False),
        (b"ff\r\n" + _chunk(_event("word"))[4:], False),
        (_chunk(b"data: [DONE]\n\n"), False),
        (_chunk(b": ping\n\n", _event("word")), False),
    ],
)
def test_a_read_is_taken_without_a_parse_only_where_the_parse_finds_one_event_like_the_last(
    read: bytes, one: bool
) -> None:
    body, x = Dechunker(), Exchange(0)
    decoder = Decoder(x)
    decoder.feed(body.feed(_chunk(_event("first"))), 1)
    usual = decoder.usual()
    assert usual is not None
    assert holds_one(read, *usual) is one
    if one:
        short = Exchange(0)
        again = Decoder(short)
        again.feed(Dechunker().feed(_chunk(_event("first"))), 1)
        again.again(2)
        decoder.feed(body.feed(read), 2)
        assert (list(short.stamps), short.events, short.reads, short.t_last_rx) == (
            list(x.stamps),
            x.events,
            x.reads,
            x.t_last_rx,
        )


def test_nothing_is_usual_inside_a_chunk_or_an_event() -> None:
    body, decoder = Dechunker(), Decoder(Exchange(0))
    assert decoder.usual() is None
    read = _chunk(_event("first"))
    decoder.feed(body.feed(read[:20]), 1)
    assert not body.between
    assert decoder.usual() is None
    decoder.feed(body.feed(read[20:]), 1)
    assert body.between
    assert decoder.usual() is not None
    decoder.feed(body.feed(_chunk(b"data: half")), 1)
    assert decoder.usual() is None

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpit.load import sse
from tokpit.load.sse import SseError, SseSplitter


def events(*chunks: bytes) -> list[bytes]:
    splitter = SseSplitter()
    return [found for chunk in chunks for found in splitter.feed(chunk)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_ending_gives_the_same_events(end: bytes) -> None:
    stream = end.join([b"data: a", b"", b"data: b", b"", b""])
    assert events(stream) == [b"a", b"b"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_comes_out_with_its_last_byte_whatever_the_cut(end: bytes) -> None:
    stream = end.join([b"data: first", b"", b"data: one", b"data: two", b"", b": note", b"data:x", b"", b""])
    splitter = SseSplitter()
    found: list[tuple[int, bytes]] = []
    for position in range(len(stream)):
        found += [(position, data) for data in splitter.feed(stream[position : position + 1])]
    assert [data for _, data in found] == [b"first", b"one\ntwo", b"x"]
    # CR alone cannot wait for a LF that never comes.
    assert found[0][0] == len(b"data: first") + 2 * len(end) - 1 - (len(end) - 1)


def test_comments_blank_events_and_other_fields_are_no_events() -> None:
    assert events(b":\n\n: keep-alive\n\n\n\nid: 7\nretry: 10\nevent: x\n\ndata: y\n\n") == [b"y"]


def test_one_space_after_the_colon_goes_and_no_more() -> None:
    assert events(b"data:{1}\n\ndata: {2}\n\ndata:  {3}\n\ndata\n\n") == [b"{1}", b"{2}", b" {3}", b""]


def test_events_that_share_a_read_come_apart() -> None:
    assert events(b"data: 0\n\n", b"data: 1\n\ndata: 2\n\ndata: 3\n\n") == [b"0", b"1", b"2", b"3"]


def test_a_split_character_and_unicode_line_separators_stay_inside_their_event() -> None:
    text = "中\u2028文\u0085é".encode()
    stream = b"data: " + text + b"\n\n"
    for cut in range(1, len(stream)):
        assert events(stream[:cut], stream[cut:]) == [text]


def test_a_byte_order_mark_is_not_data() -> None:
    assert events(b"\xef\xbb", b"\xbfdata: a\n\n") == [b"a"]
    assert events(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]


def test_a_last_event_without_blank_line_is_kept_at_a_clean_end() -> None:
    splitter = SseSplitter()
    assert splitter.feed(b"data: a\n\ndata: [DONE]") == [b"a"]
    assert splitter.flush() == [b"[DONE]"]
    assert splitter.flush() == []


def test_a_huge_event_in_small_pieces_is_one_event() -> None:
    data = b"x" * 300_000
    stream = b"data: " + data + b"\n\n"
    assert events(*(stream[i : i + 1000] for i in range(0, len(stream), 1000))) == [data]


def test_an_endless_event_ends_in_an_error_instead_of_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    with pytest.raises(SseError):
        events(*([b"data: " + b"y" * 50 + b"\n"] * 30))


def test_error_events_are_known_by_name() -> None:
    splitter = SseSplitter()
    assert splitter.feed(b'event: error\ndata: {"message":"x"}\n\ndata: z\n\n') == [b'{"message":"x"}', b"z"]
    assert splitter.error_events == [b'{"message":"x"}']


@given(st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\r", b"").replace(b"\n", b"")), max_size=8), st.data())
def test_no_way_of_cutting_changes_the_events(payloads: list[bytes], data: st.DataObject) -> None:
    end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    stream = b"".join(b"data:" + b" " + payload + end + end for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert events(*pieces) == payloads

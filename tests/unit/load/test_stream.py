"""What an answer's bytes mean. The streams are those of real engines and proxies that fooled other clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tokpit.load.stream import Decoder, Exchange, conclude, shown


def data(chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def delta(**fields: Any) -> bytes:
    return data({"id": "a", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]})


FINISH = data({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
DONE = b"data: [DONE]\n\n"


def usage(completion: int, prompt: int = 9, **more: Any) -> bytes:
    total = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
    return data({"choices": [], "usage": total})


def decode(*reads: bytes, end: bool = True) -> Exchange:
    """Feeds read i at time i + 1 (seconds) and concludes."""
    x = Exchange(0)
    decoder = Decoder(x)
    for position, read in enumerate(reads):
        decoder.feed(read, (position + 1) * 1_000_000_000)
    if end:
        decoder.end((len(reads) + 1) * 1_000_000_000)
    conclude(x)
    return x


def test_tokens_are_the_servers_count_where_a_chunk_carries_several() -> None:
    x = decode(delta(content="one two three "), delta(content="four five six "), FINISH, usage(6), DONE)
    assert (x.outcome, x.tokens, len(x.stamps)) == ("ok", 6, 2)
    assert not x.estimated


def test_reasoning_under_either_name_starts_the_clock() -> None:
    x = decode(delta(role="assistant"), delta(reasoning="Hm"), delta(reasoning_content=" so"), FINISH, usage(300), DONE)
    assert (x.outcome, x.t_first, x.t_answer, x.tokens) == ("ok", 2_000_000_000, 0, 300)
    x = decode(delta(reasoning="Hm"), delta(content="Yes"), FINISH, usage(2), DONE)
    assert (x.t_first, x.t_answer) == (1_000_000_000, 2_000_000_000)


def test_neither_a_role_nor_an_empty_or_null_delta_is_the_first_token() -> None:
    x = decode(
        delta(role="assistant", content=""), delta(content=None), delta(), delta(content="Hi"), FINISH, usage(1), DONE
    )
    assert (x.t_first, list(x.stamps)) == (4_000_000_000, [4_000_000_000])


def test_a_tool_call_is_output() -> None:
    x = decode(delta(tool_calls=[{"index": 0, "function": {"name": "f"}}]), FINISH, usage(5), DONE)
    assert (x.outcome, x.t_first, x.t_answer) == ("ok", 1_000_000_000, 1_000_000_000)


def test_completions_text_counts_as_chat_content_does() -> None:
    text = data({"choices": [{"index": 0, "text": "abc", "finish_reason": None}]})
    last = data({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
    x = decode(text, text, last, usage(2), DONE)
    assert (x.outcome, x.finish, len(x.stamps), x.tokens) == ("ok", "length", 2, 2)


@pytest.mark.parametrize("after", [DONE, b""])
def test_an_error_object_alone_is_a_failure_with_its_message(after: bytes) -> None:
    x = decode(data({"error": {"message": "took too long", "type": "Timeout", "code": 504}}) + after)
    assert (x.outcome, x.detail, x.tokens) == ("error_in_stream", "took too long (504)", 0)


def test_an_error_after_half_an_answer_is_a_failure_even_before_a_proper_end() -> None:
    error = data({"error": {"message": "engine died", "code": 500}})
    x = decode(delta(content="a "), delta(content="b "), error, FINISH, usage(2), DONE)
    assert (x.outcome, x.detail, len(x.stamps)) == ("error_in_stream", "engine died (500)", 2)


def test_other_shapes_of_errors_are_errors() -> None:
    assert decode(data({"object": "error", "message": "bad", "code": 400})).detail == "bad (400)"
    assert decode(b'event: error\ndata: {"message":"gone"}\n\n').detail == "gone"
    assert decode(data({"error": "plain words"})).detail == "plain words"
    x = decode(b'{"error":{"message":"no stream for you"}}')
    assert (x.outcome, x.detail) == ("error_in_stream", "no stream for you")


def test_a_character_cut_between_reads_is_no_error() -> None:
    stream = delta(content="中文") + FINISH + usage(2) + DONE
    at = stream.index("中".encode()) + 1
    x = decode(stream[:at], stream[at:])
    assert (x.outcome, x.tokens) == ("ok", 2)


def test_line_separators_inside_a_string_do_not_cut_it() -> None:
    x = decode(delta(content="a\u2028b\u0085c"), FINISH, usage(3), DONE)
    assert (x.outcome, len(x.stamps)) == ("ok", 1)


def test_comments_during_a_long_prefill_are_not_tokens() -> None:
    x = decode(b":\n\n", b": keep-alive\n\n", b"data: : again\n\n", delta(content="ok"), FINISH, usage(1), DONE)
    assert (x.outcome, x.t_first) == ("ok", 4_000_000_000)


def test_without_usage_chunks_stand_in_and_it_is_marked() -> None:
    x = decode(delta(content="hello"), delta(content=" world"), FINISH, DONE)
    assert (x.outcome, x.tokens, x.estimated) == ("ok", 2, True)


def test_the_last_usage_wins_over_zeros_and_nulls_before_it() -> None:
    def chunk(text: str, count: dict[str, int] | None) -> bytes:
        return data({"choices": [{"delta": {"content": text}}], "usage": count})

    last = {
        "choices": [{"delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 55},
    }
    x = decode(chunk("x", None), chunk("y", {"prompt_tokens": 0, "completion_tokens": 0}), data(last), DONE)
    assert (x.outcome, x.tokens, x.prompt_tokens) == ("ok", 55, 7)


def test_usage_beside_a_choice_with_an_empty_delta_counts_and_tells_cached_tokens() -> None:
    last = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 70, "completion_tokens": 130, "prompt_tokens_details": {"cached_tokens": 64}},
    }
    x = decode(delta(content="x"), data(last), DONE)
    assert (x.tokens, x.cached_tokens) == (130, 64)


def test_continuous_usage_tells_the_tokens_of_each_chunk() -> None:
    def chunk(count: int) -> bytes:
        body = {"choices": [{"index": 0, "delta": {"content": "x"}}]}
        return data({**body, "usage": {"prompt_tokens": 5, "completion_tokens": count}})

    x = decode(chunk(3), chunk(4), chunk(8), FINISH, usage(8), DONE)
    assert list(x.cum_tokens) == [3, 4, 8]


def test_an_early_stop_is_ok_and_credited_with_what_it_made() -> None:
    x = decode(delta(content="x"), FINISH, usage(104), DONE)
    assert (x.outcome, x.finish, x.tokens) == ("ok", "stop", 104)


def test_a_stream_without_done_is_ok_if_it_is_otherwise_whole() -> None:
    x = decode(delta(content="x"), FINISH, usage(1))
    assert (x.outcome, x.done) == ("ok", False)


def test_a_clean_end_without_a_finish_reason_is_truncated() -> None:
    x = decode(delta(content="x"), delta(content="y"))
    assert (x.outcome, x.detail) == ("truncated", "the stream ended after 2 chunks without a finish reason")


@pytest.mark.parametrize("reads", [(), (b"",), (delta(role="assistant"), FINISH, usage(0), DONE), (DONE,)])
def test_status_200_without_a_token_is_empty_not_zero_speed(reads: tuple[bytes, ...]) -> None:
    assert decode(*reads).outcome == "empty"


@pytest.mark.parametrize("bad", [b"data: {oops\n\n", b"data: 7\n\n", b'data: {"a":"\xff"}\n\n'])
def test_one_malformed_event_spoils_the_answer(bad: bytes) -> None:
    x = decode(delta(content="x"), bad, FINISH, usage(1), DONE)
    assert x.outcome == "bad_sse"
    assert x.detail


def test_an_answer_that_does_not_stream_is_told_as_such() -> None:
    x = decode(b'{"choices":[{"message":{"content":"all at once"}}]}')
    assert x.outcome == "bad_sse"
    assert "without streaming" in x.detail
    assert "not an event stream" in decode(b"<html>proxy</html>").detail


def test_a_break_after_everything_arrived_is_no_loss() -> None:
    x = decode(delta(content="x"), FINISH, usage(1), DONE, end=False)
    conclude(x, "the connection closed")
    assert x.outcome == "ok"


@pytest.mark.parametrize(("reset", "outcome"), [(False, "truncated"), (True, "reset")])
def test_a_break_inside_an_answer_is_one(reset: bool, outcome: str) -> None:
    x = decode(delta(content="x"), end=False)
    conclude(x, "the connection broke", reset=reset)
    assert (x.outcome, x.detail) == (outcome, "the connection broke")


def test_the_shortcut_for_repeated_chunks_misses_nothing() -> None:
    """Once a chunk's shape is known it is not parsed again: whatever differs must still be seen."""
    plain = [delta(content="w1"), delta(content="w2")]
    quoted, escaped = delta(content='say "x"'), delta(content="a\nb\\c")
    empty = delta(content="")
    ending = data({"id": "a", "choices": [{"index": 0, "delta": {"content": "."}, "finish_reason": "length"}]})
    error = data({"id": "a", "choices": [], "error": {"message": "late"}})
    x = decode(*plain, quoted, *plain, escaped, empty, *plain, ending, usage(9), DONE)
    assert (x.outcome, len(x.stamps), x.finish, x.tokens) == ("ok", 9, "length", 9)
    assert decode(*plain, error, DONE).outcome == "error_in_stream"
    assert decode(*plain, plain[0][:-5] + b"\n\n", FINISH, DONE).outcome == "bad_sse"


def read_together(since_s: float, before_s: float = 1.0) -> tuple[list[float], list[float]]:
    """Arrivals and their uncertainty in seconds: one chunk at `before_s`, three in a read that is stamped 4 s."""
    x = Exchange(0)
    x.t_sent = 500_000_000
    decoder = Decoder(x)
    if before_s:
        decoder.feed(delta(content="a"), int(before_s * 1e9))
    got = decoder.feed(delta(content="b") + delta(content="c") + delta(content="d") + FINISH, 4_000_000_000)
    assert got == 3
    decoder.spread(got, int(since_s * 1e9))
    return [at / 1e9 for at in x.stamps], [blur / 1e9 for blur in x.blur]


def test_chunks_of_one_read_are_put_at_even_distances_up_to_its_stamp() -> None:
    """A client that was held up sees three chunks at once: the kernel keeps the time of the last."""
    assert read_together(0.9) == ([1.0, 2.0, 3.0, 4.0], [3.0, 3.0])
    assert read_together(2.5) == ([1.0, 2.5, 3.0, 4.0], [1.5, 1.5])
    assert read_together(1.0, before_s=0) == ([2.0, 3.0, 4.0], [3.0, 3.0])


def test_without_knowing_since_when_they_came_chunks_bear_the_time_of_their_read() -> None:
    assert read_together(0) == ([1.0, 4.0, 4.0, 4.0], [3.0, 3.0])
    assert read_together(4.0) == ([1.0, 4.0, 4.0, 4.0], [3.0, 3.0])
    assert read_together(0, before_s=0) == ([4.0, 4.0, 4.0], [3.5, 3.5])


def test_the_first_token_moves_with_its_chunk() -> None:
    x = Exchange(0)
    decoder = Decoder(x)
    decoder.spread(decoder.feed(delta(content="a") + delta(content="b"), 3_000_000_000), 1_000_000_000)
    assert (x.t_first, x.t_answer, list(x.stamps)) == (2_000_000_000, 2_000_000_000, [2_000_000_000, 3_000_000_000])


def test_remote_text_is_shown_as_one_short_line() -> None:
    text = shown(b"\x1b[31mred\x1b[0m\nnext \xff" + b"x" * 500)
    assert text.isprintable()
    assert "\n" not in text
    assert len(text) == 200

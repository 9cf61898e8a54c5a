"""Streams that fooled benchmark clients in the field, retold frame by frame, with neighbours of each kind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tokpit.load.stream import Decoder, Exchange, conclude

DONE = b"data: [DONE]\n\n"
S = 1_000_000_000


def frame(**data: Any) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def text(value: str, name: str = "content", **more: Any) -> bytes:
    return frame(choices=[{"index": 0, "delta": {name: value}, **more}])


def usage(completion: int | None, prompt: int | None = 9, *, choices: Any = (), **more: Any) -> bytes:
    return frame(choices=list(choices), usage={"prompt_tokens": prompt, "completion_tokens": completion, **more})


ROLE = frame(choices=[{"delta": {"role": "assistant", "content": ""}}])
END = frame(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])


def read(*frames: bytes | tuple[float, bytes], cut: int = 0) -> tuple[Exchange, Decoder]:
    """Frames arrive at the time they bear, or one a second; `cut` > 0 hands each over in pieces of so many bytes."""
    x = Exchange(0)
    decoder = Decoder(x)
    for place, item in enumerate(frames, 1):
        at, data = item if isinstance(item, tuple) else (float(place), item)
        for start in range(0, len(data), cut or len(data)):
            decoder.feed(data[start : start + (cut or len(data))], int(at * S))
    decoder.end(int((len(frames) + 1) * S))
    conclude(x)
    return x, decoder


@pytest.mark.parametrize(
    ("sizes", "tokens"),
    [((4, 4), 8), ((5, 3, 6, 2), 16), ((1, 1, 1), 3), ((7,), 7)],
    ids=["four a chunk", "uneven", "one a chunk", "one chunk"],
)
def test_tokens_come_from_usage_and_their_number_a_chunk_hints_at_speculation(
    sizes: tuple[int, ...], tokens: int
) -> None:
    x, _ = read(*(text(" ".join("w" * size) + " ") for size in sizes), END, usage(tokens), DONE)
    assert (x.outcome, x.tokens, len(x.stamps), x.estimated) == ("ok", tokens, len(sizes), False)
    assert x.tokens / len(x.stamps) == pytest.approx(tokens / len(sizes))


@pytest.mark.parametrize("first", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("second", ["reasoning", "reasoning_content"])
def test_a_budget_spent_on_thinking_counts_and_has_no_answer(first: str, second: str) -> None:
    last = frame(choices=[{"index": 0, "delta": {}, "finish_reason": "length"}])
    x, _ = read(ROLE, text("Let us see", first), text(" more", second), last, usage(240, 11), DONE)
    assert (x.outcome, x.tokens, x.t_first, x.t_answer) == ("ok", 240, 2 * S, 0)


def test_thinking_in_the_first_field_and_an_empty_answer_field_beside_it() -> None:
    both = frame(choices=[{"delta": {"content": "", "reasoning": "Hm", "reasoning_content": None}}])
    x, _ = read(both, text("Yes"), END, usage(2), DONE)
    assert (x.t_first, x.t_answer, len(x.stamps)) == (S, 2 * S, 2)


@pytest.mark.parametrize(
    "early",
    [
        ROLE,
        frame(choices=[{"delta": {"role": "assistant"}}]),
        frame(choices=[{"delta": {"role": "assistant", "content": None}}]),
        frame(choices=[{"delta": {}}]),
        frame(choices=[]),
        frame(choices=[{"text": "", "finish_reason": None}]),
    ],
    ids=["empty content", "role only", "null content", "empty delta", "no choices", "empty text"],
)
def test_what_comes_before_text_does_not_start_the_clock(early: bytes) -> None:
    x, _ = read((0.004, early), (1.21, text("Hi")), (1.23, END), (1.24, usage(1)), (1.25, DONE))
    assert x.t_first / S == pytest.approx(1.21)


def test_tokens_of_a_tool_call_start_the_clock_too() -> None:
    call = frame(choices=[{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}}])
    x, _ = read(ROLE, call, call, END, usage(30), DONE)
    assert (x.outcome, x.t_first, len(x.stamps), x.tokens) == ("ok", 2 * S, 2, 30)


@pytest.mark.parametrize(
    ("frames", "chunks", "said"),
    [
        ((frame(error={"message": "TimeoutError", "type": "GatewayTimeout", "code": 504}), DONE), 0, "504"),
        ((text("a"), text("b"), text("c"), frame(error={"message": "dead", "code": 500}), DONE), 3, "500"),
        ((text("a"), frame(error="overloaded"), END, usage(64), DONE), 1, "overloaded"),
        ((text("a"), frame(object="error", message="bad", code=400), DONE), 1, "400"),
        ((text("a"), b'event: error\ndata: {"detail": "gone"}\n\n'), 1, "gone"),
        ((frame(error={"type": "server_error"}), DONE), 0, "server_error"),
        ((text("a"), frame(choices=[], error={"message": "late"}), usage(9), DONE), 1, "late"),
    ],
)
def test_an_error_anywhere_in_the_stream_fails_the_request_with_its_words(
    frames: tuple[bytes, ...], chunks: int, said: str
) -> None:
    x, _ = read(*frames)
    assert (x.outcome, len(x.stamps)) == ("error_in_stream", chunks)
    assert said in x.detail


def test_an_error_field_that_is_null_is_none() -> None:
    x, _ = read(frame(choices=[{"delta": {"content": "a"}}], error=None), END, usage(1), DONE)
    assert x.outcome == "ok"


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 0])
@pytest.mark.parametrize("value", ["中文", "a\u2028b\u0085c\u2029", "🙂🙃", 'quo"te\\ and\nline'])
def test_no_cut_of_the_network_and_no_odd_character_breaks_the_text(value: str, cut: int) -> None:
    x = Exchange(0)
    x.answer = []
    decoder = Decoder(x)
    data = text(value) + END + usage(2) + DONE
    for start in range(0, len(data), cut or len(data)):
        decoder.feed(data[start : start + (cut or len(data))], S)
    decoder.end(2 * S)
    conclude(x)
    assert (x.outcome, x.answer, len(x.stamps)) == ("ok", [value], 1)


@pytest.mark.parametrize(
    "noise",
    [b":\n\n", b": keep-alive\n\n", b": ping\n", b"data: : again\n\n", b"\n\n", b"data:\n\n", b"id: 7\nretry: 3\n\n"],
)
def test_comments_and_blank_events_are_no_tokens_wherever_they_stand(noise: bytes) -> None:
    x, _ = read(noise, noise, noise, text("ok"), noise, text("!"), noise, END, noise, usage(2), DONE)
    assert (x.outcome, x.t_first, len(x.stamps), x.tokens) == ("ok", 4 * S, 2, 2)


def test_no_usage_is_an_estimate_and_says_so() -> None:
    x, _ = read(text("hello"), text(" world", finish_reason="stop"), DONE)
    assert (x.outcome, x.tokens, x.estimated) == ("ok", 2, True)


@pytest.mark.parametrize(
    ("middle", "tokens"),
    [
        (({"usage": None}, {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}), 40),
        (({"usage": {"prompt_tokens": 12, "completion_tokens": 7}}, {"usage": None}), 40),
        (({"usage": {}}, {"usage": {"prompt_tokens": None, "completion_tokens": None}}), 40),
    ],
)
def test_the_last_count_that_grew_wins(middle: tuple[dict[str, Any], ...], tokens: int) -> None:
    frames = [frame(choices=[{"delta": {"content": "x"}}], **more) for more in middle]
    last = usage(tokens, 12, choices=[{"delta": {}, "finish_reason": "stop"}])
    x, _ = read(*frames, last, DONE)
    assert (x.outcome, x.tokens, x.prompt_tokens) == ("ok", tokens, 12)


@pytest.mark.parametrize("choices", [[{"index": 0, "delta": {}}], [], [{"index": 0, "delta": {"content": ""}}]])
def test_usage_with_or_without_a_choice_beside_it(choices: list[Any]) -> None:
    last = usage(251, 65, choices=choices, prompt_tokens_details={"cached_tokens": 64})
    x, _ = read(text("a"), END, last, DONE)
    assert (x.outcome, x.tokens, x.cached_tokens) == ("ok", 251, 64)


def test_usage_without_details_has_no_cached_tokens() -> None:
    x, _ = read(text("a"), END, usage(3, prompt_tokens_details=None), DONE)
    assert (x.outcome, x.cached_tokens) == ("ok", None)


@pytest.mark.parametrize(
    ("frames", "outcome"),
    [
        ((text("a"), text("b")), "truncated"),
        ((text("a"), END, usage(1)), "ok"),
        ((ROLE, DONE), "empty"),
        ((ROLE, END, usage(0), DONE), "empty"),
        ((DONE,), "empty"),
        ((text("a"), b'data: {"choices": [\n\n', END, DONE), "bad_sse"),
        ((b"<html>504</html>",), "bad_sse"),
        ((b'{"error": {"message": "no"}}',), "error_in_stream"),
        ((b'{"choices": [{"message": {"content": "whole"}}]}',), "bad_sse"),
    ],
)
def test_only_a_whole_answer_is_ok(frames: tuple[bytes, ...], outcome: str) -> None:
    x, _ = read(*frames)
    assert x.outcome == outcome
    assert x.outcome == "ok" or x.detail

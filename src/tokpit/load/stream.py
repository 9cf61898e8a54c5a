"""One streamed answer of the OpenAI API: when its tokens came, what was counted, how it ended."""

from __future__ import annotations

import importlib
import json
from array import array
from collections.abc import Callable
from typing import Any

from .sse import SseError, SseSplitter

try:  # three times faster where the host has it, never needed
    _loads: Callable[[bytes], Any] = importlib.import_module("orjson").loads
except ImportError:
    _loads = json.loads

_ANSWER, _REASONING = ("content", "text"), ("reasoning_content", "reasoning")


class Exchange:
    """One request as the client saw it. Times are raw monotonic nanoseconds; 0 means that it did not happen."""

    __slots__ = (
        "answer", "blur", "cached_tokens", "completion_tokens", "cum_tokens", "detail", "done", "error", "events",
        "finish", "index", "kernel_reads", "malformed", "outcome", "prompt_tokens", "reads", "retry_after_s",
        "stale_retries", "stamps", "status", "t_answer", "t_due", "t_end", "t_first", "t_last_rx", "t_sent",
        "t_start", "task", "timeout", "turn",
    )  # fmt: skip

    def __init__(self, index: int, turn: int = 0) -> None:
        self.index = index
        self.turn = turn
        self.t_due = self.t_start = self.t_sent = self.t_first = self.t_answer = self.t_last_rx = self.t_end = 0
        self.stamps = array("q")
        """Arrival of every chunk that carried text."""
        self.cum_tokens = array("q")
        """Tokens counted so far at every chunk, where the server reports usage continuously; else empty."""
        self.blur = array("q")
        """For every chunk that was read together with a later one: between which times it came, in nanoseconds."""
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finish = ""
        self.done = False
        self.error = ""
        self.malformed = ""
        self.events = self.reads = self.kernel_reads = self.stale_retries = 0
        self.status = 0
        self.retry_after_s: float | None = None
        self.outcome = ""
        self.detail = ""
        self.timeout = ""
        self.answer: list[str] | None = None
        self.task: Any = None

    @property
    def t_last(self) -> int:
        """Arrival of the last chunk with text; 0 if there was none."""
        return self.stamps[-1] if self.stamps else 0

    @property
    def tokens(self) -> int:
        """Output tokens: the server's count, else the number of chunks (see `estimated`)."""
        return len(self.stamps) if self.completion_tokens is None else self.completion_tokens

    @property
    def estimated(self) -> bool:
        """Whether `tokens` is a count of chunks because the server gave no usage."""
        return self.completion_tokens is None


class Decoder:
    """Feeds an Exchange from the body's bytes."""

    __slots__ = ("_on_first", "_prefix", "_split", "_suffix", "head", "x")

    def __init__(self, exchange: Exchange, on_first: Callable[[], None] | None = None) -> None:
        self.x = exchange
        self._split = SseSplitter()
        self._prefix = self._suffix = b""
        self._on_first = on_first
        self.head = b""
        """The first bytes, kept until an event was seen: an error body that is no stream."""

    def feed(self, data: bytes, stamp_ns: int) -> int:
        """Takes `data` that arrived at `stamp_ns`; returns how many chunks of text were in it (see `spread`)."""
        x = self.x
        x.reads += 1
        x.t_last_rx = stamp_ns
        if not x.events and len(self.head) < 4096:
            self.head += data[:4096]
        before = len(x.stamps)
        try:
            events = self._split.feed(data)
        except SseError as error:
            x.malformed = x.malformed or str(error)
            return 0
        prefix, suffix, stamps = self._prefix, self._suffix, x.stamps
        for event in events:
            # A chunk that repeats the last one around a string without quotes is another chunk of text: no parse.
            if (
                prefix
                and event.startswith(prefix)
                and event.endswith(suffix)
                and len(event) > len(prefix) + len(suffix)
                and event.find(b'"', len(prefix), len(event) - len(suffix)) < 0
            ):
                stamps.append(stamp_ns)
                x.events += 1
                continue
            self._event(event, stamp_ns)
            prefix, suffix = self._prefix, self._suffix
        return len(stamps) - before

    def usual(self) -> tuple[bytes, bytes] | None:
        """What stands around the text of the next event if it is like the last; None where nothing is known."""
        if not self._prefix or not self._split.clean:
            return None
        return b"data: " + self._prefix, self._suffix + b"\n\n"

    def again(self, stamp_ns: int) -> None:
        """One more event of the `usual` form arrived."""
        x = self.x
        x.reads += 1
        x.events += 1
        x.t_last_rx = stamp_ns
        x.stamps.append(stamp_ns)

    def spread(self, got: int, since_ns: int) -> None:
        """The last `got` chunks came in several segments, one after the other, but were read as one.

        The kernel keeps the time of the last segment alone. Where it is known since when they came (`since_ns`, else
        0), the ones before are put at even distances up to it; how far off that may be is kept in `blur`.
        """
        if got < 2:
            return
        x = self.x
        stamps, first = x.stamps, len(x.stamps) - got
        last = stamps[-1]
        start = stamps[first - 1] if first else max(since_ns, x.t_sent)
        low = max(start, since_ns)
        if not since_ns or low >= last:
            x.blur.extend([last - start] * (got - 1))
            return
        step = (last - start) / got
        for place in range(1, got):
            at = max(low, start + int(step * place))
            if not first + place - 1 and x.t_first == last:
                x.t_first = at
                if x.t_answer == last:
                    x.t_answer = at
            stamps[first + place - 1] = at
        x.blur.extend([last - low] * (got - 1))

    def end(self, stamp_ns: int) -> None:
        """The body ended cleanly."""
        for event in self._split.flush():
            self._event(event, stamp_ns)
        x = self.x
        if not x.events and self.head.strip():
            self._not_a_stream()

    def _event(self, event: bytes, stamp_ns: int) -> None:
        x = self.x
        text = event.strip()
        if not text or text.startswith(b":"):  # comments that a proxy wrapped again
            return
        x.events += 1
        if text == b"[DONE]":
            x.done = True
            return
        try:
            chunk = _loads(text)
        except ValueError:  # UnicodeDecodeError is one
            x.malformed = x.malformed or f"event {x.events} is not JSON: {shown(text)}"
            return
        if not isinstance(chunk, dict):
            x.malformed = x.malformed or f"event {x.events} is not a JSON object: {shown(text)}"
            return
        named_error = bool(self._split.error_events) and event in self._split.error_events
        if chunk.get("error") or chunk.get("object") == "error" or named_error:
            x.error = x.error or error_text(chunk)
            return
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage(usage)
        choices = chunk.get("choices")
        if isinstance(choices, list) and choices:
            self._choices(event, choices, stamp_ns, isinstance(usage, dict))

    def _usage(self, usage: dict[str, Any]) -> None:
        x = self.x
        for name in ("completion_tokens", "prompt_tokens"):
            value, before = usage.get(name), getattr(x, name)
            # Some proxies send zeros until the last chunk: two zeros are not yet a count.
            counts = bool(usage.get("prompt_tokens") or usage.get("completion_tokens"))
            if isinstance(value, int) and counts and value >= (before or 0):
                setattr(x, name, value)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
            x.cached_tokens = details["cached_tokens"]

    def _choices(self, event: bytes, choices: list[Any], stamp_ns: int, counted: bool) -> None:
        x = self.x
        got, answered, field, value = False, False, "", ""
        for choice in choices:
            if not isinstance(choice, dict):
                continue
            delta = choice.get("delta")
            source = delta if isinstance(delta, dict) else choice
            for name in _ANSWER + _REASONING:
                part = source.get(name)
                if isinstance(part, str) and part:
                    got, field, value = True, name, part
                    if name in _ANSWER:
                        answered = True
                        if x.answer is not None:
                            x.answer.append(part)
            if source.get("tool_calls"):
                got = answered = True
                field = ""
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                x.finish = reason
        self._prefix = b""
        if not got:
            return
        if answered and not x.t_answer:
            x.t_answer = stamp_ns
        if not x.t_first:
            x.t_first = stamp_ns
            if self._on_first:
                self._on_first()
        x.stamps.append(stamp_ns)
        if counted and x.completion_tokens is not None:
            x.cum_tokens.append(x.completion_tokens)
        if len(choices) == 1 and field and not counted and not x.finish and x.answer is None:
            self._learn(event, field, value)

    def _learn(self, event: bytes, field: str, value: str) -> None:
        """Keeps what surrounds the text of this chunk, for the shortcut in `feed`."""
        key = b'"' + field.encode() + b'":'
        at = event.find(key)
        start = event.find(b'"', at + len(key)) + 1
        end = event.find(b'"', start)
        if at < 0 or start < 1 or event[at + len(key) : start].strip() != b'"' or b"\\" in event[start:end]:
            return
        if event[start:end] == value.encode("utf-8", "surrogatepass"):
            self._prefix, self._suffix = event[:start], event[end:]

    def _not_a_stream(self) -> None:
        x = self.x
        try:
            body = _loads(self.head)
        except ValueError:
            x.malformed = f"the answer is not an event stream: {shown(self.head)}"
            return
        if isinstance(body, dict) and (body.get("error") or body.get("object") == "error"):
            x.error = error_text(body)
        else:
            x.malformed = f"the server answered without streaming: {shown(self.head)}"


def error_text(chunk: dict[str, Any]) -> str:
    """One line for an error object of any of the engines."""
    error = chunk.get("error") or chunk
    if isinstance(error, dict):
        message = error.get("message") or error.get("type") or json.dumps(error)
        code = error.get("code")
        return shown(f"{message} ({code})" if code not in (None, "") else str(message))
    return shown(str(error))


def shown(text: bytes | str, limit: int = 200) -> str:
    """`text` as one bounded line without control characters."""
    if isinstance(text, (bytes, bytearray)):
        text = bytes(text[: limit * 4]).decode("utf-8", "replace")
    line = " ".join(text.split())
    line = "".join(ch if ch.isprintable() else "\N{REPLACEMENT CHARACTER}" for ch in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def conclude(x: Exchange, break_detail: str = "", *, reset: bool = False) -> None:
    """Sets `outcome` and `detail` of an answer with status 200 whose body ended, or broke off (`break_detail`).

    `ok` needs a finish reason and a proper end; an answer without usage is `ok` with `estimated` set, which the
    summary labels. An error object or a malformed event anywhere makes it a failure, whatever came after.
    """
    if x.error:
        x.outcome, x.detail = "error_in_stream", x.error
    elif x.malformed:
        x.outcome, x.detail = "bad_sse", x.malformed
    elif break_detail and not (x.done and x.finish):
        x.outcome, x.detail = ("reset" if reset else "truncated"), break_detail
    elif not x.stamps and not x.completion_tokens:
        x.outcome = "empty"
        x.detail = "status 200 and a stream without any token" if x.events else "status 200 and an empty body"
    elif not x.finish:
        x.outcome, x.detail = "truncated", f"the stream ended after {len(x.stamps)} chunks without a finish reason"
    else:
        x.outcome = "ok"

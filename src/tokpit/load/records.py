"""A level's raw requests as bytes and back, and the parts of several processes put together. Pure.

The monotonic clock is one for all processes of a machine, so that stamps of several are comparable as they are.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .stream import Exchange

HEAD = struct.Struct("<II")
"""Of a frame: bytes of its JSON, bytes of raw numbers after it (native order: both ends are one machine)."""
_PLAIN = (
    "index", "turn", "t_due", "t_start", "t_sent", "t_first", "t_answer", "t_last_rx", "t_end", "prompt_tokens",
    "completion_tokens", "cached_tokens", "finish", "done", "error", "malformed", "events", "reads", "kernel_reads",
    "stale_retries", "status", "outcome", "detail",
)  # fmt: skip


@dataclass
class Part:
    """What one process measured of a level."""

    exchanges: list[Exchange] = field(default_factory=list)
    t_begin: int = 0
    t_end: int = 0
    """Raw monotonic nanoseconds."""
    cpu_s: float = 0.0
    lag_s: array[float] = field(default_factory=lambda: array("d"))
    held_back: int = 0
    clock_steps: int = 0
    cut: str = ""
    dead: str = ""
    prompts: array[int] = field(default_factory=lambda: array("Q"))
    """A hash of every different body that was built."""
    built: int = 0


@dataclass
class Merged(Part):
    """Several parts as if one process had measured them."""

    busiest_s: float = 0.0
    """CPU seconds of the busiest process."""


def frame(data: dict[str, Any], raw: bytes = b"") -> bytes:
    """One message between processes."""
    text = json.dumps(data, separators=(",", ":")).encode()
    return HEAD.pack(len(text), len(raw)) + text + raw


def pack(part: Part) -> tuple[dict[str, Any], bytes]:
    """`part` as JSON data and raw numbers for `frame`."""
    rows = [
        [*(getattr(x, name) for name in _PLAIN), len(x.stamps), len(x.cum_tokens), len(x.blur)] for x in part.exchanges
    ]
    raw = [part.lag_s.tobytes(), part.prompts.tobytes()]
    for x in part.exchanges:
        raw += (x.stamps.tobytes(), x.cum_tokens.tobytes(), x.blur.tobytes())
    data = {
        "rows": rows,
        "lags": len(part.lag_s),
        "prompts": len(part.prompts),
        **{name: getattr(part, name) for name in _FIELDS},
    }
    return data, b"".join(raw)


_FIELDS = ("t_begin", "t_end", "cpu_s", "held_back", "clock_steps", "cut", "dead", "built")


def unpack(data: dict[str, Any], raw: bytes) -> Part:
    """The other way of `pack`; raises ValueError for a frame that is cut."""
    part = Part(**{name: data[name] for name in _FIELDS})
    view, at = memoryview(raw), 0

    def take(target: array[Any], count: int) -> None:
        nonlocal at
        end = at + count * target.itemsize
        if end > len(view):
            raise ValueError("the records of a worker are cut")
        target.frombytes(view[at:end])
        at = end

    take(part.lag_s, data["lags"])
    take(part.prompts, data["prompts"])
    for row in data["rows"]:
        x = Exchange(0)
        for name, value in zip(_PLAIN, row):
            setattr(x, name, value)
        take(x.stamps, row[-3])
        take(x.cum_tokens, row[-2])
        take(x.blur, row[-1])
        part.exchanges.append(x)
    return part


def merge(parts: Sequence[Part]) -> Merged:
    """All requests of `parts` in the order in which they began, every sample kept; sums where there are sums.

    The index of a request is its place in that order, as it is where one process starts them all.
    """
    whole = Merged()
    hashes: set[int] = set()
    for part in parts:
        whole.exchanges.extend(part.exchanges)
        whole.lag_s.extend(part.lag_s)
        hashes.update(part.prompts)
        whole.cpu_s += part.cpu_s
        whole.busiest_s = max(whole.busiest_s, part.cpu_s)
        whole.held_back += part.held_back
        whole.built += part.built
        whole.clock_steps = max(whole.clock_steps, part.clock_steps)
        whole.cut = whole.cut or part.cut
        whole.dead = whole.dead or part.dead
    whole.exchanges.sort(key=lambda x: (x.t_start, x.index))
    for place, x in enumerate(whole.exchanges):
        x.index = place
    whole.prompts.extend(sorted(hashes))
    whole.t_begin = _least(part.t_begin for part in parts)
    whole.t_end = max((part.t_end for part in parts), default=0)
    return whole


def _least(values: Iterable[int]) -> int:
    return min((value for value in values if value), default=0)

"""Whoever makes a share of a level's load: a process of this machine, or one on another host. Seen from its parent."""

from __future__ import annotations

import asyncio
import contextlib
import json
from array import array
from dataclasses import dataclass
from typing import Any, Optional, Protocol

from . import pipes
from .clock import now_ns
from .records import HEAD, Part, frame

CLOSE_S = 3.0
"""How long a process has for its end before it is killed."""
CLOCKS, LOST = "GENERATOR_CLOCKS", "GENERATOR_LOST"
"""Codes of the checks that only the members themselves can tell."""
LOOKS = 9
"""Round trips from which the distance of a clock is taken; the shortest one counts."""


@dataclass(frozen=True)
class Look:
    """The distance of a member's monotonic clock from ours, by one round trip: its time minus ours, in nanoseconds.

    Its answer was made between our sending and our hearing, so the distance is right to half of the round trip.
    """

    offset_ns: int
    round_trip_ns: int


def look(sent_ns: int, theirs_ns: int, heard_ns: int) -> Look:
    """The distance of two clocks from one question: theirs when it was answered, ours before and after."""
    return Look(theirs_ns - (sent_ns + heard_ns) // 2, heard_ns - sent_ns)


def shift(part: Part, offset_ns: int) -> Part:
    """`part` with every stamp brought from a clock that is `offset_ns` ahead to ours; durations stay as they are."""
    if not offset_ns:
        return part
    part.t_begin -= offset_ns if part.t_begin else 0
    part.t_end -= offset_ns if part.t_end else 0
    for x in part.exchanges:
        for name in ("t_due", "t_start", "t_sent", "t_first", "t_answer", "t_last_rx", "t_end"):
            value = getattr(x, name)
            if value:
                setattr(x, name, value - offset_ns)
        x.stamps = array(x.stamps.typecode, (stamp - offset_ns for stamp in x.stamps))
    return part


class Member(Protocol):
    """One share-taker of a level."""

    alive: bool
    url: str
    """Where it reaches the server; empty: at the plan's address."""
    offset_ns: int
    """Its monotonic clock minus ours."""

    @property
    def end(self) -> str:
        """How it ended, in words."""
        ...

    @property
    def place(self) -> str:
        """Where it runs; empty: on this machine."""
        ...

    async def send(self, **command: Any) -> None:
        """Gives it a command; does nothing when it is gone."""
        ...

    async def next(self) -> Optional[tuple[dict[str, Any], bytes]]:
        """Its next message; None when it is gone."""
        ...

    async def close(self) -> None:
        """Ends it."""
        ...


async def compare_clocks(member: Member) -> Optional[Look]:
    """The best look at a member's clock, between levels; None when it is gone."""
    best: Optional[Look] = None
    for _ in range(LOOKS):
        sent = now_ns()
        await member.send(ping=True)
        while True:
            message = await member.next()
            if message is None:
                return None
            if "pong" in message[0]:
                break
        seen = look(sent, int(message[0]["pong"]), now_ns())
        if best is None or seen.round_trip_ns < best.round_trip_ns:
            best = seen
    return best


class Frames:
    """Messages out of a stream of bytes that comes in pieces; see `records.frame`."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[tuple[dict[str, Any], bytes]]:
        """The messages that `data` completes; raises ValueError for bytes that are none."""
        self._held += data
        found = []
        while len(self._held) >= HEAD.size:
            text, raw = HEAD.unpack(self._held[: HEAD.size])
            end = HEAD.size + text + raw
            if text > 1 << 30 or raw > 1 << 32:
                raise ValueError("this is no message of a load generator")
            if len(self._held) < end:
                break
            body = bytes(self._held[HEAD.size : end])
            del self._held[:end]
            data_ = json.loads(body[:text])
            if not isinstance(data_, dict):
                raise ValueError("this is no message of a load generator")
            found.append((data_, body[text:]))
        return found


def hello() -> bytes:
    """What a member says first: how its machine writes numbers, and how many cores it may use."""
    import os
    import platform
    import sys

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    facts = {"order": sys.byteorder, "cores": cores, "python": platform.python_version(), "node": platform.node()}
    return frame({"hello": facts})


class Worker:
    """One process of this machine, as its parent sees it."""

    url = ""
    place = ""
    offset_ns = 0

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._failed = ""
        self.alive = True

    @classmethod
    async def start(cls) -> Worker:
        """Starts one; raises OSError."""
        # A session of its own: Ctrl-C in the terminal goes to the parent alone, which ends the level in order.
        process = await asyncio.create_subprocess_exec(
            *pipes.command("worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self._failed:
            return f"failed ({self._failed})"
        status = self._process.returncode
        return f"was ended by signal {-status}" if status is not None and status < 0 else "ended by itself"

    async def send(self, **command: Any) -> None:
        """See Member."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps(command, separators=(",", ":")).encode() + b"\n")
            await self._process.stdin.drain()

    async def next(self) -> Optional[tuple[dict[str, Any], bytes]]:
        """See Member."""
        out = self._process.stdout
        assert out is not None
        try:
            text, raw = HEAD.unpack(await out.readexactly(HEAD.size))
            data: dict[str, Any] = json.loads(await out.readexactly(text))
            numbers = await out.readexactly(raw)
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            self.alive = False
            await self.close()
            return None
        if "failed" in data:
            self._failed = str(data["failed"])
        return data, numbers

    async def close(self, *, wait_s: float = CLOSE_S) -> None:
        """Ends it; kills it when it has not ended in `wait_s`."""
        self.alive = False
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.stdout.read(), wait_s)
            await asyncio.wait_for(self._process.wait(), wait_s)
        except asyncio.TimeoutError:
            self.kill()
            await self._process.wait()
        except asyncio.CancelledError:
            self.kill()
            raise

    def kill(self) -> None:
        """Ends it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

"""Streams read at leisure: the kernel's times stay true, and what a late read hides is told."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Callable

import pytest

from load_server import DONE, END, Head, ScriptServer, Sleep, finish, role, token, usage
from tokpit.load.clock import Clock
from tokpit.load.intake import LONGEST_PAUSE_S, Intake
from tokpit.load.request import Client
from tokpit.load.stream import Exchange
from tokpit.load.wire import StampedSocket, Wire, open_session

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="epoll and SO_TIMESTAMPNS are Linux's")


class Reader:
    """A stream that keeps what it is given: (bytes, stamp, since)."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.sock = StampedSocket(socket.AF_INET, socket.SOCK_STREAM)
        self.sock.connect(address)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.SOL_SOCKET, 35, 1)
        self.fd = self.sock.fileno()
        self.got: list[tuple[bytes, int, int]] = []
        self.end: list[OSError | None] = []

    def arrived(self, data: bytes, stamp_ns: int, since_ns: int) -> int:
        self.got.append((data, stamp_ns, since_ns))
        return 1

    def ended(self, error: OSError | None) -> None:
        self.end.append(error)


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.001)


async def test_a_read_that_came_late_says_since_when_its_bytes_may_have_come() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        intake = Intake(Clock())
        one, other = Reader(listener.getsockname()), Reader(listener.getsockname())
        (first, _), (second, _) = listener.accept(), listener.accept()
        intake.add(one)
        intake.add(other)
        second.sendall(b"x")
        await until(lambda: other.got)
        second.sendall(b"y")
        before = time.monotonic_ns()
        time.sleep(0.02)
        first.sendall(b"a")
        first.sendall(b"b")
        time.sleep(0.02)  # the loop stands still: both are read at once, long after they came
        await until(lambda: one.got)
        data, stamp, since = one.got[0]
        assert data == b"ab"
        assert since <= before + 5_000_000, "bytes that came after this time are said to have come later"
        assert before + 15_000_000 < stamp < time.monotonic_ns() - 15_000_000
        first.close()
        second.close()
        await until(lambda: one.end and other.end)
        assert (one.end, other.end) == ([None], [None])
        one.sock.close()
        other.sock.close()


async def test_a_steady_stream_is_read_after_pauses_and_none_of_its_times_moves() -> None:
    beat = [step for _ in range(40) for step in (Sleep(0.02), token())]
    steps = [Head(), role(), *beat, finish(), usage(40), DONE, END]
    clock = Clock()
    wire = Wire(clock)
    async with (
        ScriptServer(lambda body, index: steps) as server,
        open_session(clock, connect_timeout_s=2, wire=wire) as session,
    ):
        assert wire.intake is not None
        client = Client(session, server.url + "/v1/chat/completions", {})
        x, pauses = Exchange(0), list[float]()
        task = asyncio.ensure_future(client.send(x, b"{}"))
        while not task.done():
            await asyncio.sleep(0.01)
            pauses.append(wire.intake.pause_s)
    assert 0 < max(pauses) <= LONGEST_PAUSE_S
    assert (x.outcome, len(x.stamps), x.kernel_reads) == ("ok", 40, x.reads)
    assert list(x.stamps) == sorted(x.stamps)


async def test_a_stream_that_is_reset_ends_with_its_error_and_the_others_go_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        intake = Intake(Clock())
        one, other = Reader(listener.getsockname()), Reader(listener.getsockname())
        (first, _), (second, _) = listener.accept(), listener.accept()
        intake.add(one)
        intake.add(other)
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        first.close()
        await until(lambda: one.end)
        assert isinstance(one.end[0], ConnectionResetError)
        second.sendall(b"z")
        await until(lambda: other.got)
        intake.remove(other)
        intake.remove(other)
        second.close()
        one.sock.close()
        other.sock.close()


def test_with_the_last_stream_nothing_is_left_in_the_loop() -> None:
    async def work() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            intake, one = Intake(Clock()), Reader(listener.getsockname())
            for _ in range(2):
                intake.add(one)
                intake.remove(one)
            one.sock.close()
        return threading.active_count()

    assert asyncio.run(work()) >= 1

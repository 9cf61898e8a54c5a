"""Times of arrival come from the kernel, so that a late event loop cannot add to them."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time

import pytest

from load_server import DONE, END, Head, ScriptServer, finish, role, token, usage
from tokpit.load.clock import Clock
from tokpit.load.plan import Plan
from tokpit.load.prompts import PromptSource
from tokpit.load.request import Client
from tokpit.load.stream import Exchange
from tokpit.load.wire import allow_connections, open_session

linux = pytest.mark.skipif(sys.platform != "linux", reason="SO_TIMESTAMPNS is Linux's")


def serve_once(listener: socket.socket, asked: threading.Event, go: threading.Event, sent: list[int]) -> None:
    """Answers one request from a thread: the head at once, a token when told, and notes when it was sent."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + role())
        asked.set()
        go.wait(10)
        # In one segment: of several that are read at once the kernel keeps the time of the last.
        connection.sendall(token() + finish() + usage(1) + DONE)
        sent.append(time.monotonic_ns())


@linux
async def test_a_stalled_loop_does_not_move_the_first_token() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked, go, sent = threading.Event(), threading.Event(), list[int]()
        thread = threading.Thread(target=serve_once, args=(listener, asked, go, sent))
        thread.start()
        clock = Clock()
        async with open_session(clock, connect_timeout_s=2) as session:
            plan = Plan(url=f"http://127.0.0.1:{listener.getsockname()[1]}", model="m")
            source, x = PromptSource(plan, "m"), Exchange(0)
            client = Client(session, plan.endpoint, {})
            task = asyncio.ensure_future(client.send(x, source.body(0, 0, source.opening(0, 0))))
            while not (asked.is_set() and x.reads):
                await asyncio.sleep(0.001)
            go.set()
            thread.join(10)  # the loop stands still while the token arrives
            time.sleep(0.05)
            woke = time.monotonic_ns()
            await task
    assert x.outcome == "ok", x.detail
    assert x.kernel_reads == x.reads
    # Taken when it was received: before the sender had gone on by much, and well before the loop saw it.
    assert x.t_first <= woke - 40_000_000
    assert x.t_sent < x.t_first <= sent[0] + 20_000_000


@linux
async def test_every_read_of_an_own_session_has_the_kernels_time() -> None:
    steps = [role(), *[token()] * 20, finish(), usage(20), DONE, END]
    async with (
        ScriptServer(lambda body, index: steps) as server,
        open_session(Clock(), connect_timeout_s=2) as session,
    ):
        client, plan = Client(session, server.url + "/v1/chat/completions", {}), Plan(url=server.url)
        source = PromptSource(plan, "m")
        for number in range(5):
            x = Exchange(number)
            await client.send(x, source.body(0, number, source.opening(0, number)))
            assert (x.outcome, len(x.stamps)) == ("ok", 20)
            assert x.kernel_reads == x.reads > 0
            assert list(x.stamps) == sorted(x.stamps)
            assert x.t_start <= x.t_sent <= x.t_first
        assert server.connections == 1, "a kept connection was not used again"


async def test_the_clock_starts_when_the_request_goes_out_not_when_it_waits_for_a_connection() -> None:
    steps = [Head(), role(), token(), finish(), usage(1), DONE, END]
    async with (
        ScriptServer(lambda body, index: steps) as server,
        open_session(Clock(), connect_timeout_s=2) as session,
    ):
        x = Exchange(0)
        await Client(session, server.url + "/v1/chat/completions", {}).send(x, b"{}")
    assert x.t_start < x.t_sent


def test_kernel_stamps_come_over_to_the_monotonic_clock() -> None:
    clock = Clock()
    before = time.monotonic_ns()
    stamp = clock.from_realtime(time.time_ns())
    after = time.monotonic_ns()
    assert before - 1_000_000 <= stamp <= after + 1_000_000


def test_a_jump_of_real_time_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    clock.refresh()
    assert clock.steps == 0
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3_000_000_000)
    clock.refresh()
    assert clock.steps == 1
    clock.refresh()
    assert clock.steps == 1


def test_the_limit_of_open_files_is_raised_as_far_as_allowed() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(300, before[1]), before[1]))
        allow_connections(700)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == min(956, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

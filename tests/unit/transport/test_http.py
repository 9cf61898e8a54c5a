from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from sshd import free_port
from tokpit.transport.http import SshConnector
from tokpit.transport.local import LocalHost
from tokpit.transport.ssh import SshHost

AnyHost = SshHost | LocalHost


class Served:
    """A web server on the host's loopback, and what it saw."""

    def __init__(self) -> None:
        self.url = ""
        self.peers: set[object] = set()
        self.sent = 0


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    state = Served()

    async def health(request: web.Request) -> web.Response:
        assert request.transport is not None
        state.peers.add(request.transport.get_extra_info("peername"))
        return web.Response(text="ok")

    async def size(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for i in range(int(request.query["n"])):
            await response.write(f"data: {i}\n\n".encode())
            await asyncio.sleep(0.005)
        await response.write(b"data: [DONE]\n\n")
        return response

    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        block = b"z" * 65536
        while state.sent < 64 << 20:
            await response.write(block)
            state.sent += len(block)
        return response

    async def big(request: web.Request) -> web.Response:
        return web.Response(body=b"b" * 5_000_000, headers={"Connection": "close"})

    app = web.Application(client_max_size=1 << 26)
    app.router.add_get("/health", health)
    app.router.add_post("/size", size)
    app.router.add_get("/events", events)
    app.router.add_get("/flood", flood)
    app.router.add_get("/big", big)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    state.url = f"http://127.0.0.1:{port}"
    yield state
    await runner.cleanup()


async def test_second_request_reuses_the_connection(any_host: AnyHost, served: Served) -> None:
    async with any_host.session() as session:
        for _ in range(3):
            async with session.get(f"{served.url}/health") as response:
                assert await response.text() == "ok"
    assert len(served.peers) == 1


async def test_events_arrive_one_by_one_while_the_server_goes_on(any_host: AnyHost, served: Served) -> None:
    async with any_host.session() as session, session.get(f"{served.url}/events?n=50") as response:
        first = await response.content.readline()
        assert first == b"data: 0\n"
        assert not response.content.at_eof()
        rest = await response.content.read()
    assert rest.count(b"data: ") == 50
    assert rest.endswith(b"data: [DONE]\n\n")


async def test_body_of_three_megabytes_goes_up(any_host: AnyHost, served: Served) -> None:
    body = io.BytesIO(b"p" * 3_000_000)
    async with any_host.session() as session, session.post(f"{served.url}/size", data=body) as response:
        assert await response.text() == "3000000"


async def test_large_answer_of_a_server_that_closes_is_complete(any_host: AnyHost, served: Served) -> None:
    async with any_host.session() as session, session.get(f"{served.url}/big") as response:
        await asyncio.sleep(0.3)
        assert len(await response.read()) == 5_000_000


async def test_forty_eight_streams_run_side_by_side(host: SshHost, served: Served) -> None:
    async def one(session: aiohttp.ClientSession) -> bytes:
        async with session.get(f"{served.url}/events?n=20") as response:
            return await response.read()

    async with host.session() as session:
        bodies = await asyncio.gather(*(one(session) for _ in range(48)))
    assert [body.count(b"data: ") for body in bodies] == [21] * 48


async def test_refused_port_is_an_aiohttp_connection_error(any_host: AnyHost) -> None:
    async with any_host.session() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"http://127.0.0.1:{free_port()}/health")


async def test_reader_that_pauses_makes_the_server_wait(any_host: AnyHost, served: Served) -> None:
    async with any_host.session() as session, session.get(f"{served.url}/flood") as response:
        await response.content.read(10)
        before = -1
        while before != served.sent:
            before = served.sent
            await asyncio.sleep(0.5)
        assert served.sent < 32 << 20, "the server would have sent 64 MiB to a reader that takes them"
        rest = 0
        async for chunk in response.content.iter_chunked(1 << 20):
            rest += len(chunk)
        assert rest + 10 == 64 << 20


async def test_closed_link_is_an_aiohttp_error_not_a_hang(host: SshHost, served: Served) -> None:
    session = host.session()
    async with session.get(f"{served.url}/events?n=4000") as response:
        await response.content.readline()
        await host.close()
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()
    with pytest.raises(aiohttp.ClientConnectionError):
        await session.get(f"{served.url}/health")
    await session.close()


async def test_requests_given_up_early_leave_no_channel_open(host: SshHost, served: Served) -> None:
    assert host._connection is not None
    open_before = len(host._connection._channels)

    async def probe(session: aiohttp.ClientSession, patience_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                (await session.get(served.url + "/events?n=1000")).close()

    async with host.session() as session:
        await asyncio.gather(*(probe(session, n / 5000) for n in range(100)))
    commands = [asyncio.ensure_future(host.run("true")) for _ in range(4)]
    await asyncio.sleep(0)
    for command in commands:
        command.cancel()
    await asyncio.gather(*commands, return_exceptions=True)
    while len(host._connection._channels) > open_before:
        await asyncio.sleep(0.02)
    assert (await host.run("echo free")).out == "free\n"


def test_aiohttp_still_has_the_method_that_the_connector_overrides() -> None:
    assert "_create_connection" in vars(aiohttp.BaseConnector)
    assert SshConnector._create_connection is not aiohttp.BaseConnector._create_connection

"""Every way a request can end, against a real server that makes it happen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from load_server import (
    DONE,
    END,
    FIN,
    HOLD,
    RST,
    Head,
    Raw,
    ScriptServer,
    Sleep,
    Step,
    answer,
    event,
    finish,
    role,
    token,
    usage,
)
from tokpit.load.clock import Clock
from tokpit.load.level import LevelRun
from tokpit.load.plan import Plan, Timeouts
from tokpit.load.prompts import PromptSource
from tokpit.load.request import Client
from tokpit.load.stream import Exchange
from tokpit.load.wire import open_session

PLAIN = Head(headers=("Content-Type: application/json", "Content-Length: 37"))
SHORT = Timeouts(connect_s=2, first_s=0.3, between_s=0.3, total_s=None)


@pytest.fixture(params=["own", "given"])
async def session(request: pytest.FixtureRequest) -> AsyncIterator[aiohttp.ClientSession]:
    """The own session reads in the transport's callback, a given one (as over SSH) through aiohttp's stream."""
    made = open_session(Clock(), connect_timeout_s=2) if request.param == "own" else aiohttp.ClientSession()
    async with made:
        yield made


async def level(session: aiohttp.ClientSession, url: str, **changes: Any) -> LevelRun:
    settings: dict[str, Any] = {"url": url, "model": "m", "requests": 2, "timeouts": SHORT, "max_tokens": 4, **changes}
    concurrency = settings.pop("concurrency", 1)
    plan = Plan(**settings)
    client = Client(session, plan.endpoint, {})
    source = PromptSource(plan, "m")
    run = LevelRun(plan, source, client, Clock(), level=0, stop=asyncio.Event(), concurrency=concurrency)
    await run.run()
    return run


async def outcome(session: aiohttp.ClientSession, *steps: Step, **changes: Any) -> Exchange:
    async with ScriptServer(lambda body, index: steps) as server:
        run = await level(session, server.url, **changes)
    kinds = {(x.outcome, bool(x.detail)) for x in run.exchanges}
    assert len(kinds) == 1, kinds
    assert all(x.detail for x in run.exchanges if x.outcome != "ok"), "an error without a reason"
    return run.exchanges[0]


OUTCOMES: list[tuple[str, str, list[Step]]] = [
    ("whole", "ok", answer(4)),
    ("no [DONE]", "ok", [*answer(4)[:-2], END]),
    ("body until close", "ok", [Head(headers=(), version="1.0"), *map(Raw, answer(4)[:-1]), FIN]),
    ("close announced", "ok", [Head(headers=(*Head().headers, "Connection: close")), *answer(4), FIN]),
    ("closed after [DONE] without the end of the body", "ok", [*answer(4)[:-1], FIN]),
    ("reset after [DONE]", "ok", [*answer(4)[:-1], Sleep(0.05), RST]),
    ("body left open after [DONE]", "ok", [*answer(4)[:-1], HOLD]),
    ("rejected", "5xx", [Head(503, ("Content-Length: 37",)), Raw(b'{"error":{"message":"queue is full"}}')]),
    ("too many", "429", [Head(429, ("Content-Length: 0", "Retry-After: 1"))]),
    ("no such model", "4xx", [Head(404, ("Content-Length: 26",)), Raw(b'{"detail":"no such model"}')]),
    ("elsewhere", "3xx", [Head(302, ("Content-Length: 0", "Location: /else"))]),
    ("silence", "timeout.first", [Head(), HOLD]),
    ("no answer at all", "timeout.first", [HOLD]),
    ("only comments", "timeout.first", [b": hi\n\n", HOLD]),
    ("stall", "timeout.between", [role(), token(), HOLD]),
    ("hang up", "reset", [FIN]),
    ("reset at once", "reset", [RST]),
    ("reset inside", "reset", [role(), token(), Sleep(0.05), RST]),
    ("cut inside", "truncated", [role(), token(), FIN]),
    ("cut inside an event", "truncated", [role(), token(), token()[:20], FIN]),
    ("no finish reason", "truncated", [role(), token(), END]),
    ("error in the stream", "error_in_stream", [role(), token(), event({"error": {"message": "x"}}), DONE, END]),
    ("error body with status 200", "error_in_stream", [PLAIN, Raw(b'{"error":{"message":"not today, ok"}}')]),
    ("malformed", "bad_sse", [role(), token(), event(b"{nope"), finish(), usage(1), DONE, END]),
    ("not HTTP chunks", "bad_sse", [role(), token(), Raw(b"zz\r\nwhat\r\n"), FIN]),
    ("empty", "empty", [END]),
    ("finished without a token", "empty", [role(), finish(), usage(0), DONE, END]),
]


@pytest.mark.parametrize(("expected", "steps"), [row[1:] for row in OUTCOMES], ids=[row[0] for row in OUTCOMES])
async def test_each_end_has_its_class(session: aiohttp.ClientSession, expected: str, steps: list[Step]) -> None:
    x = await outcome(session, *steps)
    assert x.outcome == expected, x.detail


async def test_messages_of_the_server_are_kept(session: aiohttp.ClientSession) -> None:
    body = json.dumps({"error": {"message": "KV cache is full"}}).encode()
    head = Head(500, (f"Content-Length: {len(body)}",))
    assert (await outcome(session, head, Raw(body))).detail == "500 KV cache is full"
    assert (await outcome(session, Head(503, ("Content-Length: 0", "Retry-After: 3")))).retry_after_s == 3


async def test_a_request_over_its_total_limit_is_the_clients_own_doing(session: aiohttp.ClientSession) -> None:
    limits = Timeouts(connect_s=2, first_s=None, between_s=None, total_s=0.2)
    steps = [role(), *(step for _ in range(100) for step in (token(), Sleep(0.02)))]
    x = await outcome(session, *steps, timeouts=limits)
    assert x.outcome == "timeout.total"
    assert "client's own" in x.detail


async def test_a_connection_that_never_opens_is_timed_by_itself() -> None:
    # A listening socket whose backlog is full answers no SYN.
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        try:
            async with open_session(Clock(), connect_timeout_s=0.2) as own:
                run = await level(own, f"http://127.0.0.1:{server.getsockname()[1]}")
        finally:
            for filler in fillers:
                filler.close()
    assert {x.outcome for x in run.exchanges} == {"timeout.connect"}
    assert run.dead


async def test_a_stalled_stream_does_not_hold_the_others(session: aiohttp.ClientSession) -> None:
    def script(body: Any, index: int) -> list[Step]:
        return [role(), token(), HOLD] if index == 1 else answer(4)

    async with ScriptServer(script) as server:
        run = await level(session, server.url, requests=8, concurrency=4)
    found = sorted(x.outcome for x in run.exchanges)
    assert found == ["ok"] * 7 + ["timeout.between"]


async def test_an_idle_connection_that_the_server_closed_is_opened_again() -> None:
    def script(body: Any, index: int) -> list[Step]:
        return [FIN] if index in (1, 3) else answer(4)

    async with open_session(Clock(), connect_timeout_s=2) as own, ScriptServer(script) as server:
        client = Client(own, server.url + "/v1/chat/completions", {})
        found = []
        for pause_s in (0.0, 0.3, 0.0):
            await asyncio.sleep(pause_s)
            found.append(Exchange(len(found)))
            await client.send(found[-1], b"{}")
    # The second found its connection closed after a pause; the third was hung up on while it was in use.
    assert [(x.outcome, x.stale_retries) for x in found] == [("ok", 0), ("ok", 1), ("reset", 0)]


ODDITIES: list[tuple[str, list[Step]]] = [
    ("crlf", [*(part.replace(b"\n", b"\r\n") for part in answer(6)[:-1]), END]),
    ("cr", [*(part.replace(b"\n", b"\r") for part in answer(6)[:-1]), END]),
    ("bytes one by one", [*(bytes([value]) for part in answer(2)[:-1] for value in part), END]),
    ("all in one", [b"".join(answer(6)[:-1]), END]),
    ("comments between", [step for part in answer(6)[:-1] for step in (b": ping\n\n", part)] + [END]),
    ("300 KB event", [role(), token(logprobs="x" * 300_000), *answer(1)[2:]]),
    ("multi-line data", [b'data: {"choices":[{"delta":\ndata: {"content":"x"}}]}\n\n', *answer(1)[2:]]),
]


@pytest.mark.parametrize("steps", [row[1] for row in ODDITIES], ids=[row[0] for row in ODDITIES])
async def test_legal_oddities_change_nothing(session: aiohttp.ClientSession, steps: list[Step]) -> None:
    x = await outcome(session, *steps, requests=1)
    assert x.outcome == "ok", x.detail
    assert len(x.stamps) == x.tokens

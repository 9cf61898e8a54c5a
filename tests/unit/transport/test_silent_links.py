"""Half-open links: the far side is frozen, or a router swallows everything. Nothing tells of it but time."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay import Relay, Speaker
from sshd import Sshd
from tokpit.domain.records import LinkRecord, LinkState
from tokpit.errors import ConnectFailed, LinkLost
from tokpit.transport import dial
from tokpit.transport.ssh import SshHost

SHORT_S = 0.3


def test_a_silent_link_is_given_up_within_15_seconds() -> None:
    assert dial.KEEPALIVE_S * dial.KEEPALIVE_MISSES <= 12
    assert dial.CONNECT_TIMEOUT_S <= 10
    assert dial.LOGIN_TIMEOUT_S <= 10


@pytest.fixture
async def relay(sshd: Sshd) -> AsyncIterator[Relay]:
    made = Relay(sshd.port)
    await made.open()
    yield made
    await made.close()


def behind(sshd: Sshd, relay: Relay, tmp_path: Path) -> SshHost:
    known = tmp_path / "known_hosts"
    known.write_text(sshd.host_key_line(f"[127.0.0.1]:{relay.port}"))
    return SshHost(sshd.spec(port=relay.port, known_hosts=str(known)), ssh_config=[], keepalive_s=SHORT_S)


async def until(seen: list[LinkRecord], state: LinkState, count: int = 1) -> LinkRecord:
    """The record with which `state` was reached the `count`-th time."""
    while len(found := [record for record in seen if record.state is state]) < count:
        await asyncio.sleep(0.02)
    return found[count - 1]


async def test_everything_over_a_swallowing_router_ends_and_goes_on_afterwards(
    sshd: Sshd, relay: Relay, tmp_path: Path
) -> None:
    host = behind(sshd, relay, tmp_path)
    seen: list[LinkRecord] = []
    host.on_link(seen.append)
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    got = b""

    async def follow() -> None:
        nonlocal got
        async for _, data in host.follow(str(log)):
            got += data

    async def stream() -> None:
        async with host.stream("echo on; sleep 300") as chunks:
            async for _ in chunks:
                pass

    follower = asyncio.ensure_future(follow())
    while got != b"before\n":
        await asyncio.sleep(0.02)
    command, lasting = asyncio.ensure_future(host.run("sleep 300")), asyncio.ensure_future(stream())
    await host.run("true")
    relay.freeze()
    log.write_bytes(b"before\nmeanwhile\n")
    lost = await until(seen, LinkState.LOST)
    assert "keepalive" in lost.reason
    for one in (command, lasting):
        with pytest.raises(LinkLost):
            await one
    relay.thaw()
    await until(seen, LinkState.UP, 2)
    while got != b"before\nmeanwhile\n":
        await asyncio.sleep(0.02)
    follower.cancel()
    await asyncio.gather(follower, return_exceptions=True)
    await host.close()


async def test_a_frozen_jump_host_is_found_too(sshd: Sshd, own_sshd: Sshd, tmp_path: Path) -> None:
    own_sshd.stop()
    own_sshd.user_key = sshd.user_key
    own_sshd.launch()
    known = tmp_path / "known_hosts"
    known.write_text(sshd.host_key_line() + own_sshd.host_key_line())
    jump = f"{own_sshd.user}@127.0.0.1:{own_sshd.port}"
    host = SshHost(sshd.spec(jump=jump, known_hosts=str(known)), ssh_config=[], keepalive_s=SHORT_S)
    seen: list[LinkRecord] = []
    host.on_link(seen.append)
    await host.connect()
    own_sshd.signal_sessions(signal.SIGSTOP)
    await until(seen, LinkState.LOST)
    await host.close()


async def test_a_login_that_never_answers_is_given_up(
    sshd: Sshd, relay: Relay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial, "CONNECT_TIMEOUT_S", SHORT_S)
    monkeypatch.setattr(dial, "LOGIN_TIMEOUT_S", SHORT_S)
    relay.freeze()
    host = behind(sshd, relay, tmp_path)
    with pytest.raises(ConnectFailed, match="did not answer in time"):
        await host.connect()
    await host.close()


async def test_a_port_that_does_not_speak_ssh_is_told(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "CONNECT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(dial, "LOGIN_TIMEOUT_S", 1.0)
    async with Speaker(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 40) as web:
        host = SshHost(sshd.spec(port=web.port), ssh_config=[])
        with pytest.raises(ConnectFailed) as caught:
            await host.connect()
        assert "is this its SSH port" in caught.value.hint
        await host.close()


async def test_requests_through_a_swallowing_link_end(sshd: Sshd, relay: Relay, tmp_path: Path) -> None:
    import aiohttp

    host = behind(sshd, relay, tmp_path)
    await host.connect()
    async with (
        Speaker(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", after=b"\r\n\r\n") as web,
        host.session() as session,
        session.get(f"http://127.0.0.1:{web.port}/") as response,
    ):
        relay.freeze()
        with pytest.raises((aiohttp.ClientError, OSError)):
            await response.read()
    await host.close()

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sshd import Sshd
from tokpit.domain.records import LinkRecord, LinkState
from tokpit.errors import HostError, LinkLost
from tokpit.transport.base import HostSpec
from tokpit.transport.follow import Sorter, Turn
from tokpit.transport.local import LocalHost
from tokpit.transport.ssh import SshHost

AnyHost = SshHost | LocalHost


async def read_until(tail: AsyncIterator[tuple[int, bytes]], want: bytes) -> list[tuple[int, bytes]]:
    """Pairs until what came ends with `want`."""
    got: list[tuple[int, bytes]] = []
    async for pair in tail:
        got.append(pair)
        if b"".join(data for _, data in got).endswith(want):
            return got
    raise AssertionError("a follow never ends")


def joined(pairs: list[tuple[int, bytes]]) -> bytes:
    return b"".join(data for _, data in pairs)


async def test_appended_bytes_come_with_their_position(any_host: AnyHost, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"first\nsecond\n")
    tail = any_host.follow(str(log), offset=6)
    assert await read_until(tail, b"second\n") == [(6, b"second\n")]
    with log.open("ab") as file:
        file.write(b"third \xff\n")
    assert await read_until(tail, b"\n") == [(13, b"third \xff\n")]
    await tail.aclose()


async def test_negative_offset_counts_from_the_end(any_host: AnyHost, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"0123456789")
    tail = any_host.follow(str(log), offset=-3)
    assert await read_until(tail, b"789") == [(7, b"789")]
    await tail.aclose()
    tail = any_host.follow(str(log), offset=-50)
    assert await read_until(tail, b"789") == [(0, b"0123456789")]
    await tail.aclose()


async def test_file_that_appears_later_is_read_from_its_beginning(any_host: AnyHost, tmp_path: Path) -> None:
    log = tmp_path / "later.log"
    tail = any_host.follow(str(log))
    reading = asyncio.ensure_future(read_until(tail, b"hello\n"))
    await asyncio.sleep(0.3)
    log.write_bytes(b"hello\n")
    assert await reading == [(0, b"hello\n")]
    await tail.aclose()


async def test_truncated_file_starts_over_at_zero(any_host: AnyHost, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"a long line of the past\n")
    tail = any_host.follow(str(log))
    await read_until(tail, b"past\n")
    log.write_bytes(b"new\n")
    assert await read_until(tail, b"new\n") == [(0, b"new\n")]
    await tail.aclose()


async def test_rotated_file_is_read_to_its_end_and_the_new_one_from_zero(any_host: AnyHost, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"one\n")
    tail = any_host.follow(str(log))
    await read_until(tail, b"one\n")
    with log.open("ab") as file:
        log.rename(tmp_path / "server.log.1")
        file.write(b"last words\n")
    log.write_bytes(b"fresh\n")
    assert await read_until(tail, b"fresh\n") == [(4, b"last words\n"), (0, b"fresh\n")]
    await tail.aclose()


async def test_link_cut_in_the_middle_loses_and_doubles_no_byte(own_sshd: Sshd, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    lines = [b"%06d the quick brown fox\n" % i for i in range(3000)]
    log.write_bytes(b"")
    host = SshHost(own_sshd.spec(), ssh_config=[])
    seen: list[LinkRecord] = []
    host.on_link(seen.append)

    async def write() -> None:
        for i, line in enumerate(lines):
            with log.open("ab") as file:
                file.write(line)
            if i % 10 == 0:
                await asyncio.sleep(0.005)
            if i in (700, 1900):
                own_sshd.signal_sessions(signal.SIGKILL)

    writer = asyncio.ensure_future(write())
    tail = host.follow(str(log))
    got = await read_until(tail, lines[-1])
    await writer
    assert joined(got) == b"".join(lines)
    assert [position for position, _ in got] == [sum(len(data) for _, data in got[:i]) for i in range(len(got))], (
        "each position is the number of bytes before it"
    )
    lost = [record for record in seen if record.state is LinkState.LOST]
    assert lost
    assert all(record.reason and record.retry_in_s is not None for record in lost)
    await tail.aclose()
    await host.close()


async def test_rotation_while_the_link_is_down_is_noticed(own_sshd: Sshd, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"before the cut\n")
    host = SshHost(own_sshd.spec(), ssh_config=[])
    tail = host.follow(str(log))
    await read_until(tail, b"cut\n")
    own_sshd.signal_sessions(signal.SIGKILL)
    log.rename(tmp_path / "server.log.1")
    log.write_bytes(b"a new file, longer than the old one was\n")
    assert await read_until(tail, b"was\n") == [(0, b"a new file, longer than the old one was\n")]
    await tail.aclose()
    await host.close()


@pytest.mark.skipif(shutil.which("busybox") is None, reason="no busybox on this machine")
async def test_busybox_tools_resume_at_the_very_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "stat", "cat", "dd", "sleep"):
        (tools / name).symlink_to(str(shutil.which("busybox")))
    monkeypatch.setenv("PATH", str(tools))
    log = tmp_path / "server.log"
    log.write_bytes(b"x" * 5_000_001 + b"tail\n")
    host = LocalHost(HostSpec(name="here", local=True))
    tail = host.follow(str(log), offset=5_000_001)
    assert await read_until(tail, b"tail\n") == [(5_000_001, b"tail\n")]
    os.truncate(log, 0)
    with log.open("ab") as file:
        file.write(b"again\n")
    assert await read_until(tail, b"again\n") == [(0, b"again\n")]
    await tail.aclose()
    await host.close()


def test_turns_are_found_however_the_stream_is_cut() -> None:
    word = "tokpit-0123"
    stream = b"tokpit-0123 at 8:7 40\nlog tokpit-0 line\nno newlinetokpit-0123 truncated 8:7 0\ntok"
    for size in (1, 2, 3, 7, 11, 1000):
        sorter = Sorter(word)
        items = [item for i in range(0, len(stream), size) for item in sorter.feed(stream[i : i + size])]
        turns = [item for item in items if isinstance(item, Turn)]
        assert turns == [Turn("at", "8:7", 40), Turn("truncated", "8:7", 0)]
        first = items.index(turns[1])
        assert b"".join(i for i in items[1:first] if isinstance(i, bytes)) == b"log tokpit-0 line\nno newline"


async def test_more_logs_than_places_for_streams_are_all_followed(host: SshHost, tmp_path: Path) -> None:
    logs = [tmp_path / f"{i}.log" for i in range(9)]
    for log in logs:
        log.write_bytes(b"first\n")
    tails = [host.follow(str(log)) for log in logs]
    assert [joined(pairs) for pairs in await asyncio.gather(*(read_until(tail, b"first\n") for tail in tails))]
    for log in logs:
        with log.open("ab") as file:
            file.write(b"second\n")
    got = await asyncio.gather(*(read_until(tail, b"second\n") for tail in tails))
    assert got == [[(6, b"second\n")]] * 9
    assert (await host.run("echo free")).out == "free\n"
    for tail in tails:
        await tail.aclose()


async def test_follow_ends_with_an_error_when_the_host_is_closed(any_host: AnyHost, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"x\n")
    tail = any_host.follow(str(log))
    await read_until(tail, b"x\n")
    waiting = asyncio.ensure_future(read_until(tail, b"never\n"))
    await asyncio.sleep(0)
    await any_host.close()
    with pytest.raises(LinkLost):
        await waiting


async def test_follow_of_a_host_that_is_down_waits_for_it(own_sshd: Sshd, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"at last\n")
    own_sshd.stop()
    host = SshHost(own_sshd.spec(), ssh_config=[])
    reading = asyncio.ensure_future(read_until(host.follow(str(log)), b"last\n"))
    while host.link.state is not LinkState.LOST:
        await asyncio.sleep(0.02)
    own_sshd.launch()
    assert await reading == [(0, b"at last\n")]
    await host.close()


async def test_follow_of_a_host_that_cannot_be_logged_in_to_fails(own_sshd: Sshd, tmp_path: Path) -> None:
    host = SshHost(own_sshd.spec(known_hosts=str(tmp_path / "none")), ssh_config=[])
    for _ in range(2):
        with pytest.raises(HostError, match="known_hosts"):
            await read_until(host.follow("/etc/hostname"), b"")
    await host.close()

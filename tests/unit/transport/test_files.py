from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from sshd import Sshd
from tokpit.errors import HostError, RemoteFailed
from tokpit.transport.local import LocalHost
from tokpit.transport.ssh import SshHost

AnyHost = SshHost | LocalHost


async def test_file_arrives_whole_with_parents_and_mode(any_host: AnyHost, tmp_path: Path) -> None:
    path = tmp_path / "new dir" / "it's" / "plan.json"
    data = os.urandom(700_000)
    await any_host.write_file(str(path), data, mode=0o640)
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o640
    await any_host.write_file(str(path), b"")
    assert path.read_bytes() == b""
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


async def test_home_of_the_host_is_meant_by_a_tilde(host: SshHost, sshd: Sshd) -> None:
    await host.write_file("~/notes/a.txt", b"x")
    assert (sshd.home / "notes/a.txt").read_bytes() == b"x"


async def test_folder_that_takes_no_file_is_told_with_the_hosts_reason(any_host: AnyHost, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    with pytest.raises(RemoteFailed, match="plain"):
        await any_host.write_file(str(tmp_path / "plain" / "x"), b"data")
    with pytest.raises(RemoteFailed, match="is a directory"):
        await any_host.write_file(str(tmp_path), b"data")
    # A file system that takes no files whoever asks, so that root is refused too.
    with pytest.raises(RemoteFailed, match="/proc/"):
        await any_host.write_file("/proc/tokpit-test", b"data" * 100_000)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to a read-only folder")
async def test_read_only_folder_is_told(any_host: AnyHost, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(RemoteFailed, match="denied"):
        await any_host.write_file(str(tmp_path / "x"), b"data")
    tmp_path.chmod(0o755)


async def test_link_that_breaks_in_the_middle_leaves_the_old_file(own_sshd: Sshd, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b"old")
    host = SshHost(own_sshd.spec(), ssh_config=[])
    await host.connect()
    writing = asyncio.ensure_future(host.write_file(str(path), b"n" * 80_000_000))
    while not any(part.stat().st_size > 1_000_000 for part in tmp_path.glob(".tokpit-*.part")):
        await asyncio.sleep(0.005)
    own_sshd.signal_sessions(signal.SIGKILL)
    with pytest.raises(HostError):
        await writing
    await host.close()
    while list(tmp_path.glob(".tokpit-*.part")):
        await asyncio.sleep(0.02)
    assert path.read_bytes() == b"old"

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sshd import SSHD_MISSING, Sshd
from tokpit.transport.base import HostSpec
from tokpit.transport.local import LocalHost
from tokpit.transport.ssh import SshHost


@pytest.fixture
def own_sshd(tmp_path: Path) -> Iterator[Sshd]:
    """A server for one test."""
    if SSHD_MISSING:
        pytest.skip(SSHD_MISSING)
    with Sshd.start(tmp_path / "sshd") as server:
        yield server


@pytest.fixture
async def host(sshd: Sshd) -> AsyncIterator[SshHost]:
    """A connected SSH host."""
    host = SshHost(sshd.spec(), ssh_config=[])
    await host.connect()
    yield host
    await host.close()


@pytest.fixture(params=["ssh", "local"])
async def any_host(request: pytest.FixtureRequest) -> AsyncIterator[SshHost | LocalHost]:
    """Both transports in turn."""
    host: SshHost | LocalHost
    if request.param == "ssh":
        server: Sshd = request.getfixturevalue("sshd")
        host = SshHost(server.spec(), ssh_config=[])
    else:
        host = LocalHost(HostSpec(name="here", local=True))
    await host.connect()
    yield host
    await host.close()

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from collect_tools import Kept
from tokpit.domain.server import ServerInfo
from tokpit.transport.base import HostSpec
from tokpit.transport.local import LocalHost


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
async def host() -> AsyncIterator[LocalHost]:
    made = LocalHost(HostSpec(name="here", local=True))
    await made.connect()
    yield made
    await made.close()


@pytest.fixture
def server() -> ServerInfo:
    return ServerInfo(host="here", engine="sglang", pid=10, start_ticks=20, pgid=10)

"""Pacing of the loops: intervals on the host's clock, and waiting for a lost link without spinning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tokpit.domain.records import LinkRecord, LinkState
from tokpit.errors import HostError, RemoteFailed
from tokpit.transport.base import Host, HostSpec

RETRY_S = 5.0
"""Real seconds after which a host that answered with an error is asked again, if its link does not come up before."""
SHORTEST_S = 0.2


def real_interval(spec: HostSpec, interval_s: float) -> float:
    """Real seconds for an interval on the host's clock: shorter on a simulated host whose clock runs fast."""
    return max(SHORTEST_S, interval_s / max(spec.clock_factor, 1e-9))


class LinkGate:
    """Lets loops wait until the link of a host is up again."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def wait(self, patience_s: float = RETRY_S) -> None:
        """Return when the link comes up, or after `patience_s`."""
        up = asyncio.Event()

        def heard(record: LinkRecord) -> None:
            if record.state is LinkState.UP:
                up.set()

        # Heard only while somebody waits: hosts outlive the servers that are watched on them.
        no_more = self._host.on_link(heard)
        try:
            async with asyncio.timeout(patience_s):
                await up.wait()
        except TimeoutError:
            pass
        finally:
            no_more()


async def repeat(host: Host, gate: LinkGate, interval_s: float, once: Callable[[], Awaitable[None]]) -> None:
    """Call `once` for ever at an interval on the host's clock; a lost link is waited out, a failed command retried."""
    while True:
        try:
            await once()
        except RemoteFailed:
            await asyncio.sleep(max(RETRY_S, real_interval(host.spec, interval_s)))
        except HostError:
            await gate.wait()
        else:
            await asyncio.sleep(real_interval(host.spec, interval_s))

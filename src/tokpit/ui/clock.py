"""What time it is on a host, and how old a figure is: hosts may run on a clock of their own."""

from __future__ import annotations

import time
from collections.abc import Callable

from tokpit.store.live import HostState, LiveStore
from tokpit.ui.session_protocol import SessionLike

STALE_S = 20.0
"""Real seconds after which a figure that should keep coming looks stale."""


class Clock:
    """Host time from the session if it says it, else from the newest record of the host."""

    def __init__(self, session: SessionLike, wall: Callable[[], float] = time.time) -> None:
        self._session = session
        self._wall = wall
        self._anchors: dict[str, tuple[float, float]] = {}
        self.held: float | None = None
        """UTC seconds (real) at which time stands still; None: it runs."""

    def wall(self) -> float:
        """Real UTC seconds."""
        return self._wall()

    def factor(self, host: str) -> float:
        """Seconds on the host's clock per real second."""
        spec = self._session.host_specs.get(host)
        return spec.clock_factor if spec is not None and spec.clock_factor > 0 else 1.0

    def now(self, host: str) -> float:
        """UTC seconds on the host's clock; those of the moment at which time is held."""
        return self.running(host) if self.held is None else self.at(host, self.held)

    def at(self, host: str, wall: float) -> float:
        """UTC seconds on the host's clock at a real time."""
        return self.running(host) - (self._wall() - wall) * self.factor(host)

    def wall_of(self, host: str, t: float) -> float:
        """Real UTC seconds at a time of the host's clock."""
        return self._wall() - (self.running(host) - t) / self.factor(host)

    def running(self, host: str) -> float:
        """UTC seconds on the host's clock, whether time is held or not."""
        told = getattr(self._session, "host_now", None)
        if callable(told):
            return float(told(host))
        state = self._session.store.hosts.get(host)
        ask = getattr(self._session, "host", None)
        if callable(ask) and state is not None and state.link is not None:
            return float(ask(host).now())
        factor = self.factor(host)
        wall = self._wall()
        if factor == 1.0:
            return wall
        newest = newest_t(state, self._session.store)
        anchor = self._anchors.get(host)
        if anchor is None or anchor[0] + (wall - anchor[1]) * factor < newest:
            anchor = self._anchors[host] = (newest, wall)
        return anchor[0] + (wall - anchor[1]) * factor

    def age(self, host: str, t: float | None) -> float | None:
        """Real seconds since `t` of the host's clock."""
        return None if t is None else max(0.0, (self.now(host) - t) / self.factor(host))


def newest_t(host: HostState | None, store: LiveStore) -> float:
    """The newest time stamp among a host's records; 0 if there is none."""
    if host is None:
        return 0.0
    times = [r.t for r in (host.gpus, host.memory, host.link) if r is not None]
    for server_id in host.server_ids:
        times += [s.last_t for s in store.servers[server_id].series.values() if s.last_t is not None]
    return max(times, default=0.0)

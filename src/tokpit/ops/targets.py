"""What a command acts on: a URL, a host, or one server on a host.

http://10.0.0.5:8000     a server reached directly, nothing known of its host
gpu1                     the only server on host gpu1
gpu1:30000               the server on port 30000 of gpu1
gpu1/4711                the server whose main process is pid 4711
login1/98123             the server in batch job 98123
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.engines import registry
from tokpit.errors import TargetError

if TYPE_CHECKING:
    from tokpit.ops.session import Session
    from tokpit.transport.base import Host


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved target: `url` alone, or a server on a host with the URL as seen from that host."""

    url: str
    host: str | None = None
    server: ServerInfo | None = None

    @property
    def label(self) -> str:
        """How lists name it."""
        return self.server.label if self.server is not None else self.url


_URL = re.compile(r"^https?://", re.IGNORECASE)
_PID = re.compile(r"^(?P<host>.+)/(?P<pid>\d+)(?:@\d+)?$")
_PORT = re.compile(r"^(?P<host>.+?):(?P<port>\d+)$")


async def resolve(session: Session, text: str) -> Target:
    """The target that `text` names. Raises TargetError where no server or more than one fits, HostError."""
    if _URL.match(text):
        return Target(url=text.rstrip("/"))
    if (match := _PID.match(text)) is not None:
        servers = await session.find(match["host"])
        return _one(text, [s for s in servers if match["pid"] == _number(s)], servers)
    match = _PORT.match(text)
    if match is not None and text not in session.inventory.hosts:
        servers = await session.find(match["host"])
        return _one(text, [s for s in servers if s.port == int(match["port"])], servers)
    servers = await session.find(text)
    return _one(text, list(servers), servers)


def server_target(info: ServerInfo) -> Target:
    """The target of a server that is already known. Raises TargetError where its port is not known."""
    if info.port is None:
        raise TargetError(f"{info.label}: its port is not known", hint="give a URL instead")
    address = f"[{info.listen}]" if ":" in info.listen else info.listen
    return Target(url=f"http://{address}:{info.port}", host=info.host, server=info)


def address_of(host: Host) -> str:
    """Where other machines reach a host: its address in the inventory, without a user."""
    return "127.0.0.1" if host.spec.local else (host.spec.address or host.spec.name).rpartition("@")[2]


def _number(server: ServerInfo) -> str:
    """Its process, or its job, whose process is on another machine."""
    return str(server.pid) if server.job is None else server.job.id


def _one(text: str, fitting: list[ServerInfo], all_servers: tuple[ServerInfo, ...]) -> Target:
    if len(fitting) == 1:
        return server_target(fitting[0])
    listed = ", ".join(f"{s.label} ({s.engine}, {'pid' if s.job is None else 'job'} {_number(s)})" for s in all_servers)
    if fitting:
        # Two jobs may have one port, each on a node of its own: the number tells them apart.
        either = ", ".join(f"{s.host}/{_number(s)} ({s.engine}, port {s.port or 'not known'})" for s in fitting)
        raise TargetError(f"{text}: more than one server fits", hint=f"name one of: {either}")
    if all_servers:
        raise TargetError(f"{text}: no such server", hint=f"running there: {listed}")
    raise TargetError(f"{text}: no {registry.listed()} server runs there", hint="start one with: tokpit launch")


async def resolve_server(session: Session, text: str) -> ServerInfo:
    """Like `resolve`, for commands that need a server on a host. Raises TargetError for a URL."""
    known = session.store.servers.get(text)
    if known is not None:
        return known.info
    target = await resolve(session, text)
    if target.server is None:
        raise TargetError(f"{text}: a URL says nothing of the process behind it", hint="name it HOST:PORT or HOST/PID")
    return target.server

"""Where the load comes from: this process, or a process of its own on the server's host. Same generator, same plan."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.errors import HostError, LoadError, UsageError
from tokpit.ops.sweep.onhost import find_on_host
from tokpit.ops.targets import address_of
from tokpit.transport.base import Host, quote

if TYPE_CHECKING:
    from tokpit.load.events import Event
    from tokpit.load.plan import Plan
    from tokpit.load.process import Generator
    from tokpit.load.results import SweepResult
    from tokpit.ops.session import Session
    from tokpit.ops.targets import Target

OnEvent = Callable[["Event"], None]


class Source(Protocol):
    """Runs plans."""

    @property
    def where(self) -> str:
        """`here`, `host`, or `hosts` with their names."""
        ...

    @property
    def command(self) -> str:
        """The remote command line, empty where there is none."""
        ...

    async def ready(self) -> None:
        """Do once what must be done before the first run. Raises HostError."""
        ...

    async def close(self) -> None:
        """End what runs for this source."""
        ...

    async def run(self, plan: Plan, on_event: OnEvent, stop: asyncio.Event) -> SweepResult:
        """Run `plan`; setting `stop` ends it with what was measured. Raises LoadError, HostError."""
        ...


class Here:
    """The generator on this machine; a remote server is reached through the SSH connection, in this process.

    Where no connection is needed it runs in a process of its own, once `ready` was awaited: a screen that is drawn
    meanwhile cannot disturb the times there. `close` ends that.
    """

    where = "here"
    command = ""

    def __init__(self, host: Host | None) -> None:
        self._host = host if host is not None and not host.spec.local else None
        self._generator: Generator | None = None

    async def ready(self) -> None:
        """See Source."""
        from tokpit.load.process import Generator

        if self._host is None and self._generator is None:
            self._generator = Generator()

    async def close(self) -> None:
        """See Source."""
        if self._generator is not None:
            await self._generator.close()

    async def run(self, plan: Plan, on_event: OnEvent, stop: asyncio.Event) -> SweepResult:
        """See Source."""
        from tokpit.load.process import ProcessEnded
        from tokpit.load.run import run_sweep

        if self._generator is not None:
            try:
                return await self._generator.run(plan, on_event=on_event, stop=stop)
            except (ProcessEnded, OSError) as error:
                raise LoadError(str(error)) from error
        factory = self._host.session if self._host is not None else None
        return await run_sweep(plan, session_factory=factory, on_event=on_event, stop=stop)


async def choose(wanted: str, host: Host | None, server: ServerInfo | None) -> tuple[Source, str]:
    """The source for `wanted` (`here`, `host`, `auto`) and why it was taken, in words.

    Raises HostError where `host` was asked for and cannot be; LoadError where the target has no host.
    """
    if wanted == "here":
        return Here(host), "as asked"
    if host is None:
        if wanted == "host":
            raise LoadError(
                "a URL names no host to send the load from", hint="name the server HOST:PORT, or use --from here"
            )
        return Here(None), "the target is a URL, so its host is not known"
    if wanted == "auto" and server is not None and server.job is not None:
        return Here(host), "a login host is no place for a load generator"
    try:
        found = await find_on_host(host, server)
    except HostError as error:
        if wanted == "host":
            raise
        return Here(host), error.message
    return found, "as asked" if wanted == "host" else "next to the server, without the link in between"


async def from_hosts(session: Session, names: Sequence[str], target: Target) -> tuple[Source, str]:
    """The load from several hosts at once; each reaches the server at its host's address.

    `slurm:PARTITION:N` (or `slurm:LOGIN/PARTITION:N`, where TARGET names no login host) are N nodes of a partition.
    Raises HostError, UsageError.
    """
    from tokpit.ops.sweep.team import FromHosts, Place

    server_host = session.host(target.host) if target.host is not None else None
    if len(names) == 1 and (asked := read_slurm(names[0])) is not None:
        login = await session.connected(asked.login or target.host or _no_login(names[0]))
        # A server in a job of the same login host: its interpreter is on the file system that the nodes share.
        ours = target.server if target.host == login.name else None
        found = await find_on_host(login, ours if ours is not None and ours.job is not None else None)
        in_job = target.server is not None and target.server.job is not None
        url = "" if server_host is None or in_job else _seen_from_afar(target, server_host)
        words = quote(asked.srun())
        nodes = [
            Place(
                host=login,
                name=f"{asked.partition} {i + 1}",
                command=found.worker_command.replace(" ", f" {words} ", 1),
                url=url,
                hello_s=QUEUE_S,
                most=1,
                put=found.put if i == 0 else None,
            )
            for i in range(asked.count)
        ]
        return FromHosts(nodes, server_host), f"{len(nodes)} nodes of partition {asked.partition}, as asked"

    async def place(name: str) -> Place:
        host = await session.connected(name)
        same = server_host is not None and host.name == server_host.name
        found = await find_on_host(host, target.server if same else None)
        url = "" if same or server_host is None else _seen_from_afar(target, server_host)
        return Place(host=host, name=host.name, command=found.worker_command, url=url, put=found.put)

    places = await asyncio.gather(*(place(name) for name in names))
    return FromHosts(places, server_host), f"{len(places)} hosts together, as asked"


QUEUE_S = 300.0
"""How long a partition may take to give the nodes for the load."""
MOST_NODES = 8
"""Each node is a session of one connection to the login host."""


class SlurmNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of a partition to send load from."""

    partition: str
    count: int
    login: str = ""

    def srun(self) -> tuple[str, ...]:
        """What starts one generator there, its standard input and output being ours."""
        return (
            *("srun", f"--partition={self.partition}", "--nodes=1", "--ntasks=1", "--job-name=tokpit-load"),
            *("--unbuffered", "--input=0", "--kill-on-bad-exit=1"),
        )


def read_slurm(text: str) -> SlurmNodes | None:
    """`slurm:PARTITION:N` or `slurm:LOGIN/PARTITION:N`; None for a host's name. Raises UsageError."""
    if not text.startswith("slurm:"):
        return None
    match = re.fullmatch(r"slurm:(?:([^/]+)/)?([\w.-]+):(\d+)", text)
    if match is None or not 1 <= int(match[3]) <= MOST_NODES:
        hint = f"write slurm:PARTITION:N, N up to {MOST_NODES}, or slurm:LOGIN/PARTITION:N"
        raise UsageError(f"{text!r} names no nodes", hint=hint)
    return SlurmNodes(login=match[1] or "", partition=match[2], count=int(match[3]))


def _no_login(text: str) -> str:
    raise UsageError(f"{text} needs a login host, and the target names none", hint="write slurm:LOGIN/PARTITION:N")


def _seen_from_afar(target: Target, host: Host) -> str:
    """The server's address for other machines: that of its host, with its own port."""
    from urllib.parse import urlsplit

    port, address = urlsplit(target.url).port, address_of(host)
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"

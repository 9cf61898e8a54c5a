"""Find servers: the process table and what the engines know of command lines, ports, workers and log files."""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Iterator, Mapping

import msgspec

from tokpit.collect.jobs import Jobs, with_jobs
from tokpit.domain.records import Orphan
from tokpit.domain.server import ServerInfo
from tokpit.engines import registry
from tokpit.engines.base import Recognised
from tokpit.errors import RemoteFailed
from tokpit.probes import processes as probe
from tokpit.probes.processes import Process, ProcessTable
from tokpit.transport.base import Host, quote

WORDS: tuple[str, ...] = tuple(word for engine in registry.engines() for word in engine.process_words)
"""What the command line of a server or a worker contains, in any case."""

# Adopters of orphans: init itself, the user's service manager, and the small inits of containers.
_REAPERS = {"systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "containerd-shim", "conmon"}
_MOST_TRIES = 3
_ANY_ADDRESS = {"", "0.0.0.0", "::", "[::]", "*", "localhost"}  # noqa: S104  # compared with, never bound


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Servers and orphan workers of a host, with the table they come from."""

    servers: tuple[ServerInfo, ...]
    orphans: tuple[Orphan, ...]
    table: ProcessTable


class Finder:
    """Finds servers on one host and remembers their versions, which are asked once for each server."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._jobs = Jobs(host)
        self._versions: dict[str, str | None] = {}
        self._tries: dict[str, int] = {}

    async def find(self) -> Found:
        """The servers now, in the login's batch jobs too. Raises HostError; RemoteFailed where the process table
        cannot be read."""
        # Side by side: on a far host each question takes three round trips.
        asked = asyncio.create_task(self._jobs.listed())
        try:
            table = await read_table(self._host)
            servers = servers_of(table, self._host.name)
            await asyncio.gather(*(self._ask(info) for info in servers))
            jobs = await asked
        finally:
            asked.cancel()
        servers = tuple(
            msgspec.structs.replace(
                info,
                version=self._versions[info.id],
                started_at=on_host_clock(self._host, info.started_at, table.now),
            )
            for info in servers
        )
        here = {info.id for info in servers}
        self._versions = {key: version for key, version in self._versions.items() if key in here}
        servers = with_jobs(servers, jobs)
        return Found(servers=servers, orphans=orphans_of(table), table=table)

    async def _ask(self, info: ServerInfo) -> None:
        """Learn the version of a server, once; a host that was too busy to answer is asked a few times more."""
        if self._versions.get(info.id) is not None or self._tries.get(info.id, 0) >= _MOST_TRIES:
            return
        self._tries[info.id] = self._tries.get(info.id, 0) + 1
        self._versions[info.id] = await ask_version(self._host, info)


def on_host_clock(host: Host, t: float | None, now: float | None) -> float | None:
    """A time that the machine printed, on the clock of `host.now()`; `now` is the machine's time when it was read.

    The two differ only on a simulated host, whose clock runs faster than the machine's.
    """
    if t is None or now is None or host.spec.clock_factor == 1.0:
        return t
    return host.now() - (now - t) * host.spec.clock_factor


async def find_servers(host: Host) -> tuple[ServerInfo, ...]:
    """The servers on a host now, versions included. Raises HostError."""
    return (await Finder(host).find()).servers


async def read_table(host: Host) -> ProcessTable:
    """The process table of a host. Raises HostError; RemoteFailed where it came incomplete."""
    done = await host.run(probe.script(WORDS), timeout_s=30.0)
    try:
        return probe.parse(done.out)
    except ValueError as error:
        said = done.err.strip().split("\n")[-1][:200]
        raise RemoteFailed(
            f"the process table of {host.name} could not be read: {said or error}", status=done.status
        ) from error


def servers_of(table: ProcessTable, host: str) -> tuple[ServerInfo, ...]:
    """The servers in a process table, in the order of their pids; versions are not known from it."""
    by_pid = {process.pid: process for process in table.processes}
    known = _recognised(table)
    children: dict[int, list[int]] = {}
    for process in table.processes:
        children.setdefault(process.ppid, []).append(process.pid)
    found = []
    for pid, recognised in known.items():
        process = by_pid[pid]
        if any(known[up].engine == recognised.engine for up in _ancestors(process, by_pid) if up in known):
            continue  # a fork of the main process that has not been given its title yet
        family = tuple(sorted(_descendants(pid, children)))
        found.append(_server(table, host, process, recognised, family, by_pid))
    return tuple(found)


def orphans_of(table: ProcessTable) -> tuple[Orphan, ...]:
    """Workers whose server is gone: adopted by an init, or children of such a worker."""
    by_pid = {process.pid: process for process in table.processes}
    known = _recognised(table)
    roles: dict[int, tuple[str, str]] = {}
    for process in table.processes:
        for name in registry.names() if process.argv and process.pid not in known else ():
            role = registry.engine(name).recognise_worker(process.argv)
            if role is not None:
                roles[process.pid] = (name, role)
                break
    orphans: dict[int, Orphan] = {}
    pending = dict(roles)
    while pending:
        adopted = [pid for pid in pending if _adopted(by_pid[pid], by_pid, known) or by_pid[pid].ppid in orphans]
        if not adopted:
            break
        for pid in adopted:
            name, role = pending.pop(pid)
            orphans[pid] = _orphan(by_pid[pid], name, role, table)
    return tuple(orphans[pid] for pid in sorted(orphans))


async def ask_version(host: Host, info: ServerInfo) -> str | None:
    """The installed version of the server's engine, None where it cannot be told. Raises HostError on a lost link."""
    engine = registry.engine(info.engine)
    if info.container is not None or (engine.interpreted and not info.python):
        return None  # the same path means another file inside a container
    command = engine.version_command("TOKPIT_PYTHON")
    words = " ".join('"$python"' if word == "TOKPIT_PYTHON" else quote([word]) for word in command)
    python = info.python or f"/proc/{info.pid}/exe"  # the very file that runs, whatever lies at its path now
    if "/" in python:
        find = f"python={quote([posixpath.join(info.cwd or '/', python)])}"
    else:
        # A bare name was looked up in a PATH we do not know; the packages that the process has mapped tell its home.
        find = (
            f"home=$(grep -m 1 -o '/.*/lib/python3[^/]*/site-packages/' /proc/{info.pid}/maps 2>/dev/null"
            " | head -n 1); home=${home%/lib/python3*}\n"
            f'if [ -n "$home" ] && [ -x "$home/bin/python3" ]; then python=$home/bin/python3\n'
            f'elif [ -n "$home" ] && [ -x "$home/bin/python" ]; then python=$home/bin/python\n'
            f"else python={quote([python])}; fi"
        )
    try:
        done = await host.run(f"cd /\n{find}\necho @@version\n{words} 2>/dev/null", timeout_s=15.0)
    except RemoteFailed:
        return None
    said = done.out.rpartition("@@version")[2].strip().split("\n")[-1].strip()
    return said if done.status == 0 and re.fullmatch(r"[0-9A-Za-z.+!_-]{1,64}", said) else None


def _recognised(table: ProcessTable) -> dict[int, Recognised]:
    found: dict[int, Recognised] = {}
    for process in table.processes:
        if process.argv and process.state != "Z" and (known := registry.recognise(process.argv)) is not None:
            found[process.pid] = known
    return found


def _ancestors(process: Process, by_pid: Mapping[int, Process]) -> Iterator[int]:
    seen = {process.pid}
    while process.ppid in by_pid and process.ppid not in seen:
        process = by_pid[process.ppid]
        seen.add(process.pid)
        yield process.pid


def _descendants(pid: int, children: Mapping[int, list[int]]) -> set[int]:
    found: set[int] = set()
    todo = list(children.get(pid, ()))
    while todo:
        child = todo.pop()
        if child not in found and child != pid:
            found.add(child)
            todo += children.get(child, ())
    return found


def _server(
    table: ProcessTable,
    host: str,
    process: Process,
    recognised: Recognised,
    family: tuple[int, ...],
    by_pid: Mapping[int, Process],
) -> ServerInfo:
    settings = recognised.settings
    return ServerInfo(
        host=host,
        engine=recognised.engine,
        pid=process.pid,
        start_ticks=process.start_ticks,
        pgid=process.pgid,
        sid=process.sid,
        ppid=process.ppid,
        user=process.user,
        argv=process.argv,
        cwd=process.cwd,
        port=_port(table, process.pid, family, recognised),
        listen=_reach(settings.listen),
        model=settings.model,
        served_name=settings.served_name,
        python=recognised.python,
        settings=settings,
        log_path=log_path(process, table.processes),
        started_at=table.started_at(process.start_ticks),
        children=family,
        rss_bytes=process.rss_bytes + sum(by_pid[pid].rss_bytes for pid in family),
        container=process.container,
    )


def _port(table: ProcessTable, pid: int, family: tuple[int, ...], recognised: Recognised) -> int | None:
    """The port of the flags; without one the engine's default, unless the process is seen listening elsewhere only.

    None for a rank that has none of its own.
    """
    if recognised.headless:
        return None
    if recognised.settings.port is not None:
        return recognised.settings.port
    default = registry.engine(recognised.engine).http.default_port
    own = {listener.port for listener in table.listeners if pid in listener.pids}
    theirs = own or {listener.port for listener in table.listeners if set(family) & set(listener.pids)}
    return default if default in theirs or len(theirs) != 1 else next(iter(theirs))


def _reach(listen: str | None) -> str:
    """The address to reach a listen address at, from the host itself; a server on `::` answers IPv4 as well."""
    return "127.0.0.1" if listen is None or listen in _ANY_ADDRESS else listen.strip("[]")


def log_path(process: Process, others: tuple[Process, ...] = ()) -> str | None:
    """The file that the process writes its output to, directly or through `tee`; None for everything else."""
    for target, kind in ((process.stdout, process.stdout_kind), (process.stderr, process.stderr_kind)):
        if kind == "file":
            return target
        if kind == "foreign":
            return f"/proc/{process.pid}/root{target}"
    for target in (process.stdout, process.stderr):
        if not target.startswith("pipe:"):
            continue
        for other in others:
            if other.stdin == target and other.argv and posixpath.basename(other.argv[0]) == "tee":
                files = [word for word in other.argv[1:] if not word.startswith("-")]
                if files and (files[0].startswith("/") or other.cwd):
                    return posixpath.normpath(posixpath.join(other.cwd, files[0]))
    return None


def _adopted(process: Process, by_pid: Mapping[int, Process], known: Mapping[int, Recognised]) -> bool:
    if process.ppid in known:
        return False
    parent = by_pid.get(process.ppid)
    return process.ppid <= 1 or parent is None or parent.comm in _REAPERS


def _orphan(process: Process, engine: str, role: str, table: ProcessTable) -> Orphan:
    return Orphan(
        engine=engine,
        role=role,
        pid=process.pid,
        start_ticks=process.start_ticks,
        pgid=process.pgid,
        sid=process.sid,
        title=process.argv[0],
        user=process.user,
        rss_bytes=process.rss_bytes,
        started_at=table.started_at(process.start_ticks),
        container=process.container,
    )

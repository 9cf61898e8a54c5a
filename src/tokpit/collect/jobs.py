"""Servers in one's batch jobs: the queue's list, and what the engines know of the command lines in its scripts."""

from __future__ import annotations

import asyncio

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.engines import registry
from tokpit.engines.flagkit.shelltext import started_in
from tokpit.errors import HostError
from tokpit.probes.slurm import Listed, mine_script, parse
from tokpit.transport.base import Host

EVERY_S = 20.0
"""A queue serves many people: it is asked no more often than that."""


class Jobs:
    """The servers in the login's jobs on one host; a host without a queue is asked once."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._none = False
        self._asked_at = 0.0
        self._found: tuple[tuple[ServerInfo, bool], ...] = ()

    async def find(self) -> tuple[tuple[ServerInfo, bool], ...]:
        """Each with whether its node is the host itself. Raises HostError; an answer that is cut changes nothing."""
        now = asyncio.get_running_loop().time()
        if self._none or (self._asked_at and now - self._asked_at < EVERY_S):
            return self._found
        answer = await self._host.run(mine_script(), timeout_s=30.0)
        if not answer.out.strip():
            self._none = answer.status == 0
            return self._found
        self._asked_at = now
        try:
            listed = parse(answer.out)
        except ValueError:
            return self._found
        self._found = tuple((info, one.here) for one in listed if (info := server_of(self._host.name, one)) is not None)
        return self._found

    async def listed(self) -> tuple[tuple[ServerInfo, bool], ...]:
        """The same; none where the host does not answer."""
        try:
            return await self.find()
        except HostError:
            return ()


def server_of(host: str, listed: Listed) -> ServerInfo | None:
    """The server that a job's script starts; None where it starts none, or the job is over."""
    job = listed.job
    started = started_in(listed.script)
    if not started or not (job.alive or job.waiting):
        return None
    one = started[0]  # of several nodes the first, which has the port
    engine = registry.engine(one.engine)
    recognised = engine.recognise(one.argv)
    return ServerInfo(
        host=host,
        engine=one.engine,
        pid=0,
        start_ticks=int(job.id) if job.id.isdecimal() else 0,
        pgid=0,
        user=job.user,
        argv=one.argv,
        port=one.settings.port or engine.http.default_port,
        listen=job.address or "127.0.0.1",
        model=one.settings.model,
        served_name=one.settings.served_name,
        python=recognised.python if recognised is not None else None,
        settings=one.settings,
        log_path=job.log_path or None,
        started_at=job.start_at if job.alive else None,
        job=job,
        launched_by_tokpit=job.name.startswith("tokpit-"),
    )


def with_jobs(servers: tuple[ServerInfo, ...], found: tuple[tuple[ServerInfo, bool], ...]) -> tuple[ServerInfo, ...]:
    """`servers` of the process table with those in jobs; one that is both is the job's, which alone can end it."""
    ports = {info.port for info, here in found if here}
    kept = [info for info in servers if info.port not in ports or info.port is None]
    return (*kept, *(info for info, _ in found))


def same_job(info: ServerInfo, listed: Listed) -> ServerInfo:
    """`info` with what the queue says of its job now."""
    return msgspec.structs.replace(info, job=listed.job, listen=listed.job.address or info.listen)

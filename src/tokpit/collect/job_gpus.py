"""The GPUs of a server in a batch job: they are in the job's node, which is reached through the login host alone.

A step of the job (srun) sees exactly the job's GPUs; where the queue gives none, SSH from the login host to the node is
tried. Each poll is a short command there, given up after its time, so that nothing stays on the login host.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable

import msgspec

from tokpit.collect.gpus import GpuWatch
from tokpit.collect.link import LinkGate
from tokpit.domain.hostspec import HostSpec
from tokpit.domain.job import BatchJob
from tokpit.domain.records import GpuRecord, Record
from tokpit.domain.server import ServerInfo
from tokpit.domain.text import decode_line
from tokpit.errors import RemoteFailed
from tokpit.probes.slurm import NODE_MARK, by_ssh, by_step
from tokpit.transport.base import Completed, Host

EVERY_S = 10.0
"""Each poll is a step of the queue, which serves many people; older than twice this, figures look stale."""
POLL_S = 45.0
AGAIN_S = 600.0
"""After a poll that did not end: the driver may hang, and every further poll would hang beside it."""

Sink = Callable[[Record], None]
Known = Callable[[], "ServerInfo | None"]
"""What is known of the server now; None once it is gone."""


APART_S = 2.0
"""Between two polls through one login host, of whatever jobs: many that are watched are asked more seldom each."""


class _Turns:
    """One poll at a time through a login host, and not at once after the last."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.next_at = 0.0


_turns: weakref.WeakKeyDictionary[Host, _Turns] = weakref.WeakKeyDictionary()


class JobOver(Exception):
    """The job that was looked at runs no more."""


class Node:
    """The first node of a job as something that runs scripts."""

    def __init__(self, host: Host, known: Known) -> None:
        self._host, self._known = host, known
        self.spec: HostSpec = host.spec
        self._ways: tuple[tuple[str, Callable[[BatchJob, str, float], str]], ...] = (("srun", by_step), ("ssh", by_ssh))
        self._hushed: dict[str, float] = {}

    @property
    def name(self) -> str:
        """The login host's: records are under its name."""
        return self._host.name

    def now(self) -> float:
        """The login host's clock."""
        return self._host.now()

    def job(self) -> BatchJob:
        """The job as the queue told it last. Raises JobOver."""
        info = self._known()
        if info is None or info.job is None or not (info.job.alive and info.job.nodes):
            raise JobOver
        return info.job

    async def run(
        self, script: str, *, stdin: bytes = b"", timeout_s: float = POLL_S, check: bool = False
    ) -> Completed:
        """See Host; by the way that worked last. Raises JobOver, RemoteFailed with what each way said, HostError."""
        job, said = self.job(), []
        for way in self._ways:
            name, command = way
            if time.monotonic() < self._hushed.get(name, 0.0):
                said.append(f"{name}: did not end within {POLL_S:.0f} s, and is not asked again for a while")
                continue
            answer = await self._in_turn(command(job, script, POLL_S))
            head, mark, out = answer.stdout.partition(NODE_MARK.encode() + b"\n")
            if mark:
                self._ways = (way, *(other for other in self._ways if other is not way))
                return msgspec.structs.replace(answer, stdout=out)
            if answer.status == 124:
                self._hushed[name] = time.monotonic() + AGAIN_S
            lines = (head + answer.stderr).strip().splitlines() or [f"status {answer.status}".encode()]
            said.append(f"{name}: {decode_line(lines[-1]).removeprefix('srun: error: ')}")
        raise RemoteFailed(f"the GPUs of {job.nodes[0]} cannot be asked ({'; '.join(said)})")

    async def _in_turn(self, script: str) -> Completed:
        turns = _turns.setdefault(self._host, _Turns())
        async with turns.lock:
            await asyncio.sleep(max(0.0, turns.next_at - time.monotonic()))
            try:
                return await self._host.run(script, timeout_s=POLL_S + 15.0)
            finally:
                turns.next_at = time.monotonic() + APART_S


async def watch_job_gpus(host: Host, known: Known, sink: Sink) -> None:
    """Feed GpuRecords of a server's node until its job is over or this is cancelled; a job that waits is waited for."""
    gate = LinkGate(host)
    node = Node(host, known)

    def told(record: Record) -> None:
        info = known()
        if isinstance(record, GpuRecord) and info is not None and info.job is not None and info.job.nodes:
            sink(msgspec.structs.replace(record, server=info.id, node=info.job.nodes[0]))

    while (info := known()) is not None and info.job is not None and (info.job.alive or info.job.waiting):
        if info.job.alive and info.job.nodes:
            try:
                await GpuWatch(node, told, gate, EVERY_S).run()
            except JobOver:
                continue
        await gate.wait(EVERY_S)

"""What a server occupies: its processes, GPU memory, port and shared memory. Taken before a stop and again after it."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.errors import HostError
from tokpit.probes import family as probe
from tokpit.probes.family import Family, SharedFile
from tokpit.probes.gpu import GpuPoll
from tokpit.probes.registry import READERS
from tokpit.transport.base import Host

_MOST_FIELDS = 12


class GpuHold(msgspec.Struct, frozen=True, kw_only=True):
    """GPU memory in MiB. None: the driver does not say."""

    by_pid: dict[int, float | None]
    """What the asked processes hold; a process that holds nothing is not in it."""
    used_mib: float | None = None
    """All that is used on the GPUs concerned, whoever holds it."""

    @property
    def held_mib(self) -> float | None:
        """The sum over the asked processes; None where the driver does not say for one of them."""
        known = [value for value in self.by_pid.values() if value is not None]
        return sum(known) if len(known) == len(self.by_pid) else None


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """See the module docstring. `gpu` None: no GPU could be asked."""

    family: Family
    gpu: GpuHold | None = None
    shm: tuple[SharedFile, ...] = ()


async def take(host: Host, info: ServerInfo) -> Footprint:
    """The footprint of a server now; its family is empty where it is gone. Raises HostError."""
    answer = await host.run(probe.family_script(info.pid))
    family = probe.parse_family(answer.out, info.pid, info.start_ticks, info.pgid)
    return await of_family(host, family)


async def of_family(host: Host, family: Family) -> Footprint:
    """The footprint of these processes. Raises HostError."""
    if not family.members:
        return Footprint(family=family)
    shared = await host.run(probe.shm_script(family.pids))
    return Footprint(family=family, gpu=await gpu_hold(host, family.pids), shm=probe.parse_shm(shared.out))


async def gpu_hold(host: Host, pids: Iterable[int]) -> GpuHold | None:
    """GPU memory that these processes hold, asked of whatever kind of GPU the host has; None where none answers."""
    poll = await poll_gpus(host)
    if poll is None:
        return None
    wanted = set(pids)
    own = [process for process in poll.processes if process.pid in wanted]
    by_pid: dict[int, float | None] = {}
    for process in own:
        before = by_pid.get(process.pid, 0.0)
        by_pid[process.pid] = None if before is None or process.used_mib is None else before + process.used_mib
    where = {process.uuid for process in own}
    used = [gpu.mem_used_mib for gpu in poll.gpus if not where or gpu.uuid in where]
    known = [value for value in used if value is not None]
    return GpuHold(by_pid=by_pid, used_mib=sum(known) if used and len(known) == len(used) else None)


async def poll_gpus(host: Host) -> GpuPoll | None:
    """One answer of whatever kind of GPU the host has; None where none answers."""
    for kind in READERS:
        reader = kind()
        for _ in range(_MOST_FIELDS):
            started = time.monotonic()
            try:
                answer = await host.run(reader.script(), timeout_s=30.0)
            except HostError:
                return None
            poll = reader.read(answer.out, time.monotonic() - started)
            if not poll.again:
                break
        if poll.gpus:
            return poll
    return None

"""Who holds GPU memory now: servers, orphan workers, leftovers of removed containers, strangers. Nothing is ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from tokpit.domain.hostfacts import HostFacts
from tokpit.ops.footprint import poll_gpus
from tokpit.transport.base import Host

if TYPE_CHECKING:
    from tokpit.ops.session import Session
    from tokpit.probes.processes import ProcessTable

_BUSY = 0.1


class Occupant(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU. `kind`: `server`, `worker`, `orphan`, `container` (of none that runs), `other`."""

    pid: int
    name: str
    kind: str
    used_mib: float | None = None
    """None: the driver does not say."""
    whose: str = ""
    """The server's label, the container, the user."""
    age_s: float | None = None


def busy(facts: HostFacts) -> bool:
    """Whether a GPU has noticeably less free memory than it has in all."""
    pairs = zip(facts.gpu_free_mib, facts.gpu_mem_mib, strict=False)
    return any(free < total * (1 - _BUSY) for free, total in pairs)


async def occupants(session: Session, host: Host) -> tuple[Occupant, ...]:
    """The processes on the GPUs of a host, most memory first. Raises HostError."""
    from tokpit.collect.find import orphans_of, read_table, servers_of

    poll = await poll_gpus(host)
    if poll is None or not poll.processes:
        return ()
    table = await read_table(host)
    owners: dict[int, tuple[str, str]] = {}
    for server in servers_of(table, host.name):
        owners[server.pid] = ("server", server.label)
        owners.update(dict.fromkeys(server.children, ("worker", server.label)))
    for orphan in orphans_of(table):
        owners[orphan.pid] = ("orphan", orphan.user)
    boxes = await _running_containers(host) if any(p.container for p in table.processes) else None
    found: dict[int, Occupant] = {}
    for process in poll.processes:
        kind, whose = owners.get(process.pid, ("other", ""))
        container = next((p.container for p in table.processes if p.pid == process.pid), None)
        if container and boxes is not None and not any(box.startswith(container) for box in boxes):
            kind, whose = "container", container
        earlier = found.get(process.pid)
        used = process.used_mib
        if earlier is not None:  # one process on several GPUs
            used = None if used is None or earlier.used_mib is None else used + earlier.used_mib
        found[process.pid] = Occupant(
            pid=process.pid,
            name=process.name,
            kind=kind,
            used_mib=used,
            whose=whose,
            age_s=_age(table, process.pid),
        )
    return tuple(sorted(found.values(), key=lambda one: -(one.used_mib or 0)))


def _age(table: ProcessTable, pid: int) -> float | None:
    process = next((p for p in table.processes if p.pid == pid), None)
    started = table.started_at(process.start_ticks) if process is not None else None
    return None if started is None else max((table.now or time.time()) - started, 0.0)


async def _running_containers(host: Host) -> tuple[str, ...] | None:
    """Full ids of running containers; None where docker does not tell."""
    answer = await host.run("docker ps -q --no-trunc 2>/dev/null")
    return tuple(answer.out.split()) if answer.status == 0 else None


def sentences(found: tuple[Occupant, ...], host_name: str) -> tuple[str, ...]:
    """What to know of them before a launch, one sentence each."""
    said = []
    for one in found:
        held = "an unknown amount of" if one.used_mib is None else f"{one.used_mib:,.0f} MiB of"
        who = f"{one.name or 'a process'} (pid {one.pid})"
        if one.kind == "orphan":
            age = f", {one.age_s / 60:,.0f} min old," if one.age_s is not None else ""
            said.append(
                f"orphan {who}{age} holds {held} GPU memory: its server is gone; "
                f"end it with tokpit stop {host_name}/{one.pid}"
            )
        elif one.kind == "container":
            said.append(
                f"{who} holds {held} GPU memory and belongs to container {one.whose}, which does not run (any more): "
                "ask whose it is before ending it"
            )
        elif one.kind in {"server", "worker"}:
            said.append(f"{one.whose} holds {held} GPU memory ({who})")
        else:
            said.append(f"{who} holds {held} GPU memory")
    return tuple(said)

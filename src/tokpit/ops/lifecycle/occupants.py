"""Who holds GPU memory now: servers, orphan workers, leftovers of removed containers, strangers. Nothing is ended."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tokpit.domain.hostfacts import HostFacts
from tokpit.ops.lifecycle.footprint import poll_gpus
from tokpit.transport.base import Host

if TYPE_CHECKING:
    from tokpit.domain.records import GpuProcess
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
    from tokpit.collect.find import read_table

    poll = await poll_gpus(host)
    if poll is None or not poll.processes:
        return ()
    table = await read_table(host)
    boxed = any(process.container for process in table.processes)
    return told_apart(poll.processes, table, host.name, await _running(host) if boxed else {})


def told_apart(
    on_gpus: Sequence[GpuProcess], table: ProcessTable, host_name: str, running: Mapping[str, frozenset[str]]
) -> tuple[Occupant, ...]:
    """Whose the processes on the GPUs are. `running`: full ids of running containers, of each runtime that told."""
    from tokpit.collect.find import orphans_of, servers_of

    owners: dict[int, tuple[str, str]] = {}
    for server in servers_of(table, host_name):
        owners[server.pid] = ("server", server.label)
        owners.update(dict.fromkeys(server.children, ("worker", server.label)))
    for orphan in orphans_of(table):
        owners[orphan.pid] = ("orphan", orphan.user)
    by_pid = {process.pid: process for process in table.processes}
    found: dict[int, Occupant] = {}
    for process in on_gpus:
        kind, whose = owners.get(process.pid, ("other", ""))
        known = by_pid.get(process.pid)
        if known is not None and known.container and known.runtime in running:
            container = known.container
            if not any(box.startswith(container) for box in running[known.runtime]):
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


# podman shows a user his own containers only: what it does not list runs perhaps for somebody else.
_RUNNING = """\
for r in docker podman; do
  command -v "$r" >/dev/null 2>&1 || continue
  if [ "$r" = podman ] && [ "$(id -u)" != 0 ]; then continue; fi
  ids=$("$r" ps -q --no-trunc 2>/dev/null) && echo "$r" $ids
done
:
"""


async def _running(host: Host) -> dict[str, frozenset[str]]:
    """Full ids of running containers by runtime; a runtime that does not tell is not in it."""
    answer = await host.run(_RUNNING)
    rows = [line.split() for line in answer.out.splitlines()]
    return {row[0]: frozenset(row[1:]) for row in rows if row}


def sentences(found: tuple[Occupant, ...], host_name: str) -> tuple[str, ...]:
    """What to know of them before a launch; see `told`."""
    return tuple(says for _, says in told(found, host_name))


def told(found: tuple[Occupant, ...], host_name: str) -> tuple[tuple[str, str], ...]:
    """Pairs of kind and sentence, one for each process; those that a removed container left are one sentence."""
    said = []
    boxes: dict[str, list[Occupant]] = {}
    for one in found:
        held = f"{_amount(one.used_mib)} GPU memory"
        who = f"{one.name or 'a process'} (pid {one.pid})"
        if one.kind == "orphan":
            age = f", {one.age_s / 60:,.0f} min old," if one.age_s is not None else ""
            text = f"orphan {who}{age} holds {held}: its server is gone; end it with tokpit stop {host_name}/{one.pid}"
        elif one.kind == "container":
            boxes.setdefault(one.whose, []).append(one)
            continue
        elif one.kind in {"server", "worker"}:
            text = f"{one.whose} holds {held} ({who})"
        else:
            text = f"{who} holds {held}"
        said.append((one.kind, text))
    return (*(("container", _left_by(box, ones)) for box, ones in boxes.items()), *said)


def _left_by(container: str, ones: Sequence[Occupant]) -> str:
    amounts = [one.used_mib for one in ones]
    total = None if None in amounts else sum(amount or 0 for amount in amounts)
    who = ", ".join(f"{one.name or 'a process'} (pid {one.pid})" for one in ones)
    return (
        f"{len(ones)} process{'es hold' if len(ones) > 1 else ' holds'} {_amount(total)} GPU memory and belong"
        f"{'' if len(ones) > 1 else 's'} to no running container: {who} of {container}; ask whose they are before "
        "ending them"
    )


def _amount(mib: float | None) -> str:
    return "an unknown amount of" if mib is None else f"{mib:,.0f} MiB of"

"""Stop: exactly what was recorded, verified before each signal; gone means processes, GPU memory and port.

TERM goes to the server's own process group, to its main process alone where that drains, or through its keeper
(systemd, docker); KILL only to what remains of the processes that were recorded before, wherever they moved. Nothing is
ever found by a name pattern.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.records import Mark, PhaseRecord
from tokpit.domain.server import ServerInfo
from tokpit.domain.text import decode_line
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import StopError, TargetError, TokpitError
from tokpit.ops.gate import Prepared
from tokpit.ops.lifecycle import footprint, managers, orphans, slurm
from tokpit.ops.progress import Progress
from tokpit.ops.targets import resolve_server
from tokpit.probes import family as probe
from tokpit.probes.family import Member, SharedFile
from tokpit.probes.group import GroupState, group_script, parse_group
from tokpit.transport.base import Host

if TYPE_CHECKING:
    from tokpit.ops.session import Session

TERM_WAIT_S = 90.0
"""How long a server may take to drain and leave after TERM, in seconds on the host's clock."""
KILL_WAIT_S = 15.0
_MEMORY_WAIT_S = 20.0
"""How long the driver may take to give memory back after the last process is gone."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is gone: how, after how many seconds on the host's clock, what it left. MiB; None: not known."""

    server: ServerInfo
    signal: str
    """`TERM`, `KILL`, or the keeper's command (`systemctl stop`, `docker stop`, `scancel`)."""
    elapsed_s: float
    members: tuple[int, ...]
    left_group: tuple[int, ...] = ()
    """Members that were outside the server's process group."""
    gpu_before_mib: float | None = None
    gpu_after_mib: float | None = None
    gpu_used_before_mib: float | None = None
    """All that was used on its GPUs, by anybody."""
    gpu_used_after_mib: float | None = None
    port_free: bool | None = None
    shm_left: tuple[SharedFile, ...] = ()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """How a server will be stopped. `roots`: what TERM goes to where there is neither own group nor keeper."""

    info: ServerInfo
    before: footprint.Footprint
    manager: managers.Manager | None = None
    roots: tuple[Member, ...] = ()
    drains: bool = False
    """The main process ends its workers itself, once their requests have ended: TERM is for it alone."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The command lines as they are shown."""
        return self.lines_within(TERM_WAIT_S)

    def lines_within(self, wait_s: float) -> tuple[str, ...]:
        """The same for another time to leave after TERM."""
        if self.manager is not None:
            first = " ".join(self.manager.command("stop", wait_s=wait_s))
        elif self.roots:
            first = f"kill -TERM {' '.join(str(root.pid) for root in self.roots)}"
        else:
            first = f"kill -TERM {self.info.pid}" if self.drains else f"kill -TERM -{self.info.pgid}"
        pids = " ".join(map(str, self.before.family.pids))
        return first, f"kill -KILL {pids}  # only what is left after {wait_s:g} s"


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`server.stop`: args are `target` or `server_id`, and `term_wait_s`. HOST/PID may name an orphan worker.

    Raises StopError where the recorded process is gone or its keeper cannot be asked.
    """
    text = str(args.get("server_id") or args["target"])
    try:
        info = await resolve_server(session, text)
        if info.job is not None:
            return await slurm.prepare_stop(session, info)
        if info.ranks:
            from tokpit.ops.lifecycle import nodes

            return await nodes.prepare_stop(session, info, term_wait_s=args.get("term_wait_s") or TERM_WAIT_S)
        host = await session.connected(info.host)
        job = await plan(host, info)
        title = f"stop {info.engine} {info.label}, pid {info.pid} and {len(job.before.family.members) - 1} more"
    except TargetError as missing:
        try:
            job = await _plan_orphan(session, text)
        except TargetError:
            raise missing from None
        info = job.info
        host = session.host(info.host)
        title = f"end orphan {info.argv[0]} on {info.host}, {len(job.before.family.members)} processes"
    if job.manager is not None:
        title += f", through its {job.manager.label}"

    async def run() -> Stopped:
        return await stop(session, host, job, term_wait_s=args.get("term_wait_s") or TERM_WAIT_S)

    return Prepared(
        title=title,
        host=host.name,
        run=run,
        lines=job.lines,
        warnings=_warnings(job),
        typed_word=str(info.port or info.pid),
    )


def _warnings(job: Job) -> tuple[str, ...]:
    info = job.info
    said = []
    if info.port is not None and not info.launched_by_tokpit:
        said.append(f"tokpit did not start it; it runs as {info.user or 'an unknown user'}")
    held = job.before.gpu.held_mib if job.before.gpu is not None else None
    if held:
        said.append(f"it holds {held:,.0f} MiB of GPU memory")
    if outside := job.before.family.outside(info.pgid):
        said.append(f"{len(outside)} of its processes are outside its process group: they are ended too")
    if job.roots and info.port is not None:
        said.append(
            f"it shares process group {info.pgid} with what started it (pid {info.ppid}), which is left alone and may "
            "start it again"
        )
    return tuple(said)


async def plan(host: Host, info: ServerInfo) -> Job:
    """Look at a server and decide how it is to be stopped. Raises StopError where it is gone or another one."""
    state = await look(host, info)
    if state.start_ticks is None:
        raise StopError(f"{info.label}: pid {info.pid} is gone already")
    if state.start_ticks != info.start_ticks:
        raise StopError(f"{info.label}: pid {info.pid} is another process now", hint="look again with tokpit ps")
    before = await footprint.take(host, info)
    manager = await managers.manager_of(host, info.pid, before.family.cgroup, in_container=info.container is not None)
    roots: tuple[Member, ...] = ()
    if manager is None and info.pgid != info.pid and not state.only_tree_of(info.pid):
        roots = (Member(info.pid, info.start_ticks),)
    drains = manager is None and not roots and engine_of(info.engine).drains
    return Job(info=info, before=before, manager=manager, roots=roots, drains=drains)


async def _plan_orphan(session: Session, text: str) -> Job:
    info, same = await orphans.resolve_orphan(session, text)
    host = session.host(info.host)
    answer = await host.run(probe.family_script(info.pid))
    family = probe.tree_of(answer.out, [orphan.pid for orphan in same])
    known = {orphan.pid: orphan.start_ticks for orphan in same}
    roots = tuple(member for member in family.members if known.get(member.pid) == member.start_ticks)
    if not roots:
        raise StopError(f"{text}: the orphan is gone already")
    return Job(info=info, before=await footprint.of_family(host, family), roots=roots)


async def look(host: Host, info: ServerInfo) -> GroupState:
    """The state of the server's process group and port now."""
    answer = await host.run(group_script(info.pid, info.pgid, info.port or 0))
    return parse_group(answer.out)


async def stop(session: Session, host: Host, job: Job, *, term_wait_s: float, keep_record: bool = False) -> Stopped:
    """Stop what was planned and look what is left. Raises StopError where a process survives."""
    info = job.info
    progress = Progress(session.store, kind="stop", target=info.id, title=f"stop {info.label}", now=host.now)
    session.store.apply(PhaseRecord(info.id, host.now(), "stopping"))
    try:
        signal = await _end(host, job, progress, term_wait_s)
    except TokpitError as error:
        progress.failed(error)
        raise
    if not keep_record:
        await forget(host, info)
    session.store.apply(PhaseRecord(info.id, host.now(), "gone"))
    session.store.apply(Mark(info.id, host.now(), "stop", f"stopped by {signal}"))
    await session.unwatch_server(info.id)
    stopped = await _aftermath(host, job, signal, progress)
    progress.done(signal=signal)
    return stopped


async def _end(host: Host, job: Job, progress: Progress, term_wait_s: float) -> str:
    from tokpit.transport.detached import signal_group

    info, members = job.info, job.before.family.members
    who = (info.pid, info.pgid, info.start_ticks)
    signal = "TERM"
    if job.manager is not None:
        await managers.ask(host, job.manager, "stop", wait_s=term_wait_s)
        signal = f"{job.manager.command('stop')[2 if job.manager.sudo else 0]} stop"
    elif job.roots or job.drains:
        answer = await host.run(probe.kill_script(job.roots or (Member(info.pid, info.start_ticks),), "TERM"))
        if not answer.out.strip() and answer.err.strip():
            raise StopError(f"{info.label}: TERM was not delivered: {decode_line(answer.stderr.strip())}")
    else:
        await signal_group(host, who, "TERM")
    progress.step("term", f"{signal} sent", counted(len(members)))
    left = await _wait_gone(host, job, term_wait_s)
    if left:
        signal = "KILL"
        if not job.roots:
            await signal_group(host, who, "KILL", orphans=True)
        await host.run(probe.kill_script(left, "KILL"))
        progress.step("kill", "KILL sent", f"{counted(len(left))} left after {term_wait_s:g} s")
        left = await _wait_gone(host, job, KILL_WAIT_S)
    if left:
        raise StopError(
            f"{info.label}: still there after KILL: pid {', '.join(str(member.pid) for member in left)}",
            hint="a process in state D waits for the kernel or the driver; look at dmesg",
        )
    return signal


def counted(n: int) -> str:
    """`1 process`, `3 processes`."""
    return f"{n} process{'' if n == 1 else 'es'}"


async def _wait_gone(host: Host, job: Job, wait_s: float) -> tuple[Member, ...]:
    """What is still alive of the recorded processes and their group once all are gone or the time is over."""
    info, members = job.info, job.before.family.members
    deadline = host.now() + wait_s
    told = not job.drains
    while True:
        answer = await host.run(probe.alive_script(members))
        left = probe.parse_alive(answer.out, members)
        if left and not told and all(member.pid != info.pid for member in left):
            await host.run(probe.kill_script(left, "TERM"))  # workers that the main process did not take with it
            told = True
        if not left and not job.roots and info.pgid == info.pid:
            left = await _late(host, info)
        if not left or host.now() > deadline:
            return left
        await asyncio.sleep(0.3)


async def _late(host: Host, info: ServerInfo) -> tuple[Member, ...]:
    """Members of the group that were born after the look before the stop."""
    answer = await host.run(probe.family_script(info.pid))
    table = probe.parse_processes(answer.out)
    return tuple(
        member
        for member in table.values()
        if member.pgid == info.pgid and member.state not in "ZX" and member.start_ticks >= info.start_ticks
    )


async def _aftermath(host: Host, job: Job, signal: str, progress: Progress) -> Stopped:
    """GPU memory back, port free, files in /dev/shm: each asked, none assumed."""
    info, before = job.info, job.before
    pids = before.family.pids
    after = await footprint.gpu_hold(host, pids) if before.gpu is not None else None
    deadline = host.now() + _MEMORY_WAIT_S
    while after is not None and after.by_pid and host.now() < deadline:
        await asyncio.sleep(0.5)
        after = await footprint.gpu_hold(host, pids)
    held = before.gpu.held_mib if before.gpu is not None and before.gpu.by_pid else None
    if held is not None and after is not None:
        progress.step("memory", "GPU memory", f"{held:,.0f} MiB before, {after.held_mib or 0:,.0f} MiB after")
    port_free = None
    if info.port is not None:
        port_free = not (await look(host, info)).listening
        progress.step("port", f"port {info.port} is {'free' if port_free else 'still in use by another process'}")
    left: tuple[SharedFile, ...] = ()
    if before.shm:
        answer = await host.run(probe.leftover_script([file.path for file in before.shm]))
        left = probe.parse_shm(answer.out)
        if left:
            progress.step("shm", f"{len(left)} files left in /dev/shm", ", ".join(file.path for file in left))
    return Stopped(
        server=info,
        signal=signal,
        elapsed_s=progress.elapsed_s,
        members=pids,
        left_group=tuple(member.pid for member in before.family.outside(info.pgid)),
        gpu_before_mib=held,
        gpu_after_mib=after.held_mib if after is not None and held is not None else None,
        gpu_used_before_mib=before.gpu.used_mib if before.gpu is not None else None,
        gpu_used_after_mib=after.used_mib if after is not None else None,
        port_free=port_free,
        shm_left=left,
    )


async def forget(host: Host, info: ServerInfo) -> None:
    """Remove the record of a launch from the host, if there is one. Raises HostError."""
    from tokpit.transport.detached import read_states, remove_state

    for state in await read_states(host):
        if (state.pid, state.start_ticks) == (info.pid, info.start_ticks):
            await remove_state(host, state)

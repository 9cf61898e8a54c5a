"""One server over several hosts: a rank each, started together, ready only when all are, stopped all at once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.records import ServerSeen
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, LaunchState
from tokpit.engines.logkit.progress import StartTracker
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import HostError, LaunchError, StartFailed, StopError, TokpitError, UsageError
from tokpit.ops.gate import Prepared
from tokpit.ops.host import environment
from tokpit.ops.lifecycle import launch, leftovers, methods, ready, stop
from tokpit.ops.progress import Progress
from tokpit.ops.targets import address_of
from tokpit.probes.group import group_script, parse_group
from tokpit.transport.base import Host

if TYPE_CHECKING:
    from tokpit.ops.session import Session

RENDEZVOUS_PORT = 29_600
_POLL_S = 1.0
_BEHIND_S = 60.0
"""A rank that is not yet where the others wait for it, and has not moved for so long, is named."""


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One host's part. `attempt` knows its process and `log_start` counts once it is started."""

    number: int
    host: str
    plan: launch.Plan
    attempt: leftovers.Attempt = msgspec.field(default_factory=leftovers.Attempt)
    log_start: int = 0

    @property
    def info(self) -> ServerInfo | None:
        """Its process; None before it is started."""
        return self.attempt.info

    @property
    def name(self) -> str:
        """How sentences name it."""
        return f"rank {self.number} on {self.host}"


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`server.launch` of a spec with `ranks`: every host is checked like for a server of its own, then all are shown.

    Raises what `launch.plan` raises, and UsageError where versions differ or the engine cannot do it.
    """
    spec: LaunchSpec = args["spec"]
    if spec.method in ("slurm", "docker"):
        raise UsageError(
            f"several hosts by {spec.method} are not launched over SSH",
            hint="use --method slurm --nodes N on a login host" if spec.method == "slurm" else "use --method setsid",
        )
    ranks = await plan(session, spec, force=bool(args.get("force")))

    async def run() -> launch.Launched:
        return await start(
            session, ranks, timeout_s=args.get("timeout_s") or 1800.0, operation_id=args.get("operation_id")
        )

    return Prepared(
        title=f"start {spec.engine} on {len(ranks)} hosts together ({', '.join(rank.host for rank in ranks)})",
        host=ranks[0].host,
        run=run,
        lines=await shown_lines(session, ranks),
        warnings=tuple(f"{rank.host}: {said}" for rank in ranks for said in rank.plan.warnings),
    )


async def shown_lines(session: Session, ranks: Sequence[Rank]) -> tuple[str, ...]:
    """The command line of every rank as it is shown before it runs. Raises HostError."""
    lines = []
    for rank in ranks:
        made = rank.plan
        path = made.spec.log_path or "LOG"
        line = await methods.shown_line(session.host(rank.host), made.spec, made.argv, path, made.handle)
        lines.append(f"{rank.host}: {line}")
    return tuple(lines)


async def plan(session: Session, spec: LaunchSpec, *, force: bool = False) -> tuple[Rank, ...]:
    """A plan for each host, in the order of the ranks; nothing is changed."""
    engine = engine_of(spec.engine)
    names = [session.add_host(name).name for name in (spec.host, *spec.ranks)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is named twice: every host takes one rank")
    hosts = await asyncio.gather(*(session.connected(name) for name in names))
    head = spec.head or address_of(hosts[0])
    complete = await asyncio.gather(
        *(environment.complete(host, engine, msgspec.structs.replace(spec, host=host.name)) for host in hosts)
    )
    return await plan_each(session, complete, head=head, force=force, log_path=spec.log_path)


async def plan_each(
    session: Session,
    specs: Sequence[LaunchSpec],
    *,
    head: str,
    force: bool = False,
    log_path: str | None = None,
    replacing: Sequence[ServerInfo] = (),
) -> tuple[Rank, ...]:
    """A plan for each spec, which is complete and of its own host. `replacing`: the ranks whose places they take.

    Raises UsageError where versions differ, and what `launch.plan` raises.
    """
    engine = engine_of(specs[0].engine)
    versions = {one.version for one in specs}
    if len(versions) > 1:
        said = ", ".join(f"{one.version} on {one.host}" for one in specs)
        raise UsageError(f"the ranks of one server need one version of {engine.title}: {said}")
    found = []
    for number, one in enumerate(specs):
        host = session.host(one.host)
        flags = engine.rank_flags(one.version, nodes=len(specs), rank=str(number), head=head, port=RENDEZVOUS_PORT)
        settings = msgspec.structs.replace(one.settings, raw=(*one.settings.raw, *flags))
        ranked = msgspec.structs.replace(one, settings=settings, ranks=())
        # Ranks that take no requests may listen all the same, for health checks.
        old = msgspec.structs.replace(replacing[number], port=one.settings.port) if replacing else None
        made = await launch.plan(session, ranked, force=force, replacing=old)
        path = log_path or await environment.default_log_path(host, made.spec)
        made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, log_path=path))
        found.append(Rank(number=number, host=host.name, plan=made))
    return tuple(found)


async def start(
    session: Session, ranks: Sequence[Rank], *, timeout_s: float, operation_id: str | None = None
) -> launch.Launched:
    """Start every rank and wait until the server is ready; where one fails, all are ended.

    Raises StartFailed that names the rank, with its verdict; LaunchError, HostError.
    """
    head, spec = ranks[0], ranks[0].plan.spec
    host = session.host(head.host)
    progress = Progress(
        session.store,
        kind="launch",
        target=head.host,
        title=f"launch {spec.engine} {launch.short_model(spec.settings.model)} on {len(ranks)} hosts",
        now=host.now,
        commands=tuple(f"{rank.host}: {rank.plan.command}" for rank in ranks),
        operation_id=operation_id,
    )
    begun: list[Rank] = []
    try:
        states = await _start_all(session, ranks, begun, progress)
        waited = await _wait(session, begun, progress, timeout_s)
    except TokpitError as error:
        await _end_all(session, begun, progress)
        progress.failed(error)
        raise
    except BaseException:
        progress.stopped("no longer waiting; the ranks were left as they are")
        raise
    info = begun[0].info
    assert info is not None
    progress.done(server=info.id, ready_s=f"{waited.ready_s:.1f}")
    return launch.Launched(
        server=info,
        state=states[0],
        ready_s=waited.ready_s,
        first_token_s=waited.first_token_s,
        command=head.plan.command,
        warnings=tuple(f"{rank.host}: {said}" for rank in ranks for said in rank.plan.warnings),
    )


async def _start_all(
    session: Session, ranks: Sequence[Rank], begun: list[Rank], progress: Progress
) -> tuple[LaunchState, ...]:
    from tokpit.store.history import getpass_user
    from tokpit.transport.detached import start_detached

    history = await session.history()
    names = tuple(rank.host for rank in ranks)
    group = secrets.token_hex(4)

    async def one(rank: Rank) -> LaunchState:
        host, made = session.host(rank.host), rank.plan
        assert made.spec.log_path is not None
        log_start = await environment.file_size(host, made.spec.log_path)
        try:
            state = await start_detached(
                host,
                made.argv,
                engine=made.spec.engine,
                port=made.port if rank.number == 0 else 0,
                env=made.spec.env,
                cwd=made.spec.cwd,
                log_path=made.spec.log_path,
                method=made.spec.method,
                handle=made.handle,
                by=getpass_user(),
                more={"group": group, "rank": rank.number, "ranks": names},
            )
        except LaunchError as error:
            told = await ready.explained(host, made.spec, log_start, error)
            raise _named(rank, told) from error
        info = launch.server_info(host, engine_of(made.spec.engine), made.spec, state)
        info = msgspec.structs.replace(
            info, rank=rank.number, ranks=names, port=made.port if rank.number == 0 else None
        )
        await history.save_launch(made.spec, state)
        session.store.apply(ServerSeen(host.now(), info))
        session.watch_server(info.id, log_offset=log_start)
        rank.attempt.info = info
        begun.append(msgspec.structs.replace(rank, log_start=log_start))
        progress.step(f"started-{rank.number}", f"{rank.name} started", f"pid {state.pid}, log {state.log_path}")
        return state

    states = await asyncio.gather(*(one(rank) for rank in ranks), return_exceptions=True)
    begun.sort(key=lambda rank: rank.number)
    for state in states:
        if isinstance(state, BaseException):
            raise state
    return tuple(state for state in states if isinstance(state, LaunchState))


async def _wait(session: Session, ranks: Sequence[Rank], progress: Progress, timeout_s: float) -> ready.Ready:
    """Ready by the first rank's port and token, as long as every other rank lives."""
    info = ranks[0].info
    assert info is not None
    host = session.host(ranks[0].host)
    first = asyncio.ensure_future(
        ready.wait_ready(session, host, info, progress, timeout_s=timeout_s, attempt=ranks[0].attempt)
    )
    others = asyncio.ensure_future(_watch(session, ranks, progress))
    try:
        await asyncio.wait((first, others), return_when=asyncio.FIRST_COMPLETED)
        if others.done():
            others.result()
        try:
            found = await first
        except StartFailed as error:
            # What the first rank says of its end is often only that another one is gone.
            await _look(session, ranks)
            raise _named(ranks[0], error) from error
        await _look(session, ranks)
        return found
    finally:
        for task in (first, others):
            task.cancel()
        await asyncio.gather(first, others, return_exceptions=True)


async def _watch(session: Session, ranks: Sequence[Rank], progress: Progress) -> None:
    """Look at the ranks for ever. Raises StartFailed for one that has ended; a slow one is named in a note."""
    paces = [_Pace(session, rank) for rank in ranks]
    while True:
        await asyncio.sleep(max(_POLL_S / session.host(ranks[0].host).spec.clock_factor, 0.2))
        try:
            await _look(session, ranks)
        except HostError:
            continue  # a lost link is no lost rank
        said = behind(paces, progress.elapsed_s)
        if progress.operation.result.get("behind", "") != said:
            progress.update(result={**progress.operation.result, "behind": said})


async def _look(session: Session, ranks: Sequence[Rank]) -> None:
    """Raises StartFailed for a rank other than the first whose process has ended."""
    for rank in ranks[1:]:
        info = rank.info
        assert info is not None
        host = session.host(rank.host)
        answer = await host.run(group_script(info.pid, info.pgid, 0))
        if parse_group(answer.out).start_ticks == info.start_ticks:
            continue
        ended = LaunchError(f"{rank.name}: its process has ended")
        told = await ready.explained(host, rank.plan.spec, rank.log_start, ended, what=f"{rank.name} has ended")
        raise told if isinstance(told, StartFailed) else StartFailed(ended.message, code="UNKNOWN", hint=ended.hint)


class _Pace:
    """How far one rank's log has come."""

    def __init__(self, session: Session, rank: Rank) -> None:
        assert rank.info is not None
        self._session, self._info = session, rank.info
        self.name = rank.name
        milestones = engine_of(rank.info.engine).milestones
        self._joins = {milestone.kind for milestone in milestones if milestone.joins}
        self._tracker = StartTracker(milestones, started_t=0.0)
        self._seen = 0
        self.moved_s = 0.0

    def read(self, now_s: float) -> int:
        """How many of the points at which ranks wait for each other it has reached by now.

        Other milestones say nothing here: a rank without an HTTP server of its own prints fewer of them.
        """
        log = self._session.store.servers[self._info.id].log
        for record in list(log.records)[max(self._seen - log.first, 0) :]:
            if self._tracker.observe(record, now_s):
                self.moved_s = now_s
        self._seen = log.seen
        return sum(step.kind in self._joins for step in self._tracker.steps)

    @property
    def phase(self) -> str:
        """Where it is, in words."""
        return self._tracker.label or self._tracker.phase


def behind(paces: Sequence[Any], now_s: float) -> str:
    """Which rank the others wait for; empty where they go together.

    A rank is behind if another one has come further and it has not moved for a while: ranks wait for each other at
    their rendezvous, so the one that is not there yet is the one to look at.
    """
    steps = [pace.read(now_s) for pace in paces]
    slowest = min(range(len(paces)), key=lambda i: steps[i])
    late = now_s - paces[slowest].moved_s
    if steps[slowest] == max(steps) or late < _BEHIND_S:
        return ""
    foremost = paces[max(range(len(paces)), key=lambda i: steps[i])]
    return (
        f"{paces[slowest].name} is behind: nothing for {late:.0f} s since {paces[slowest].phase}, while "
        f"{foremost.name} is at {foremost.phase}"
    )


def _named(rank: Rank, error: LaunchError) -> LaunchError:
    """The error with the rank in front."""
    message = error.message if rank.name in error.message else f"{rank.name}: {error.message}"
    if isinstance(error, StartFailed):
        return StartFailed(message, code=error.code, evidence=error.evidence, hint=error.hint)
    return LaunchError(message, hint=error.hint)


async def _end_all(session: Session, ranks: Sequence[Rank], progress: Progress) -> None:
    """End what was started, and what outlived a rank that is gone; a host that does not answer stops nothing."""

    async def one(rank: Rank) -> str:
        assert rank.info is not None
        host = session.host(rank.host)
        try:
            left = await leftovers.look(host, rank.attempt)
            if left is not None and left.job is not None:
                await stop.stop(session, host, left.job, term_wait_s=leftovers.TERM_WAIT_S)
            else:
                await stop.forget(host, rank.info)
        except (StopError, HostError) as error:
            return f"{rank.name} may still run: {error.message}"
        return ""

    said = [text for text in await asyncio.gather(*(one(rank) for rank in ranks)) if text]
    if ranks:
        progress.step("rollback", f"the {len(ranks)} ranks that were started are ended", "; ".join(said))


async def running(session: Session, info: ServerInfo) -> tuple[ServerInfo, ...]:
    """The ranks of a server that still run, the first one first. Raises HostError."""
    lists = await asyncio.gather(*(session.find(name) for name in info.ranks))
    found = {one.id: one for servers in lists for one in servers if one.group == info.group and one.group}
    return tuple(sorted(found.values(), key=lambda one: one.rank))


Endings = Sequence[tuple[Host, stop.Job]]


async def endings(session: Session, ranks: Sequence[ServerInfo]) -> Endings:
    """How each rank will be stopped. Raises StopError, HostError."""
    return [(host, await stop.plan(host, one)) for one in ranks for host in [session.host(one.host)]]


def ending_lines(found: Endings) -> tuple[str, ...]:
    """As they are shown."""
    return tuple(f"{host.name}: {line}" for host, job in found for line in job.lines)


async def end(session: Session, found: Endings, *, term_wait_s: float) -> stop.Stopped:
    """Stop all ranks at once. Raises StopError where a process survives, HostError."""
    done = await asyncio.gather(
        *(stop.stop(session, host, job, term_wait_s=term_wait_s) for host, job in found), return_exceptions=True
    )
    for one in done:
        if isinstance(one, BaseException):
            raise one
    ended = [one for one in done if isinstance(one, stop.Stopped)]
    members = tuple(pid for one in ended for pid in one.members)
    return msgspec.structs.replace(ended[0], members=members, elapsed_s=max(one.elapsed_s for one in ended))


async def prepare_stop(session: Session, info: ServerInfo, *, term_wait_s: float) -> Prepared:
    """The end of every rank of a server, whichever of them was named. Raises StopError, HostError."""
    found = await endings(session, await running(session, info))
    return Prepared(
        title=f"stop {info.engine} on {len(info.ranks)} hosts, {len(found)} ranks",
        host=info.ranks[0],
        run=lambda: end(session, found, term_wait_s=term_wait_s),
        lines=ending_lines(found),
        warnings=() if len(found) == len(info.ranks) else (f"only {len(found)} of {len(info.ranks)} ranks still run",),
        typed_word=str(info.port or info.group),
    )

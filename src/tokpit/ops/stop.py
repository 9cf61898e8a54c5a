"""Stop: exactly the recorded process group, verified before each signal, TERM then KILL, and a word when it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.records import Mark, PhaseRecord
from tokpit.domain.server import ServerInfo
from tokpit.errors import StopError, TokpitError
from tokpit.ops.gate import Prepared
from tokpit.ops.progress import Progress
from tokpit.ops.targets import resolve_server
from tokpit.probes.group import GroupState, group_script, parse_group
from tokpit.transport.base import Host

if TYPE_CHECKING:
    from tokpit.ops.session import Session

TERM_WAIT_S = 90.0
"""How long a server may take to drain and leave after TERM, in seconds on the host's clock."""
KILL_WAIT_S = 15.0


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is gone: how, and after how many seconds on the host's clock."""

    server: ServerInfo
    signal: str
    elapsed_s: float
    members: tuple[int, ...]


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`server.stop`: args are `target` or `server_id`, and `term_wait_s`.

    Raises StopError where the recorded process is gone or its group is not its own.
    """
    info = await resolve_server(session, args.get("server_id") or args["target"])
    host = await session.connected(info.host)
    state = await look(host, info)
    if state.start_ticks is None:
        raise StopError(f"{info.label}: pid {info.pid} is gone already")
    if state.start_ticks != info.start_ticks:
        raise StopError(f"{info.label}: pid {info.pid} is another process now", hint="look again with tokpit ps")
    if info.pgid != info.pid and not state.only_tree_of(info.pid):
        raise StopError(
            f"{info.label}: pid {info.pid} shares its process group {info.pgid} with what started it, so stopping the "
            "group could end more than the server",
            hint="stop it from where it was started (its terminal, script, container or unit)",
        )

    async def run() -> Stopped:
        return await stop(session, host, info, term_wait_s=args.get("term_wait_s") or TERM_WAIT_S)

    return Prepared(
        title=f"stop {info.engine} {info.label}, pid {info.pid} and {len(state.members) - 1} more of its group",
        host=host.name,
        run=run,
        lines=(
            f"kill -TERM -{info.pgid}",
            f"kill -KILL -{info.pgid}  # only what is left after {TERM_WAIT_S:g} s",
        ),
        typed_word=str(info.port or info.pid),
    )


async def look(host: Host, info: ServerInfo) -> GroupState:
    """The state of the server's process group and port now."""
    answer = await host.run(group_script(info.pid, info.pgid, info.port or 0))
    return parse_group(answer.out)


async def stop(session: Session, host: Host, info: ServerInfo, *, term_wait_s: float) -> Stopped:
    """TERM, wait, KILL what is left, wait. Raises StopError where something survives."""
    from tokpit.transport.detached import read_states, remove_state, signal_group

    progress = Progress(session.store, kind="stop", target=info.id, title=f"stop {info.label}", now=host.now)
    session.store.apply(PhaseRecord(info.id, host.now(), "stopping"))
    before = await look(host, info)
    try:
        who = (info.pid, info.pgid, info.start_ticks)
        await signal_group(host, who, "TERM")
        progress.step("term", "TERM sent", f"{len(before.members)} processes")
        signal = "TERM"
        left = await _wait_gone(host, info, term_wait_s)
        if left:
            signal = "KILL"
            await signal_group(host, who, "KILL", orphans=True)
            progress.step("kill", "KILL sent", f"{len(left)} processes were left after {term_wait_s:g} s")
            left = await _wait_gone(host, info, KILL_WAIT_S)
        if left:
            raise StopError(
                f"{info.label}: still there after KILL: pid {', '.join(map(str, left))}",
                hint="a process in state D waits for the kernel or the driver; look at dmesg",
            )
    except TokpitError as error:
        progress.failed(error)
        raise
    for state in await read_states(host):
        if (state.pid, state.start_ticks) == (info.pid, info.start_ticks):
            await remove_state(host, state)
    session.store.apply(PhaseRecord(info.id, host.now(), "gone"))
    session.store.apply(Mark(info.id, host.now(), "stop", f"stopped by {signal}"))
    await session.unwatch_server(info.id)
    progress.done(signal=signal)
    return Stopped(server=info, signal=signal, elapsed_s=progress.elapsed_s, members=before.members)


async def _wait_gone(host: Host, info: ServerInfo, wait_s: float) -> tuple[int, ...]:
    """The members still alive once all are gone or the time is over (seconds on the host's clock)."""
    deadline = host.now() + wait_s
    while True:
        state = await look(host, info)
        if not state.members or host.now() > deadline:
            return state.members
        await asyncio.sleep(0.3)

"""Adopt: write down a server that somebody else started, so that any tokpit knows it by pid and start time."""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchState
from tokpit.domain.text import mask_secrets
from tokpit.errors import UsageError
from tokpit.ops.gate import Prepared
from tokpit.ops.lifecycle import footprint, managers
from tokpit.ops.targets import resolve_server
from tokpit.store.masking import masked
from tokpit.transport.base import quote

if TYPE_CHECKING:
    from tokpit.ops.session import Session


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is recorded now. `keeper`: the unit or container that keeps it, empty where none does."""

    server: ServerInfo
    state: LaunchState
    keeper: str = ""


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`server.adopt`: `target` or `server_id`. Raises UsageError where it is recorded, TargetError, HostError."""
    from tokpit.transport.detached import read_states
    from tokpit.transport.records import record_state

    info = await resolve_server(session, args.get("server_id") or args["target"])
    if info.job is not None:
        raise UsageError(f"{info.label} is job {info.job.id}: the queue has it on record")
    host = await session.connected(info.host)
    if any((s.pid, s.start_ticks) == (info.pid, info.start_ticks) for s in await read_states(host)):
        raise UsageError(f"{info.label}: pid {info.pid} is recorded already")
    family = (await footprint.take(host, info)).family
    manager = await managers.manager_of(host, info.pid, family.cgroup, in_container=info.container is not None)
    state = LaunchState(
        engine=info.engine,
        pid=info.pid,
        pgid=info.pgid,
        start_ticks=info.start_ticks,
        # The command line stays readable in /proc; a copy on disk must not hold its keys.
        argv=tuple(masked(list(info.argv))),
        log_path=info.log_path or "",
        port=info.port or 0,
        method="adopted",
        handle=manager.name if manager is not None else "",
        started_at=info.started_at or 0.0,
        by=f"{getpass.getuser()}@{socket.gethostname()}",
    )

    async def run() -> Adopted:
        written = await record_state(host, state)
        return Adopted(server=info, state=written, keeper=manager.label if manager is not None else "")

    warnings = [f"it is kept by {manager.label}: stop and start go through that"] if manager is not None else []
    if info.log_path is None:
        warnings.append("its output goes to no file, so there is no log to read")
    if info.user and info.user != (await host.run("id -un")).out.strip():
        warnings.append(f"it belongs to {info.user}: this login may not be allowed to stop it")
    return Prepared(
        title=f"adopt {info.engine} {info.label}, pid {info.pid} of {info.user or 'unknown user'}",
        host=host.name,
        run=run,
        lines=(
            f"# {mask_secrets(quote(state.argv))}",
            f"write ~/.local/state/tokpit/launches/{info.pid}-{info.start_ticks}.json",
        ),
        warnings=tuple(warnings),
    )


def audit_line(
    *,
    user: str,
    command: str,
    title: str,
    outcome: str,
    detail: str,
    at: float,
    duration_s: float,
    lines: Sequence[str] = (),
) -> str:
    """One line of the audit that is kept on the host, secrets masked.

    UTC time, who from where, what, how it ended and after how long, and the command lines that were shown.
    """
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    said = f" ({detail})" if detail else ""
    commands = "; ".join(line for line in lines if not line.startswith("#"))
    ran = f" | {commands}" if commands else ""
    who = f"{user}@{socket.gethostname()}"
    return mask_secrets(f"{stamp} {who} {command} {outcome} after {duration_s:.1f} s: {title}{said}{ran}")

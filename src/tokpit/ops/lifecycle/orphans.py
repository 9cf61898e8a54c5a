"""Workers whose server is gone: they may hold GPU memory for ever. Known by titles, ended by pid and start time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tokpit.domain.records import Orphan
from tokpit.domain.server import ServerInfo
from tokpit.errors import TargetError

if TYPE_CHECKING:
    from tokpit.ops.session import Session

_TARGET = re.compile(r"^(?P<host>.+)/(?P<pid>\d+)(?:@(?P<ticks>\d+))?$")


async def find_orphans(session: Session, host_name: str) -> tuple[Orphan, ...]:
    """The orphans of a host now. Raises HostError."""
    from tokpit.collect.find import orphans_of, read_table

    return orphans_of(await read_table(await session.connected(host_name)))


async def resolve_orphan(session: Session, text: str) -> tuple[ServerInfo, tuple[Orphan, ...]]:
    """The orphan that HOST/PID names, in the form of a server, and the orphans that belong to it.

    These are of the same engine and the same process group: workers of one server that is gone. Raises TargetError
    where the pid is no orphan, HostError.
    """
    match = _TARGET.match(text)
    if match is None:
        raise TargetError(f"{text}: an orphan is named HOST/PID", hint="tokpit ps lists them")
    found = await find_orphans(session, match["host"])
    chosen = next((o for o in found if o.pid == int(match["pid"])), None)
    if chosen is None or (match["ticks"] and chosen.start_ticks != int(match["ticks"])):
        listed = ", ".join(f"{match['host']}/{o.pid} ({o.title})" for o in found)
        raise TargetError(
            f"{text}: neither a server nor an orphan worker", hint=f"orphans there: {listed}" if listed else ""
        )
    same = tuple(o for o in found if o.pgid == chosen.pgid and o.engine == chosen.engine)
    info = ServerInfo(
        host=session.host(match["host"]).name,
        engine=chosen.engine,
        pid=chosen.pid,
        start_ticks=chosen.start_ticks,
        pgid=chosen.pgid,
        sid=chosen.sid,
        user=chosen.user,
        argv=(chosen.title,),
        started_at=chosen.started_at,
        rss_bytes=chosen.rss_bytes,
        container=chosen.container,
    )
    return info, same

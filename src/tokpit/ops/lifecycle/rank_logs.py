"""The logs of all ranks of one server as one: each line with its rank and host in front."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tokpit.domain.server import ServerInfo
from tokpit.domain.text import LineSplitter, decode_line, decode_lines
from tokpit.engines.logkit.clock import Clock
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import TargetError
from tokpit.ops.lifecycle import nodes
from tokpit.transport.base import quote

if TYPE_CHECKING:
    from tokpit.ops.session import Session


async def ranks_of(session: Session, server: ServerInfo) -> tuple[ServerInfo, ...]:
    """The ranks that still run, the first one first. Raises TargetError where none writes a log, HostError."""
    found = tuple(one for one in await nodes.running(session, server) if one.log_path)
    if not found:
        raise TargetError(f"{server.label}: no rank writes a log that can be followed")
    return found


def label(server: ServerInfo) -> str:
    """What stands before a line."""
    return f"[{server.rank} {server.host}] "


async def read_all(session: Session, server: ServerInfo, backlog: int) -> tuple[str, ...]:
    """The last `backlog` bytes of each rank's log, in the order of their time stamps."""
    return (await _backlogs(session, server.engine, await ranks_of(session, server), backlog))[0]


async def _backlogs(
    session: Session, engine: str, ranks: Sequence[ServerInfo], backlog: int
) -> tuple[tuple[str, ...], list[int]]:
    """The last whole lines of every log together, and the byte after them in each."""

    async def one(rank: ServerInfo) -> tuple[list[str], int]:
        path = quote([rank.log_path or ""])
        script = f'n=$(wc -c <{path}) || exit 1; echo "$n"; head -c "$n" -- {path} | tail -c {backlog}'
        answer = await session.host(rank.host).run(script, check=True)
        size, _, data = answer.stdout.partition(b"\n")
        whole, _, rest = data.rpartition(b"\n")
        return list(decode_lines(whole + b"\n")) if whole else [], int(size) - len(rest)

    read = await asyncio.gather(*(one(rank) for rank in ranks))
    parts = [(label(rank), lines) for rank, (lines, _) in zip(ranks, read, strict=True)]
    return tuple(interleave(engine, parts)), [end for _, end in read]


def interleave(engine: str, parts: Iterable[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Lines of several logs by time; a line without a stamp stays behind the one before it.

    Stamps are taken as they are: hosts of one cluster keep one time, and a rank that does not shows by it.
    """

    def stamped(order: int, name: str, lines: Sequence[str]) -> Iterator[tuple[float, int, str]]:
        clock, grammar, now = Clock(), engine_of(engine).grammar(), float("-inf")
        for line in lines:
            for record in (*grammar.feed(line), *grammar.flush()):
                at = clock.seconds(record.fields.get("ts"))
                now = now if at is None else max(now, at)
            yield now, order, name + line

    streams = [stamped(order, name, lines) for order, (name, lines) in enumerate(parts)]
    for _, _, line in heapq.merge(*streams, key=lambda one: one[:2]):
        yield line


async def follow_all(session: Session, server: ServerInfo, backlog: int) -> AsyncIterator[str]:
    """What is there in the order of its time stamps, then the lines of every rank as they come, for ever.

    Lost links are waited out by each rank on its own.
    """
    ranks = await ranks_of(session, server)
    earlier, ends = await _backlogs(session, server.engine, ranks, backlog)
    for line in earlier:
        yield line
    lines: asyncio.Queue[str] = asyncio.Queue(maxsize=1000)

    async def one(rank: ServerInfo, end: int) -> None:
        splitter = LineSplitter()
        async for _, data in session.host(rank.host).follow(rank.log_path or "", offset=end):
            for raw in splitter.feed(data):
                await lines.put(label(rank) + decode_line(raw))

    tasks = [asyncio.ensure_future(one(rank, end)) for rank, end in zip(ranks, ends, strict=True)]
    try:
        while True:
            yield await lines.get()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

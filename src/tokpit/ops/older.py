"""Older lines of a log, from the file on its host: what has left memory is read again when somebody scrolls there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tokpit.domain.records import LogRecord
from tokpit.domain.text import LineSplitter, decode_line
from tokpit.engines.base import Grammar
from tokpit.engines.registry import engine as engine_of
from tokpit.transport.base import quote

if TYPE_CHECKING:
    from tokpit.ops.session import Session

CHUNK_BYTES = 256 << 10
MOST_BYTES = 16 << 20
ENOUGH_LINES = 200
SLICE_LINES = 200
"""Lines read before others have their turn: about 2 ms."""


class Older(msgspec.Struct, frozen=True, kw_only=True):
    """Lines before a place of a log; `start`: byte of the file at which the first of them begins."""

    records: tuple[LogRecord, ...]
    """Numbered from 1."""
    lines: int
    start: int


async def older_lines(session: Session, server_id: str, end: int, skip: int = 0, size: int = CHUNK_BYTES) -> Older:
    """Lines that end before byte `end` of a server's log, without the last `skip` of them. Raises HostError.

    Reads `size` bytes, and more where too little is left, up to 16 MiB; at the begin of the file `start` is 0.
    """
    info = session.store.servers[server_id].info
    if info.log_path is None or end <= 0:
        return Older(records=(), lines=0, start=0)
    host = await session.connected(info.host)
    while True:
        start = max(0, end - size)
        command = f"tail -c +{start + 1} -- {quote([info.log_path])} | head -c {end - start}"
        data = (await host.run(command, timeout_s=60.0)).stdout
        if start > 0:
            # It begins within a line, most likely: that line belongs to the chunk before.
            head, _, data = data.partition(b"\n")
            start += len(head) + 1
        splitter = LineSplitter()
        raw = [*splitter.feed(data)]
        if (rest := splitter.flush()) is not None:
            raw.append(rest)
        kept = raw[: max(0, len(raw) - skip)]
        if start == 0 or len(kept) >= ENOUGH_LINES or size >= MOST_BYTES:
            break
        size *= 4
    records = await _parsed(engine_of(info.engine).grammar(), kept)
    return Older(records=records, lines=len(kept), start=start)


async def _parsed(grammar: Grammar, lines: Sequence[bytes]) -> tuple[LogRecord, ...]:
    records: list[LogRecord] = []
    for n, line in enumerate(lines, start=1):
        records += grammar.feed(decode_line(line))
        if n % SLICE_LINES == 0:
            await asyncio.sleep(0)
    return (*records, *grammar.flush())

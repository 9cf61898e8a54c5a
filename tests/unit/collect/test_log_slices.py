"""A flood is read in slices, between which the screen and its keys have their turn."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from console_feed import server
from tokpit.collect import log
from tokpit.collect.log import BEHIND_CHUNKS, SLICE_LINES, LogCounters, LogReader
from tokpit.domain.hostspec import HostSpec
from tokpit.domain.records import LogBatch, Record
from tokpit.transport.local import LocalHost

LINES = 20_000


def reader_of(heard: list[Record], counters: LogCounters) -> LogReader:
    return LogReader(LocalHost(HostSpec(name="local", local=True)), server(), heard.append, counters)


async def test_no_slice_takes_more_lines_than_it_may_however_much_comes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "SLICE_S", 1e9)  # by the clock alone everything would be one slice
    heard: list[Record] = []
    counters = LogCounters()
    reader = reader_of(heard, counters)
    seen = [0]

    async def others() -> None:
        while True:
            seen.append(counters.lines)
            await asyncio.sleep(0)

    turn = asyncio.create_task(others())
    await reader.take(0, b"".join(b"line %d of a flood\n" % n for n in range(LINES)))
    reader.close()
    turn.cancel()
    seen.append(counters.lines)
    assert counters.lines == LINES
    assert max(after - before for before, after in itertools.pairwise(seen)) <= SLICE_LINES
    records = [one.text for batch in heard if isinstance(batch, LogBatch) for one in batch.records]
    assert records == [f"line {n} of a flood" for n in range(LINES)]


async def test_reading_that_is_behind_rests_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "REST_S", 3600.0)  # one rest, and the test never ends
    counters = LogCounters()
    reader = reader_of([], counters)
    at = 0
    for n in range(BEHIND_CHUNKS + 1):
        chunk = b"a little line %d\n" % n
        await reader.take(at, chunk)
        at += len(chunk)
    await reader.take(at, b"".join(b"line %d of many\n" % n for n in range(LINES)))
    reader.close()
    assert counters.lines == LINES + BEHIND_CHUNKS + 1

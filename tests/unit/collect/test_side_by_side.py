"""On a host that is far away each question takes three round trips: those that can be asked together are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from collect_tools import Kept, until
from tokpit.collect.find import Finder
from tokpit.collect.log import watch_log
from tokpit.domain.records import Facts, LogBatch
from tokpit.domain.server import ServerInfo
from tokpit.transport.base import Completed, HostSpec
from tokpit.transport.local import LocalHost


class Patient(LocalHost):
    """Answers nothing before so many things have been asked for at one time."""

    def __init__(self, together: int) -> None:
        super().__init__(HostSpec(name="here", local=True))
        self._all = asyncio.Barrier(together)
        self._met = False

    async def _meet(self) -> None:
        if not self._met:
            await self._all.wait()
            self._met = True

    async def run(self, script: str, *, stdin: bytes = b"", timeout_s: float = 30.0, check: bool = False) -> Completed:
        await self._meet()
        return await super().run(script, stdin=stdin, timeout_s=timeout_s, check=check)

    async def follow(self, path: str, *, offset: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        await self._meet()
        async for piece in super().follow(path, offset=offset):
            yield piece


async def test_the_queue_is_asked_for_jobs_beside_the_process_table() -> None:
    host = Patient(2)
    await host.connect()
    found = await Finder(host).find()
    assert found.table.clock_ticks
    await host.close()


async def test_a_log_is_followed_beside_the_questions_about_its_age(tmp_path: Path, server: ServerInfo) -> None:
    path, kept, host = tmp_path / "a.log", Kept(), Patient(2)
    path.write_text("[2026-03-04 09:59:00 TP0] max_total_num_tokens=40960, max_running_requests=9, context_len=8192\n")
    await host.connect()
    watch = asyncio.create_task(watch_log(host, server, kept, path=str(path)))
    await until(lambda: kept.of(LogBatch))
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    await host.close()
    assert [record.kind for batch in kept.of(LogBatch) for record in batch.records] == ["milestone.limits"]
    assert kept.of(LogBatch)[0].times, "lines from before the watch have the times of their stamps"
    assert kept.of(Facts)

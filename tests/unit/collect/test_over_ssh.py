from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from collect_tools import Kept, until
from sshd import SSHD_MISSING, Sshd
from tokpit.collect.host import watch_host
from tokpit.collect.log import watch_log
from tokpit.domain.records import GpuRecord, HostRecord, LinkRecord, LinkState, LogBatch, ServersRecord
from tokpit.domain.server import ServerInfo
from tokpit.transport.ssh import SshHost

pytestmark = pytest.mark.skipif(bool(SSHD_MISSING), reason=SSHD_MISSING)


async def test_watching_goes_on_after_the_connection_was_cut(tmp_path: Path, server: ServerInfo, kept: Kept) -> None:
    log = tmp_path / "s.log"
    log.write_text("line 0\n")
    with Sshd.start(tmp_path / "sshd") as sshd:
        host = SshHost(sshd.spec("box"), ssh_config=[])
        host.on_link(kept)
        await host.connect()
        info = msgspec.structs.replace(server, host="box", log_path=str(log))
        tasks = [
            asyncio.create_task(watch_host(host, kept, processes_every_s=0.3, gpus_every_s=0.3, memory_every_s=0.3)),
            asyncio.create_task(watch_log(host, info, kept)),
        ]

        def texts() -> list[str]:
            return [record.text for batch in kept.of(LogBatch) for record in batch.records]

        def states() -> list[LinkState]:
            return [record.state for record in kept.of(LinkRecord)]

        await until(lambda: kept.of(HostRecord) and kept.of(ServersRecord) and kept.of(GpuRecord) and texts())
        sshd.stop()
        await until(lambda: LinkState.LOST in states())
        with log.open("a") as file:
            file.write("".join(f"line {n}\n" for n in range(1, 50)))
        readings, tables = len(kept.of(HostRecord)), len(kept.of(ServersRecord))
        sshd.launch()
        await until(lambda: len(texts()) == 50)
        await until(lambda: len(kept.of(HostRecord)) > readings + 1 and len(kept.of(ServersRecord)) > tables + 1)
        assert texts() == [f"line {n}" for n in range(50)]
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results), results
        await host.close()

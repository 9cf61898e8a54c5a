from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from collect_tools import Kept, until
from tokpit.collect import gpus
from tokpit.collect.host import watch_host
from tokpit.collect.link import LinkGate, real_interval
from tokpit.domain.records import GpuRecord, HostRecord, LinkRecord, LinkState, ServersRecord
from tokpit.errors import LinkLost
from tokpit.probes import gpu as gpu_probe
from tokpit.transport.base import HostSpec
from tokpit.transport.local import LocalHost

SMI = """#!/bin/sh
echo "$*" >> {folder}/calls
case "$*" in
*--query-gpu=*clocks_event_reasons*)
  echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2 ;;
*--query-gpu=*)
  while [ -e {folder}/hang ]; do sleep 0.1; done
  row="0, GPU-aa, 00000000:01:00.0, [N/A], 33, 1000, 24000, 120.5, 450.0, 50, 1800, 2500, 0x0"
  echo "$row, NVIDIA GeForce, RTX 4090" ;;
*--query-compute-apps=*) echo "GPU-aa, 77, 900, python3" ;;
*) exit 0 ;;
esac
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that answers like nvidia-smi of an older driver, first on the PATH."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(SMI.format(folder=tmp_path))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


async def test_an_older_driver_is_asked_again_without_the_field_and_from_then_on(
    smi: Path, host: LocalHost, kept: Kept
) -> None:
    watch = asyncio.create_task(gpus.GpuWatch(host, kept, LinkGate(host), 0.2).run())
    await until(lambda: len(kept.of(GpuRecord)) >= 3)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    for record in kept.of(GpuRecord):
        (gpu,) = record.gpus
        assert (gpu.name, gpu.util, gpu.power_w) == ("NVIDIA GeForce, RTX 4090", 0.33, 120.5)
        assert record.problems == ()
        assert [(app.uuid, app.pid, app.used_mib) for app in record.processes] == [("GPU-aa", 77, 900)]
    refused = [line for line in (smi / "calls").read_text().splitlines() if "clocks_event_reasons" in line]
    assert len(refused) == 1


async def test_one_poll_at_a_time_while_the_driver_hangs_and_old_figures_keep_their_time(
    smi: Path, host: LocalHost, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "SLOW_S", 0.3)
    monkeypatch.setattr(gpu_probe, "SLOW_S", 0.3)
    monkeypatch.setattr(gpus, "SHARE", 0.0)
    watch = asyncio.create_task(gpus.GpuWatch(host, kept, LinkGate(host), 0.2).run())
    await until(lambda: any(not record.problems for record in kept.of(GpuRecord)))
    (smi / "hang").touch()

    def stale() -> list[GpuRecord]:
        return [r for r in kept.of(GpuRecord) if [p.code for p in r.problems] == ["GPU_POLL_SLOW"] and r.gpus]

    await until(lambda: len(stale()) >= 4)
    queries = (smi / "calls").read_text().count("--query-gpu=")
    seen = len(stale())
    await until(lambda: len(stale()) >= seen + 3)
    assert (smi / "calls").read_text().count("--query-gpu=") == queries
    assert len({record.t for record in stale()[-3:]}) == 1
    (smi / "hang").unlink()
    newest = stale()[-1].t
    await until(lambda: kept.of(GpuRecord)[-1].t > newest)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_a_host_without_a_gpu_says_so_once_and_goes_on(
    host: LocalHost, kept: Kept, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    watch = asyncio.create_task(watch_host(host, kept, processes_every_s=0.2, memory_every_s=0.2))
    await until(lambda: kept.of(GpuRecord) and len(kept.of(HostRecord)) > 2 and len(kept.of(ServersRecord)) > 1)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    (record,) = kept.of(GpuRecord)
    assert (record.gpus, [problem.code for problem in record.problems]) == ((), ["NO_NVIDIA"])
    assert kept.of(HostRecord)[0].cpu_util is None
    assert kept.of(HostRecord)[-1].cpu_util is not None


class Flaky(LocalHost):
    """A local host whose link can be cut."""

    def __init__(self) -> None:
        super().__init__(HostSpec(name="flaky", local=True))
        self.down = False
        self.refused = 0

    async def run(self, script: str, **options: object):  # type: ignore[no-untyped-def,override]  # passed through
        if self.down:
            self.refused += 1
            raise LinkLost("cut by the test")
        return await super().run(script, **options)  # type: ignore[arg-type]  # passed through

    def tell(self, state: LinkState) -> None:
        for listener in self._listeners:
            listener(LinkRecord(self.name, self.now(), state))


async def test_a_lost_link_is_waited_out_without_spinning_and_taken_up_when_it_comes(kept: Kept) -> None:
    host = Flaky()
    await host.connect()
    host.down = True
    watch = asyncio.create_task(watch_host(host, kept, processes_every_s=0.2, gpus_every_s=0.2, memory_every_s=0.2))
    await until(lambda: host.refused >= 3)
    await asyncio.sleep(1.0)
    assert host.refused == 3  # one for each loop: they wait for the link
    host.down = False
    host.tell(LinkState.UP)
    await until(lambda: kept.of(HostRecord) and kept.of(ServersRecord) and kept.of(GpuRecord))
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    await host.close()


@pytest.mark.parametrize(("factor", "interval_s", "real_s"), [(1.0, 2.0, 2.0), (4.0, 2.0, 0.5), (60.0, 5.0, 0.2)])
def test_intervals_follow_the_hosts_clock(factor: float, interval_s: float, real_s: float) -> None:
    host = LocalHost(HostSpec(name="h", local=True, clock_factor=factor))
    assert real_interval(host.spec, interval_s) == real_s

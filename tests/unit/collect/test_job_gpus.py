"""GPUs of a job's node: by a step of the job, else by SSH from the login host; programs stand in for srun and ssh."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from collect_tools import Kept, until
from tokpit.collect import job_gpus
from tokpit.domain.job import BatchJob
from tokpit.domain.records import GpuRecord
from tokpit.domain.server import ServerInfo
from tokpit.errors import RemoteFailed
from tokpit.transport.local import LocalHost

SMI = """case "$*" in *--query-gpu=*)
  figures="33, 1000, 24000, 120.5, 450.0, 50, 1800, 2500, 0x0"
  echo "0, GPU-aa, 00000000:01:00.0, [N/A], $figures, NVIDIA GeForce, RTX 4090"
esac"""
JOB = BatchJob(id="7", state="RUNNING", nodes=("n1",))
INFO = ServerInfo(host="here", engine="vllm", pid=0, start_ticks=7, pgid=0, port=8000, job=JOB)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """First on the PATH: an srun and an ssh that say no. The node's own programs are in `node`."""
    for name, said in (("srun", "srun: error: Unable to create step for job 7"), ("ssh", "Permission denied (x).")):
        program(tmp_path / name, f'echo "{name} $*" >> {tmp_path}/calls; echo "{said}" >&2; exit 1')
    (tmp_path / "node").mkdir()
    program(tmp_path / "node" / "nvidia-smi", SMI)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(job_gpus, "APART_S", 0.1)
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def runs(folder: Path, *, after: str) -> str:
    """A program that runs the words after that one as the node does."""
    return (
        f'echo "{after}" >> {folder}/ran; while [ "$1" != {after} ]; do shift; done; shift\n'
        f'PATH={folder}/node:$PATH exec sh -c "$*"'
    )


async def test_figures_come_from_the_node_under_the_servers_name_until_its_job_is_over(
    programs: Path, host: LocalHost, kept: Kept
) -> None:
    program(programs / "ssh", runs(programs, after="n1"))  # srun says no
    known: list[ServerInfo | None] = [INFO]
    watch = asyncio.create_task(job_gpus.watch_job_gpus(host, lambda: known[-1], kept))
    await until(lambda: any(record.gpus for record in kept.of(GpuRecord)))
    record = kept.of(GpuRecord)[-1]
    assert (record.server, record.node, record.host) == (INFO.id, "n1", "here")
    assert [gpu.name for gpu in record.gpus] == ["NVIDIA GeForce, RTX 4090"]
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    known.append(msgspec.structs.replace(INFO, job=msgspec.structs.replace(JOB, state="TIMEOUT")))
    await job_gpus.watch_job_gpus(host, lambda: known[-1], kept)  # ends by itself


async def test_the_way_that_worked_is_taken_again(programs: Path, host: LocalHost) -> None:
    program(programs / "ssh", runs(programs, after="n1"))
    node = job_gpus.Node(host, lambda: INFO)
    for _ in range(3):
        assert (await node.run("echo here; command -v nvidia-smi")).out.split() == [
            "here",
            f"{programs}/node/nvidia-smi",
        ]
    assert (programs / "calls").read_text().count("srun ") == 1


async def test_where_neither_way_works_the_panel_is_told_both_reasons(
    programs: Path, host: LocalHost, kept: Kept
) -> None:
    with pytest.raises(
        RemoteFailed,
        match=r"GPUs of n1 cannot be asked \(srun: Unable to create step for job 7; ssh: Permission denied",
    ):
        await job_gpus.Node(host, lambda: INFO).run("true")
    watch = asyncio.create_task(job_gpus.watch_job_gpus(host, lambda: INFO, kept))
    await until(lambda: kept.of(GpuRecord))
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    record = kept.of(GpuRecord)[0]
    assert (record.gpus, record.problems[0].code) == ((), "GPU_QUERY_FAILED")
    assert "cannot be asked" in record.problems[0].text


async def test_a_poll_that_does_not_end_is_not_made_again_at_once(
    programs: Path, host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_gpus, "POLL_S", 1.0)
    program(programs / "srun", f"echo srun >> {programs}/calls; sleep 100")
    node = job_gpus.Node(host, lambda: INFO)
    for _ in range(2):
        with pytest.raises(RemoteFailed, match="cannot be asked"):
            await node.run("true")
    assert (programs / "calls").read_text().split().count("srun") == 1


async def test_many_jobs_of_one_login_host_take_turns(
    programs: Path, host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs / "srun", f"mkdir {programs}/alone || echo two >> {programs}/calls; echo @tokpit:node\n"
            f"sleep 0.2; rmdir {programs}/alone")  # fmt: skip
    await asyncio.gather(*(job_gpus.Node(host, lambda: INFO).run("true") for _ in range(4)))
    assert not (programs / "calls").exists()

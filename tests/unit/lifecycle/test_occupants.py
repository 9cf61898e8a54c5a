"""Whose the processes on the GPUs are: recorded texts of a driver, a process table and container runtimes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokpit.domain.hostspec import HostSpec
from tokpit.domain.records import GpuProcess
from tokpit.ops.lifecycle.occupants import _running, told, told_apart
from tokpit.probes.processes import ProcessTable, parse
from tokpit.transport.local import LocalHost

GONE, LIVES = "0f" * 32, "a7" * 32


def table(*rows: tuple[int, int, str, str]) -> ProcessTable:
    """A process table of (pid, ppid, title, cgroup)."""
    text = "@@tokpit processes\n"
    for pid, ppid, title, cgroup in rows:
        text += f"p {pid} {ppid} {pid} {pid} 5000 10 S python3\n"
        text += f"a {pid} {title.encode().hex()}00\ng {pid} {cgroup.encode().hex()}\n"
    return parse(text + "e\n@@tokpit end\n")


def on_gpus(*pairs: tuple[int, float]) -> list[GpuProcess]:
    return [GpuProcess("GPU-a", pid, "VLLM::Worker", mib) for pid, mib in pairs]


def test_workers_of_a_removed_container_are_one_sentence_with_their_pids_and_sum() -> None:
    seen = table(
        (51001, 1, "VLLM::Worker", f"0::/system.slice/docker-{GONE}.scope"),
        (51002, 1, "VLLM::Worker", f"0::/system.slice/docker-{GONE}.scope"),
    )
    found = told_apart(on_gpus((51001, 11204), (51002, 11190)), seen, "box", {"docker": frozenset()})
    assert {one.kind for one in found} == {"container"}
    ((kind, says),) = told(found, "box")
    assert kind == "container"
    assert says.startswith("2 processes hold 22,394 MiB of GPU memory and belong to no running container:")
    assert "pid 51001" in says
    assert "pid 51002" in says
    assert GONE[:12] in says
    assert "ask whose they are" in says
    assert "tokpit stop" not in says, "what may be somebody else's is not offered to be ended"


def test_a_running_container_and_a_runtime_that_does_not_tell_leave_no_such_claim() -> None:
    seen = table((51001, 40, "VLLM::Worker", f"0::/system.slice/docker-{LIVES}.scope"))
    for running in ({"docker": frozenset({LIVES})}, {}, {"podman": frozenset()}):
        (one,) = told_apart(on_gpus((51001, 11204)), seen, "box", running)
        assert one.kind != "container"
    pod = table((51001, 40, "VLLM::Worker", f"0::/kubepods.slice/cri-containerd-{LIVES}.scope"))
    (one,) = told_apart(on_gpus((51001, 11204)), pod, "box", {"docker": frozenset()})
    assert one.kind != "container", "docker does not know the containers of others"


async def test_only_runtimes_that_answer_are_believed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "bin").mkdir()
    for name, text in (("docker", f"echo {LIVES}"), ("podman", "exit 125")):
        (home / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (home / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    host = LocalHost(HostSpec(name="local", local=True))
    assert await _running(host) == {"docker": frozenset({LIVES})}
    await host.close()

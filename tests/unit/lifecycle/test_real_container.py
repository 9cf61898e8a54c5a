"""Launch and stop in a real container: podman with a store of its own, a busybox image, no daemon, no network fetch."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from process_tools import alive
from tokpit.domain.hostspec import HostSpec
from tokpit.errors import LaunchError
from tokpit.ops.lifecycle import managers
from tokpit.transport.detached import read_states, start_detached
from tokpit.transport.local import LocalHost
from tokpit.transport.methods import Container

IMAGE = "localhost/tokpit/busybox:1"
LOWERED = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
"""Podman's own defaults ask for more than a confined machine may give."""


def said(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()
    return lines[-1]


@pytest.fixture
def runtime(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """`docker` and `podman` on the PATH: podman on a store of its own, with the one image; skips with the reason."""
    podman, busybox = shutil.which("podman"), shutil.which("busybox")
    if podman is None or busybox is None or os.geteuid() != 0:
        pytest.skip("needs podman and a static busybox, as root")
    runc = shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    run = Path(tempfile.mkdtemp(prefix="tp-"))  # podman takes no longer path than 50 characters
    words = [
        *(podman, "--root", str(tmp_path / "store"), "--runroot", str(run), "--storage-driver", "vfs"),
        *("--cgroup-manager", "cgroupfs", "--events-backend", "none", *(("--runtime", runc) if runc else ())),
    ]
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("docker", "podman"):
        (folder / name).write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        (folder / name).chmod(0o755)
    tree = tmp_path / "tree" / "bin"
    tree.mkdir(parents=True)
    shutil.copy(busybox, tree / "busybox")
    for name in ("sh", "sleep", "env", "true"):
        (tree / name).symlink_to("busybox")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    tar = subprocess.run(["tar", "-C", str(tree.parent), "-c", "."], capture_output=True, check=True).stdout
    made = subprocess.run([*words, "import", "-", IMAGE], input=tar, capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"podman cannot keep an image here: {made.stderr.decode().strip().splitlines()[-1]}")
    ran = subprocess.run(
        [*words, "run", "--rm", "--network=host", "--ipc=host", *LOWERED, IMAGE, "/bin/true"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode != 0:
        pytest.skip(f"podman cannot run a container here: {said(ran)}")
    yield folder
    subprocess.run([*words, "rm", "-f", "-a", "-t", "0"], capture_output=True, check=False)
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    shutil.rmtree(run, ignore_errors=True)


async def test_a_server_in_a_container_is_recorded_with_its_log_and_stopped_by_its_runtime(
    runtime: Path, home: Path
) -> None:
    host = LocalHost(HostSpec(name="here", local=True))
    log = home / "logs" / "box.log"
    argv = ("sh", "-c", 'echo "token $HF_TOKEN"; ulimit -n; exec sleep 300')
    box = Container(image=IMAGE, gpus="none", args=LOWERED)
    state = await start_detached(
        host, argv, env={"HF_TOKEN": "hf_x"}, log_path=str(log), port=8000, method="docker",
        handle="tokpit-vllm-8000-1", container=box,
    )  # fmt: skip
    assert alive(state.pid)
    assert (state.method, state.handle) == ("docker", "tokpit-vllm-8000-1")
    assert [one.pid for one in await read_states(host)] == [state.pid]
    while "1024" not in log.read_text():
        await asyncio.sleep(0.05)
    assert "token hf_x\n" in log.read_text()
    assert not [path for path in (home / ".local/state/tokpit/launches").iterdir() if path.name.startswith(".")]
    cgroup = Path(f"/proc/{state.pid}/cgroup").read_text()
    manager = await managers.manager_of(host, state.pid, cgroup, in_container=True)
    assert manager is not None, cgroup
    assert manager.kind == "podman"
    await managers.ask(host, manager, "stop", wait_s=1.0)
    assert not alive(state.pid)
    left = await host.run("docker ps -a --format '{{.Names}}'")
    assert left.out.strip() == "", "it is gone with its server"
    with pytest.raises(LaunchError, match=r"(?i)no such|not (?:found|known)|unknown"):
        await start_detached(
            host, argv, log_path=str(log), method="docker", handle="tokpit-vllm-8000-2",
            container=Container(image="localhost/tokpit/nothing:1", gpus="none"),
        )  # fmt: skip
    await host.close()

"""Stopping real processes: what leaves the group, what will not end, what is left, what must not be touched."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lifecycle_tools import serve
from process_tools import alive
from tokpit.errors import StopError, TargetError
from tokpit.ops.lifecycle.stop import Stopped
from tokpit.ops.session import Session


async def stop(session: Session, port: int, **args: object) -> Stopped:
    done = await session.execute("server.stop", target=f"local:{port}", **args)
    assert isinstance(done, Stopped)
    return done


async def test_a_worker_that_left_the_group_is_gone_too(
    session: Session, engine_dir: Path, unused_tcp_port: int
) -> None:
    process = await serve(engine_dir, unused_tcp_port, FAKE_LEAVES="1", FAKE_FORGETS="1")
    done = await stop(session, unused_tcp_port, term_wait_s=0.3)
    process.wait(10)
    assert len(done.members) == 2
    assert len(done.left_group) == 1, "its process group is another one"
    assert done.signal == "KILL", "the worker lives on after its parent has ended on TERM"
    assert not alive(done.left_group[0])
    assert done.port_free is True


async def test_a_server_that_ends_on_term_is_not_killed(
    session: Session, engine_dir: Path, unused_tcp_port: int
) -> None:
    process = await serve(engine_dir, unused_tcp_port)
    done = await stop(session, unused_tcp_port)
    assert (done.signal, process.wait(10)) == ("TERM", 0)
    assert done.gpu_before_mib is None, "no GPU here: not known, not 0"


async def test_a_file_left_in_shared_memory_is_named_with_its_size(
    session: Session, engine_dir: Path, unused_tcp_port: int
) -> None:
    shared = Path(f"/dev/shm/tokpit-test-{os.getpid()}-{unused_tcp_port}.mmap")
    try:
        process = await serve(engine_dir, unused_tcp_port, FAKE_SHM=str(shared))
        for _ in range(200):
            if shared.exists() and shared.stat().st_size:
                break
            await asyncio.sleep(0.02)
        done = await stop(session, unused_tcp_port)
        process.wait(10)
        assert [(file.path, file.size_bytes) for file in done.shm_left] == [(str(shared), 8192)]
    finally:
        shared.unlink(missing_ok=True)


async def test_the_script_that_started_it_in_the_same_group_is_left_alone(
    session: Session, engine_dir: Path, unused_tcp_port: int
) -> None:
    script = await serve(engine_dir, unused_tcp_port, shell="{command}; sleep 300")
    prepared: list[str] = []

    async def confirm(request: object) -> bool:
        prepared.extend(getattr(request, "warnings", ()))
        return True

    session.assume_yes, session.confirm = False, confirm
    done = await stop(session, unused_tcp_port)
    assert script.pid not in done.members
    assert script.poll() is None, "the script lives: it was not asked to end"
    assert any("may start it again" in warning for warning in prepared)
    script.kill()
    script.wait()


async def test_an_orphan_is_listed_and_ended_by_its_pid(
    session: Session, engine_dir: Path, unused_tcp_port: int
) -> None:
    process = await serve(engine_dir, unused_tcp_port)
    process.kill()
    process.wait()
    for _ in range(100):
        await session.find("local")
        orphans = [o for o in session.store.host("local").orphans if o.pgid == process.pid]
        if orphans:
            break
        await asyncio.sleep(0.05)
    orphan = orphans[0]
    assert (orphan.role, orphan.engine) == ("engine-core", "vllm")
    done = await session.execute("server.stop", target=f"local/{orphan.pid}")
    assert done.members == (orphan.pid,)
    assert not alive(orphan.pid)


async def test_a_process_that_is_neither_server_nor_orphan_is_never_ended(session: Session) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises((TargetError, StopError)):
        await session.execute("server.stop", target=f"local/{process.pid}")
    assert process.poll() is None
    process.kill()
    process.wait()


async def test_ps_lists_an_orphan_and_how_to_end_it(
    session: Session, engine_dir: Path, unused_tcp_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokpit.cli.ps import show_found

    process = await serve(engine_dir, unused_tcp_port)
    process.kill()
    process.wait()
    assert await show_found(session, ("local",), as_json=False) == 0
    printed = capsys.readouterr()
    # Other orphans may be on this machine, and are none of this test's business.
    (mine,) = [orphan for orphan in session.store.host("local").orphans if orphan.pgid == process.pid]
    row = next(line for line in printed.out.splitlines() if line.startswith(f"local/{mine.pid} "))
    assert "VLLM::EngineCore" in row
    assert "tokpit stop local/" in printed.err
    await session.execute("server.stop", target=f"local/{mine.pid}")
    assert not alive(mine.pid)

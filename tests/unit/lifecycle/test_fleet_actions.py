"""Several servers at once: one question that lists each, one after another, a failure stops no other."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from lifecycle_tools import serve
from process_tools import alive
from tokpit.errors import TargetError, UsageError
from tokpit.ops.fleet import Results
from tokpit.ops.gate import Refused
from tokpit.ops.session import Session


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def fleet(session: Session, action: str, *targets: str, **more: Any) -> Results:
    done = await session.execute(f"fleet.{action}", targets=targets, **more)
    assert isinstance(done, Results)
    return done


async def test_one_question_names_every_server_and_all_of_them_end(session: Session, engine_dir: Path) -> None:
    ports = [free_port(), free_port()]
    servers = [await serve(engine_dir, port) for port in ports]
    asked: list[Any] = []

    async def agree(request: Any) -> bool:
        asked.append(request)
        return True

    session.assume_yes, session.confirm = False, agree
    # By their ports: other servers may run on this machine, and are none of a test's business.
    done = await fleet(session, "stop", *(f"local:{port}" for port in ports))
    assert len(asked) == 1
    for server, port in zip(servers, ports, strict=True):
        assert any(f"local:{port}: stop vllm" in line for line in asked[0].lines)
        assert any(f"kill -TERM -{server.pid}" in line for line in asked[0].lines)
    assert asked[0].typed_word == "stop 2"
    assert [one.ok for one in done.results] == [True, True]
    for server in servers:
        server.wait()
    history = await session.history()
    entries = await history.audit()
    assert sorted(entry.command for entry in entries) == ["fleet.stop", "server.stop", "server.stop"]


async def test_no_is_no_for_all(session: Session, engine_dir: Path) -> None:
    port = free_port()
    server = await serve(engine_dir, port)

    async def refuse(request: Any) -> bool:
        return False

    session.assume_yes, session.confirm = False, refuse
    for action in ("stop", "check", "sweep"):
        with pytest.raises(Refused):
            await fleet(session, action, f"local:{port}")
    assert alive(server.pid)
    server.kill()
    server.wait()


async def test_one_that_fails_stops_no_other(session: Session, engine_dir: Path) -> None:
    ports = [free_port(), free_port(), free_port()]
    servers = [await serve(engine_dir, port) for port in ports]

    async def one_dies(request: Any) -> bool:
        os.kill(servers[1].pid, signal.SIGKILL)
        servers[1].wait()
        return True

    session.assume_yes, session.confirm = False, one_dies
    done = await fleet(session, "stop", *(f"local:{port}" for port in ports))
    assert [one.ok for one in done.results] == [True, False, True]
    assert not done.ok
    for server in servers:
        server.wait()


async def test_sweeps_go_one_after_another_and_each_is_stored(session: Session, engine_dir: Path) -> None:
    ports = [free_port(), free_port()]
    servers = [await serve(engine_dir, port) for port in ports]
    more = {"levels": "1", "requests": 2, "max_tokens": 1, "warmup": 0, "source": "here"}
    done = await fleet(session, "sweep", *(f"local:{port}" for port in ports), **more)
    assert [one.target for one in done.results] == [f"local:{port}" for port in ports]
    assert len({one.run for one in done.results}) == 2, done
    first, second = [await (await session.history()).run(one.run) for one in done.results]
    assert first.ended_at is not None
    assert first.ended_at <= second.started_at
    for server in servers:
        server.kill()
        server.wait()


async def test_nothing_selected_and_nothing_running_are_told(session: Session) -> None:
    with pytest.raises(UsageError, match="nothing is selected"):
        await fleet(session, "check")
    with pytest.raises(TargetError, match=r"no such server|server runs there"):
        await fleet(session, "check", f"local:{free_port()}")

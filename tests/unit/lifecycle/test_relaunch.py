"""Relaunch with rollback, and launches by tmux, through the gate, on this machine with a stand-in engine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lifecycle_tools import alive
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import LaunchError, StartFailed
from tokpit.ops.difference import differences
from tokpit.ops.gate import ConfirmRequest
from tokpit.ops.launch import Launched
from tokpit.ops.session import Session

BOOM = "ValueError: no room for the cache"


async def launch(session: Session, engine_dir: Path, port: int, **fields: object) -> Launched:
    spec = LaunchSpec(
        host="local",
        engine="vllm",
        program=(str(engine_dir),),
        settings=Settings(model="tiny", port=port, max_running=8),
        **fields,  # type: ignore[arg-type]  # fields of LaunchSpec
    )
    done = await session.execute("server.launch", spec=spec, timeout_s=40)
    assert isinstance(done, Launched)
    return done


async def test_a_failed_relaunch_brings_the_earlier_server_back_on_its_port(
    session: Session, engine_dir: Path, unused_tcp_port: int
) -> None:
    first = await launch(session, engine_dir, unused_tcp_port, env={"GREETING": "kept"})
    with pytest.raises(StartFailed, match="earlier server was started again") as caught:
        await session.execute(
            "server.relaunch",
            target=f"local:{unused_tcp_port}",
            changes={"max_running": 64},
            env={"FAKE_FAILS": BOOM},
            rollback=True,
            timeout_s=40,
        )
    assert caught.value.code
    (server,) = [s for s in await session.find("local") if s.port == unused_tcp_port]
    assert server.argv == first.server.argv
    assert server.pid != first.server.pid
    assert b"GREETING=" not in Path(f"/proc/{server.pid}/environ").read_bytes(), "only what engines read is carried"
    assert b"FAKE_FAILS" not in Path(f"/proc/{server.pid}/environ").read_bytes()
    kinds = [operation.kind for operation in session.store.operations.values()]
    assert kinds == ["launch", "stop", "launch", "launch"]
    done = await session.execute("server.stop", target=f"local:{unused_tcp_port}")
    assert not alive(done.server.pid)


async def test_without_rollback_a_failed_relaunch_leaves_nothing_running_and_is_not_repeated(
    session: Session, engine_dir: Path, unused_tcp_port: int
) -> None:
    await launch(session, engine_dir, unused_tcp_port)
    asked: list[ConfirmRequest] = []

    async def confirm(request: ConfirmRequest) -> bool:
        asked.append(request)
        return len(asked) == 1

    session.assume_yes, session.confirm = False, confirm
    with pytest.raises(LaunchError) as caught:
        await session.execute(
            "server.relaunch",
            target=f"local:{unused_tcp_port}",
            changes={"max_running": 64},
            env={"FAKE_FAILS": BOOM},
            timeout_s=40,
        )
    assert "started again" not in str(caught.value)
    assert [s.port for s in await session.find("local") if s.port == unused_tcp_port] == []
    plan, question = asked
    assert "# max_running: 8 -> 64" in plan.lines
    assert any(line.startswith("# FAKE_FAILS: not given ->") for line in plan.lines)
    assert "Start the earlier one again" in question.title
    assert f"--port {unused_tcp_port}" in question.lines[0]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux on this machine")
async def test_a_launch_in_tmux_is_stopped_as_a_whole_and_relaunched_in_tmux(
    session: Session, engine_dir: Path, unused_tcp_port: int
) -> None:
    try:
        first = await launch(session, engine_dir, unused_tcp_port, method="tmux")
        assert first.state.handle.startswith(f"tokpit-vllm-{unused_tcp_port}-")
        again = await session.execute(
            "server.relaunch", target=f"local:{unused_tcp_port}", changes={"max_running": 4}, timeout_s=40
        )
        assert (again.state.method, again.server.port) == ("tmux", unused_tcp_port)
        done = await session.execute("server.stop", target=f"local:{unused_tcp_port}")
        assert done.port_free is True
        listed = subprocess.run(["tmux", "list-windows", "-a"], capture_output=True, text=True).stdout
        assert ": server" not in listed, "the pane ends with its server"
    finally:
        subprocess.run(["tmux", "kill-server"], capture_output=True)


def test_settings_that_differ_are_told_by_name_and_flags_by_their_words() -> None:
    before = Settings(model="m", mem_fraction=0.85, spec_steps=3, raw=("--trust-remote-code", "--seed", "1"))
    after = Settings(model="m", mem_fraction=0.9, raw=("--seed=2", "--api-key", "sk-secret"))
    assert [change.text for change in differences(before, after)] == [
        "mem_fraction: 0.85 -> 0.9",
        "spec_steps: 3 -> not given",
        "--trust-remote-code: on -> not given",
        "--seed: 1 -> 2",
        "--api-key: not given -> ***",
    ]

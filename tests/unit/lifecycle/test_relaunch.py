"""Relaunch with rollback, and launches by tmux, through the gate, on this machine with a stand-in engine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from lifecycle_tools import serve
from process_tools import alive
from sshd import Sshd
from tokpit.config.inventory import Inventory
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import LaunchError, StartFailed
from tokpit.ops.difference import differences
from tokpit.ops.gate import ConfirmRequest
from tokpit.ops.lifecycle import relaunch, stop
from tokpit.ops.lifecycle.launch import Launched, plan
from tokpit.ops.lifecycle.managers import Manager
from tokpit.ops.session import Session

BOOM = "ValueError: no room for the cache"


async def launch(
    session: Session, engine_dir: Path, port: int, *, raw: tuple[str, ...] = (), **fields: object
) -> Launched:
    spec = LaunchSpec(
        host="local",
        engine="vllm",
        program=(str(engine_dir),),
        settings=Settings(model="tiny", port=port, max_running=8, raw=raw),
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


async def test_a_start_that_cannot_even_begin_says_that_the_first_step_is_done(
    session: Session, engine_dir: Path, home: Path, unused_tcp_port: int
) -> None:
    first = await launch(session, engine_dir, unused_tcp_port)
    logs = home / ".local/state/tokpit/logs"
    logs.rename(logs.with_name("logs-before"))
    logs.write_text("a file where a folder should be")
    with pytest.raises(LaunchError) as caught:
        await session.execute("server.relaunch", target=f"local:{unused_tcp_port}", changes={"max_running": 64})
    assert f"local:{unused_tcp_port} was stopped, and the new server was not started" in caught.value.message
    assert not alive(first.state.pid)


async def test_without_rollback_a_failed_relaunch_leaves_nothing_running_and_is_not_repeated(
    session: Session, engine_dir: Path, unused_tcp_port: int
) -> None:
    await launch(session, engine_dir, unused_tcp_port, raw=("--api-key", "sk-not-shown"))
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
    assert "sk-not-shown" not in repr(asked)
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


async def test_a_units_server_is_stopped_and_brought_back_through_its_unit(
    session: Session, engine_dir: Path, home: Path, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stands in for systemd: one unit, whose main process it starts and ends.
    program = home / "bin" / "systemctl"
    program.parent.mkdir()
    command = f"{engine_dir}/bin/python {engine_dir}/bin/vllm serve tiny --port {unused_tcp_port}"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {home}/asked\n'
        f"case $1 in\nstart) setsid -f sh -c 'echo $$ > {home}/pid; exec {command}' </dev/null >{home}/log 2>&1 ;;\n"
        f'stop) kill "$(cat {home}/pid)" ;;\nesac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    (await serve(engine_dir, unused_tcp_port, starter=[str(program), "start", "serve.service"])).wait()
    (info,) = [s for s in await session.find("local") if s.port == unused_tcp_port]
    host = session.host("local")
    unit = Manager(kind="systemd", name="serve.service", restart="always")
    spec = LaunchSpec(
        host="local", engine="vllm", program=(str(engine_dir),), settings=info.settings, env={"FAKE_FAILS": BOOM}
    )
    after = await plan(session, spec, replacing=info)
    job = msgspec.structs.replace(await stop.plan(host, info), manager=unit)
    whole = relaunch.Relaunch(info=info, job=job, after=after, before=after, changes=(), rollback=True, timeout_s=40.0)
    assert job.lines[0] == "systemctl stop serve.service"
    with pytest.raises(StartFailed, match="earlier server was started again"):
        await relaunch.run(session, host, whole)
    assert (home / "asked").read_text().splitlines() == [
        "start serve.service",
        "stop serve.service",
        "start serve.service",
    ]
    (back,) = [s for s in await session.find("local") if s.port == unused_tcp_port]
    assert back.pid not in (info.pid, 0)
    assert not alive(info.pid)


async def test_a_launch_over_ssh_is_found_and_stopped_by_another_tokpit(
    sshd: Sshd, engine_dir: Path, mark: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    inventory = Inventory(hosts={"box": sshd.spec("box")})
    spec = LaunchSpec(
        host="box",
        engine="vllm",
        program=(str(engine_dir),),
        settings=Settings(model="tiny", port=unused_tcp_port),
        env={"FAKE_LEAVES": "1", "FAKE_FORGETS": "1", "FAKE_MARK": mark},
    )
    async with Session(inventory, history_path=tmp_path / "one.sqlite", assume_yes=True) as first:
        launched = await first.execute("server.launch", spec=spec, timeout_s=40)
    async with Session(inventory, history_path=tmp_path / "two.sqlite", assume_yes=True) as second:
        (info,) = [s for s in await second.find("box") if s.port == unused_tcp_port]
        assert (info.pid, info.launched_by_tokpit) == (launched.state.pid, True)
        done = await second.execute("server.stop", target=f"box:{unused_tcp_port}", term_wait_s=0.5)
    assert len(done.left_group) == 1
    assert not any(alive(pid) for pid in done.members)
    lines = (sshd.home / ".local/state/tokpit/audit.log").read_text().splitlines()
    assert [line.split()[2:4] for line in lines] == [["server.launch", "done"], ["server.stop", "done"]]


async def test_an_image_gives_program_and_version_and_a_missing_one_is_named_before_anything_starts(
    session: Session, home: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    program = home / "bin" / "docker"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\ncase "$*" in *:v0.30.1) echo sha256:1 ;; version*) echo x ;;\n'
                       '*) echo "Error: No such image: $6" >&2; exit 1 ;; esac\n')  # fmt: skip
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    spec = LaunchSpec(
        host="local",
        engine="vllm",
        program=(),
        settings=Settings(model="org/tiny", port=unused_tcp_port, tp=1),
        method="docker",
        image="vllm/vllm-openai:v0.30.1",
    )
    made = await plan(session, spec)
    assert (made.argv[:3], made.spec.version) == (("vllm", "serve", "org/tiny"), "0.30.1")
    assert made.handle.startswith("tokpit-vllm-")
    with pytest.raises(LaunchError, match="No such image") as caught:
        await plan(session, msgspec.structs.replace(spec, image="vllm/vllm-openai:v9"))
    assert caught.value.hint == "get it first: docker pull vllm/vllm-openai:v9"

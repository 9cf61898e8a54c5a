"""How servers are started: tmux for real, systemd and docker by the words that would be run."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from process_tools import alive
from tokpit.domain.hostspec import HostSpec
from tokpit.errors import LaunchError, UsageError
from tokpit.transport.detached import process_alive, read_states, signal_group, start_detached
from tokpit.transport.local import LocalHost
from tokpit.transport.methods import Container, docker_argv, handle_name, systemd_argv

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux on this machine")


@pytest.fixture
async def host(mark: str) -> AsyncIterator[LocalHost]:
    made = LocalHost(HostSpec(name="local", local=True))
    await made.connect()
    yield made
    await made.close()


def fake_program(folder: Path, name: str, text: str) -> None:
    """A program of that name in front of PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@needs_tmux
async def test_a_server_in_tmux_has_its_log_environment_and_folder_and_outlives_the_link(
    host: LocalHost, home: Path, mark: str
) -> None:
    work = home / "work dir"
    work.mkdir()
    log = home / "logs" / "srv.log"
    secret = 'it\'s a $SECRET "key"'
    state = await start_detached(
        host,
        ("sh", "-c", 'echo "$GREETING|$PWD|$FAKE_MARK"; exec sleep 300'),
        env={"GREETING": secret},
        cwd=str(work),
        log_path=str(log),
        method="tmux",
        handle="tokpit-test",
        engine="vllm",
        port=8123,
    )
    await host.close()
    second = LocalHost(HostSpec(name="local", local=True))
    try:
        assert await process_alive(second, state.pid, state.start_ticks)
        assert (state.method, state.handle, state.pgid) == ("tmux", "tokpit-test", state.pid)
        assert log.read_text() == f"{secret}|{work}|{mark}\n"
        left = [path for path in home.rglob("*") if path.is_file() and secret in path.read_text(errors="replace")]
        assert left == [log], "the environment's values stay in no file"
        assert [s.pid for s in await read_states(second)] == [state.pid]
        listed = subprocess.run(["tmux", "list-windows", "-t", "tokpit-test"], capture_output=True, text=True)
        assert "server" in listed.stdout
        assert await signal_group(second, state, "TERM")
        for _ in range(200):
            if not alive(state.pid):
                break
            await asyncio.sleep(0.02)
        assert not alive(state.pid)
    finally:
        subprocess.run(["tmux", "kill-server"], capture_output=True)
        await second.close()


@needs_tmux
async def test_a_program_that_is_not_there_is_told_from_its_log(host: LocalHost, home: Path) -> None:
    try:
        with pytest.raises(LaunchError, match="no-such-engine"):
            await start_detached(
                host, ("/opt/no-such-engine",), log_path=str(home / "log"), method="tmux", handle="tokpit-none"
            )
    finally:
        subprocess.run(["tmux", "kill-server"], capture_output=True)


def test_a_systemd_unit_is_collected_named_and_given_time_to_end() -> None:
    words = systemd_argv("tokpit-sglang-30000-x", user=True, run="/home/eve/.run-1")
    assert words[:2] == ("systemd-run", "--user")
    assert "--unit=tokpit-sglang-30000-x" in words
    assert "--property=KillMode=mixed" in words
    assert words[-3:] == ("--", "/bin/sh", "/home/eve/.run-1"), "no word of the command line can hold a $ or %"
    assert "--user" not in systemd_argv("u", user=False, run="r")


async def test_a_systemd_launch_becomes_the_server_with_environment_and_log(
    host: LocalHost, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stands in for the manager: starts what follows `--` in a session of its own, without the caller's environment.
    fake_program(
        home / "bin",
        "systemd-run",
        f'echo "$@" > {home}/words\nwhile [ "$1" != -- ]; do shift; done\nshift\n'
        f'env -i PATH=/usr/bin:/bin FAKE_MARK={home} setsid -f "$@" </dev/null >/dev/null 2>&1\n',
    )
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    log = home / "unit.log"
    state = await start_detached(
        host,
        ("sh", "-c", 'echo "$TOKEN $HOME"; exec sleep 300'),
        env={"TOKEN": "hf_" + "x" * 12},
        log_path=str(log),
        method="systemd",
        handle="tokpit-vllm-8000",
    )
    assert log.read_text() == f"hf_{'x' * 12} {home}\n"
    assert "hf_" not in (home / "words").read_text(), "a value on systemd-run's line would show in systemctl show"
    assert (state.method, state.handle) == ("systemd", "tokpit-vllm-8000")
    assert await signal_group(host, state, "KILL")


async def test_a_manager_that_refuses_is_quoted(host: LocalHost, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_program(home / "bin", "systemd-run", 'echo "Failed to connect to bus: No medium found" >&2\nexit 1\n')
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(LaunchError, match="No medium found"):
        await start_detached(host, ("sleep", "9"), log_path=str(home / "l"), method="systemd", handle="u")
    assert list((home / ".local/state/tokpit/launches").iterdir()) == [], "no script with the environment stays"


def test_docker_gets_names_of_variables_and_a_log_on_the_host() -> None:
    box = Container(image="vllm/vllm-openai:v0.30.1", mounts=("/models",), args=("--shm-size=16g",))
    words = docker_argv("tokpit-vllm-8000", box, ("HF_TOKEN",), ("vllm", "serve", "/models/m"), log_folder="/var/l")
    line = " ".join(words)
    assert "--gpus all --ipc=host --network=host" in line
    assert "--env HF_TOKEN --env TOKPIT_LOG" in line
    assert "--volume /var/l:/tokpit-logs --volume /models:/models --shm-size=16g" in line
    assert "--pull=never" in words
    assert words[-6:] == (words[-6], "sh", "vllm", "serve", "/models/m")[-6:] or words[-4:] == (
        "sh",
        "vllm",
        "serve",
        "/models/m",
    )
    assert words[words.index("--entrypoint") + 2] == "vllm/vllm-openai:v0.30.1"
    assert "--gpus" not in docker_argv("h", Container(image="i", gpus="rocm"), (), ("x",), log_folder="/l")


async def test_a_container_launch_records_the_pid_on_the_host(
    host: LocalHost, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stands in for docker: runs the words after the image, and knows their pid.
    fake_program(
        home / "bin",
        "docker",
        f"""if [ "$1" = inspect ]; then cat {home}/pid; exit; fi
printf '%s\\n' "$@" > {home}/words
while [ "$1" != --entrypoint ]; do shift; done
shell=$2; shift 3
export TOKPIT_LOG={home}/box.log
setsid -f sh -c 'echo $$ > {home}/pid; exec "$@"' sh "$shell" "$@" </dev/null >/dev/null 2>&1
while [ ! -s {home}/pid ]; do sleep 0.05; done
echo 4f5d6e7c8b9a
""",
    )
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    state = await start_detached(
        host,
        ("sh", "-c", "echo in a box; exec sleep 300"),
        env={"HF_TOKEN": "hf_secret"},
        log_path=str(home / "box.log"),
        method="docker",
        handle="tokpit-vllm-8000",
        container=Container(image="some/image:1", gpus="none"),
    )
    words = (home / "words").read_text()
    assert "hf_secret" not in words
    assert f"{home}:/tokpit-logs" in words
    assert state.pid == int((home / "pid").read_text())
    for _ in range(100):
        if (home / "box.log").read_text():
            break
        await asyncio.sleep(0.02)
    assert (home / "box.log").read_text() == "in a box\n"
    assert await signal_group(host, state, "KILL")


async def test_a_container_without_an_image_and_an_unknown_method_are_refused(host: LocalHost, home: Path) -> None:
    with pytest.raises(UsageError, match="image"):
        await start_detached(host, ("x",), log_path=str(home / "l"), method="docker", handle="h")
    with pytest.raises(UsageError, match="unknown launch method"):
        await start_detached(host, ("x",), log_path=str(home / "l"), method="screen", handle="h")


def test_names_of_units_and_sessions_hold_no_dot_or_colon() -> None:
    assert handle_name("vllm", 8000, "2026.1:2") == "tokpit-vllm-8000-2026-1-2"

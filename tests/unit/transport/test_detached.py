from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sshd import Sshd
from tokpit.errors import LaunchError, RemoteFailed, StopError, UsageError
from tokpit.transport.base import HostSpec
from tokpit.transport.detached import process_alive, read_states, remove_state, signal_group, start_detached
from tokpit.transport.local import LocalHost
from tokpit.transport.ssh import SshHost

AnyHost = SshHost | LocalHost

MARK = f"fake server of {os.getpid()}"
SERVER = ("sh", "-c", 'echo "up with $GREETING"; sleep 301 & while :; do sleep 1; done', MARK)


@pytest.fixture(autouse=True)
def no_server_stays() -> Iterator[None]:
    """A failed test must not leave its fake server behind."""
    yield
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().endswith(b"\0" + MARK.encode() + b"\0"):
                os.killpg(int(path.parent.name), signal.SIGKILL)


async def test_server_outlives_the_connection_and_is_ended_as_a_group_over_another(sshd: Sshd, tmp_path: Path) -> None:
    log, states = tmp_path / "new" / "server.log", str(tmp_path / "states")
    first = SshHost(sshd.spec(), ssh_config=[])
    state = await start_detached(
        first,
        SERVER,
        env={"GREETING": 'it\'s "here" $HOME'},
        cwd=str(tmp_path),
        log_path=str(log),
        state_dir=states,
        engine="vllm",
        port=8123,
    )
    await first.close()
    assert (state.engine, state.port, state.argv, state.env_names) == ("vllm", 8123, SERVER, ("GREETING",))
    assert state.pid == state.pgid != os.getpgid(0)
    second = SshHost(sshd.spec(), ssh_config=[])
    assert await process_alive(second, state.pid, state.start_ticks)
    assert await read_states(second, state_dir=states) == [state]
    assert log.read_text() == 'up with it\'s "here" $HOME\n'
    assert Path(f"/proc/{state.pid}/cwd").readlink() == tmp_path
    assert await signal_group(second, state, signal.SIGTERM)
    await group_gone(state.pgid)
    assert not await process_alive(second, state.pid, state.start_ticks)
    assert not await signal_group(second, state, "TERM")
    await remove_state(second, state, state_dir=states)
    assert await read_states(second, state_dir=states) == []
    await second.close()


async def test_environment_values_are_on_no_command_line_and_in_no_file(any_host: AnyHost, tmp_path: Path) -> None:
    secret = "hf_" + "q" * 20
    state = await start_detached(
        any_host,
        (*SERVER, "--api-key", "sk-in-the-argv"),
        env={"TOKEN": secret},
        log_path=str(tmp_path / "log"),
        state_dir=str(tmp_path / "states"),
    )
    shown = (await any_host.run("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")).out
    assert MARK in shown
    assert secret not in shown
    files = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 1
    assert not [text for text in files if secret in text or "sk-in-the-argv" in text]
    assert state.argv[-1] == "sk-in-the-argv", "who started it knows it still"
    assert secret in Path(f"/proc/{state.pid}/environ").read_text()
    await signal_group(any_host, state, "KILL")
    await group_gone(state.pgid)


async def test_another_process_under_the_same_number_is_not_signalled(any_host: AnyHost, tmp_path: Path) -> None:
    state = await start_detached(any_host, SERVER, log_path=str(tmp_path / "log"), state_dir=str(tmp_path / "states"))
    with pytest.raises(StopError, match="not the recorded one"):
        await signal_group(any_host, (state.pid, state.pgid, state.start_ticks + 1), "KILL")
    assert await process_alive(any_host, state.pid, state.start_ticks)
    assert not await process_alive(any_host, state.pid, state.start_ticks + 1)
    assert await signal_group(any_host, state, "KILL")
    await group_gone(state.pgid)


async def test_own_group_and_the_systems_groups_are_never_signalled(any_host: AnyHost) -> None:
    me = os.getpid()
    if isinstance(any_host, LocalHost):
        ticks = int(Path(f"/proc/{me}/stat").read_text().rpartition(")")[2].split()[19])
        with pytest.raises(StopError, match="this connection"):
            await signal_group(any_host, (me, os.getpgid(0), ticks), "TERM")
    for group in (1, 0, -1):
        with pytest.raises(StopError, match="belongs to the system"):
            await signal_group(any_host, (me, group, 1), "TERM")


async def test_workers_left_by_an_ended_leader_are_signalled_only_when_asked(any_host: AnyHost, tmp_path: Path) -> None:
    state = await start_detached(any_host, SERVER, log_path=str(tmp_path / "log"), state_dir=str(tmp_path / "states"))
    os.kill(state.pid, signal.SIGKILL)
    while await process_alive(any_host, state.pid, state.start_ticks):
        await asyncio.sleep(0.02)
    assert not await signal_group(any_host, state, "TERM")
    assert await signal_group(any_host, state, "KILL", orphans=True)
    await group_gone(state.pgid)
    assert not await signal_group(any_host, state, "KILL", orphans=True)


async def test_command_that_is_not_there_says_so_at_once(any_host: AnyHost, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no-such-engine"):
        await start_detached(
            any_host,
            ("/opt/no-such-engine", "--port", "1"),
            log_path=str(tmp_path / "log"),
            state_dir=str(tmp_path / "states"),
        )
    assert await read_states(any_host, state_dir=str(tmp_path / "states")) == []


async def test_log_folder_that_cannot_be_made_is_a_remote_failure(any_host: AnyHost, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RemoteFailed, match="not prepared"):
        await start_detached(any_host, SERVER, log_path=str(tmp_path / "file" / "log"), state_dir=str(tmp_path))


async def test_name_that_is_no_variable_is_refused(any_host: AnyHost, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="environment variable"):
        await start_detached(any_host, SERVER, env={"A;reboot": "1"}, log_path=str(tmp_path / "log"))


async def test_default_place_of_the_records_is_the_remote_state_folder(sshd: Sshd, tmp_path: Path) -> None:
    host = SshHost(sshd.spec(), ssh_config=[])
    state = await start_detached(host, SERVER, log_path="~/logs/server.log")
    record = sshd.home / f".local/state/tokpit/launches/{state.pid}-{state.start_ticks}.json"
    assert record.stat().st_mode & 0o777 == 0o600
    assert (sshd.home / "logs/server.log").exists()
    await signal_group(host, state, "KILL")
    await group_gone(state.pgid)
    await remove_state(host, state)
    assert not record.exists()
    await host.close()


@pytest.mark.parametrize("tool", ["busybox", "python3", "perl"])
async def test_start_works_without_util_linux(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busybox = shutil.which("busybox")
    real = sys.executable if tool == "python3" else shutil.which(tool)
    if busybox is None or real is None:
        pytest.skip(f"no busybox or no {tool} on this machine")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "cat", "mkdir", "dirname", "mv", "rm", "date", "sleep", "tail", "setsid", "tr"):
        (tools / name).symlink_to(busybox)
    if tool != "busybox":
        (tools / tool).symlink_to(real)
    monkeypatch.setenv("PATH", str(tools))
    host = LocalHost(HostSpec(name="here", local=True))
    state = await start_detached(host, SERVER, log_path=str(tmp_path / "log"), state_dir=str(tmp_path / "states"))
    await host.close()
    assert os.getsid(state.pid) == state.pid == state.pgid
    host = LocalHost(HostSpec(name="here", local=True))
    assert await signal_group(host, state, "KILL")
    await group_gone(state.pgid)
    await host.close()


async def group_gone(pgid: int) -> None:
    """Return when no live process of the group is left; the test's time limit is the check."""
    while True:
        alive = False
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            alive = alive or (int(fields[2]) == pgid and fields[0] not in "ZX")
        if not alive:
            return
        await asyncio.sleep(0.05)

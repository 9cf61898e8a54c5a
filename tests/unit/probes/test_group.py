"""The look at a process group and a port, on real processes of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokpit.probes.group import GroupState, group_script, parse_group

SERVER = "import socket,time; s=socket.create_server(('127.0.0.1',{port})); print('up',flush=True); time.sleep(60)"


def look(pid: int, pgid: int, port: int) -> GroupState:
    script = group_script(pid, pgid, port)
    return parse_group(subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True).stdout)


def start_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def server(port: int) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", SERVER.format(port=port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
        process.kill()


def test_a_group_that_owns_its_port(server: subprocess.Popen[str], port: int) -> None:
    state = look(server.pid, server.pid, port)
    assert state.start_ticks == start_ticks(server.pid)
    assert state.members == (server.pid,)
    assert state.listening
    assert state.owns_port
    assert state.only_tree_of(server.pid)


def test_a_port_held_by_another_process_is_not_owned(server: subprocess.Popen[str], port: int) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        state = look(other.pid, other.pid, port)
        other.kill()
    assert state.members == (other.pid,)
    assert state.listener_pid == server.pid
    assert not state.owns_port


def test_a_process_that_is_gone_has_no_start_time() -> None:
    gone = subprocess.Popen(["true"], start_new_session=True)
    gone.wait()
    state = look(gone.pid, gone.pid, 0)
    assert state.start_ticks is None
    assert state.members == ()
    assert not state.listening


def test_a_shared_group_is_not_only_the_tree_of_one_member() -> None:
    state = look(os.getpid(), os.getpgid(0), 0)
    assert os.getpid() in state.members
    parents = {10: 1, 11: 10, 12: 99}
    shared = GroupState(start_ticks=1, members=(10, 11, 12), listening=False, listener_pid=None, parents=parents)
    assert not shared.only_tree_of(10)
    tree = GroupState(start_ticks=1, members=(10, 11), listening=False, listener_pid=None, parents={10: 1, 11: 10})
    assert tree.only_tree_of(10)


@pytest.mark.parametrize("noise", ["", "Welcome to gpu7!\nticks soon\nmembers of the staff\nlistener\n"])
def test_noise_is_not_read_as_an_answer(noise: str) -> None:
    state = parse_group(noise)
    assert state == GroupState(start_ticks=None, members=(), listening=False, listener_pid=None)

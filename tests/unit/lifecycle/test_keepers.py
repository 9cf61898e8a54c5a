"""Servers that systemd or a container runtime keeps: told by their control group, stopped through what keeps them."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tokpit.domain.hostspec import HostSpec
from tokpit.errors import LaunchError, StopError
from tokpit.ops.lifecycle import managers
from tokpit.ops.lifecycle.managers import Manager, parse_unit
from tokpit.probes.cgroup import Keeper, keeper_of
from tokpit.probes.family import Member, family_script, kill_script, parse_family, parse_processes, tree_of
from tokpit.probes.sections import sections
from tokpit.transport.local import LocalHost

BOX = "0f" * 32


@pytest.mark.parametrize(
    ("cgroup", "kind", "name"),
    [
        ("0::/system.slice/sglang-qwen.service", "systemd", "sglang-qwen.service"),
        ("0::/user.slice/user-1007.slice/user@1007.service/app.slice/serve.service", "systemd", "serve.service"),
        ("1:name=systemd:/system.slice/serve.service\n4:memory:/x", "systemd", "serve.service"),
        ("0::/user.slice/user-1007.slice/session-52.scope", "session", "session-52.scope"),
        (f"0::/system.slice/docker-{BOX}.scope", "docker", BOX),
        (f"4:memory:/docker/{BOX}\n1:name=systemd:/docker/{BOX}", "docker", BOX),
        (f"0::/machine.slice/libpod-{BOX}.scope/container", "podman", BOX),
        (f"0::/kubepods.slice/cri-containerd-{BOX}.scope", "kubernetes", f"cri-containerd-{BOX}.scope"),
        ("0::/system.slice/slurmstepd.scope/job_8812/step_0/user/task_0", "slurm", "8812"),
    ],
)  # fmt: skip
def test_a_control_group_names_its_keeper(cgroup: str, kind: str, name: str) -> None:
    keeper = keeper_of(cgroup)
    assert keeper is not None
    assert (keeper.kind, keeper.name) == (kind, name)


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/system.slice/ssh.service",
        "0::/system.slice/sshd.service",
        "0::/system.slice/cron.service",
        "0::/user.slice/user-1007.slice/user@1007.service/init.scope",
        "0::/user.slice/user-1007.slice/user@1007.service/tmux-spawn-1b2c.scope",
        "0::/",
        "",
        "garbage",
    ],
)
def test_a_login_a_terminal_and_a_timer_are_no_keepers_that_may_be_stopped(cgroup: str) -> None:
    assert keeper_of(cgroup) is None


def test_a_unit_is_believed_only_if_its_main_process_is_the_server_or_waits_for_it() -> None:
    keeper = Keeper(kind="systemd", name="serve.service")
    facts = "Id=serve.service\nMainPID=700\nRestart=always\n"
    direct = parse_unit(f"0\n{facts}up 700 python3\nup 1 systemd\n", 700, keeper)
    assert direct == Manager(kind="systemd", name="serve.service", restart="always")
    wrapped = parse_unit(f"1007\n{facts}up 712 python3\nup 705 bash\nup 700 start.sh\n", 712, keeper)
    assert wrapped is not None
    assert wrapped.sudo
    assert wrapped.command("stop") == ("sudo", "-n", "systemctl", "stop", "serve.service")
    house = f"0\n{facts}up 712 python3\nup 705 jupyter-lab\nup 700 supervisord\n"
    assert parse_unit(house, 712, keeper) is None, "stopping the unit would end the notebook server too"
    assert parse_unit("0\nup 712 python3\n", 712, keeper) is None, "systemd does not answer"
    user = parse_unit(f"1007\n{facts}up 700 vllm\n", 700, Keeper(kind="systemd", name="serve.service", user=True))
    assert user is not None
    assert user.command("start") == ("systemctl", "--user", "start", "serve.service")


def test_containers_are_stopped_by_their_runtime_with_time_to_drain() -> None:
    assert Manager(kind="podman", name=BOX).command("stop", wait_s=90) == ("podman", "stop", "-t", "90", BOX[:12])


@pytest.fixture
async def host(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalHost]:
    (home / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    made = LocalHost(HostSpec(name="local", local=True))
    yield made
    await made.close()


def program(home: Path, name: str, text: str) -> None:
    path = home / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


async def test_sudo_that_wants_a_password_is_told_with_the_command_to_allow(host: LocalHost, home: Path) -> None:
    program(home, "sudo", 'echo "sudo: a password is required" >&2; exit 1')
    with pytest.raises(StopError, match="asks for a password") as caught:
        await managers.ask(host, Manager(kind="systemd", name="serve.service", sudo=True), "stop", wait_s=1)
    assert caught.value.hint.endswith("systemctl stop serve.service")
    with pytest.raises(LaunchError):
        await managers.ask(host, Manager(kind="systemd", name="serve.service", sudo=True), "start", wait_s=1)


async def test_a_container_is_asked_of_its_runtime_and_a_removed_one_is_named(host: LocalHost, home: Path) -> None:
    cgroup = f"0::/system.slice/docker-{BOX}.scope"
    program(home, "docker", f'[ "$4" = {BOX} ] && echo unless-stopped')
    found = await managers.manager_of(host, 700, cgroup, in_container=True)
    assert found == Manager(kind="docker", name=BOX, restart="unless-stopped")
    assert await managers.manager_of(host, 700, cgroup, in_container=False) is None, "our own container is no keeper"
    program(home, "sudo", "exit 1")
    program(home, "docker", 'echo "Error: No such object" >&2; exit 1')
    with pytest.raises(StopError, match="does not know"):
        await managers.manager_of(host, 700, cgroup, in_container=True)
    with pytest.raises(StopError, match="Slurm job 8812"):
        await managers.manager_of(host, 700, "0::/slurm/uid_7/job_8812/step_0", in_container=False)


def stat_section(*rows: str) -> str:
    return "@@tokpit stat\n" + "\n".join(rows) + "\n@@tokpit cgroup\n0::/x\n@@tokpit end\n"


def test_a_family_is_group_session_and_descendants_but_no_zombie_and_no_stranger() -> None:
    output = stat_section(
        "700 1 700 700 5000 S",
        "701 700 700 700 5001 S",
        "702 700 702 702 5002 S",  # left the group
        "703 702 703 703 5003 S",  # and has a child
        "704 1 704 700 5004 S",  # its parent is gone, its session is not
        "705 700 700 700 5005 Z",
        "800 1 800 800 4000 S",
        "not a row",
    )
    family = parse_family(output, 700, 5000, 700)
    assert family.pids == (700, 701, 702, 703, 704)
    assert [member.pid for member in family.outside(700)] == [702, 703, 704]
    assert parse_family(output, 700, 5001, 700).members == (), "another process under this number"
    assert parse_family(output, 701, 5001, 700).pids == (701,), "not the leader: the group is not its own"
    assert tree_of(output, [702, 999]).pids == (702, 703)


async def test_a_family_asked_for_alone_is_the_same_and_nobody_else_is_printed(host: LocalHost) -> None:
    argv = ["sh", "-c", "sleep 60 & setsid sleep 60 & wait"]
    with subprocess.Popen(argv, start_new_session=True) as leader:
        pids: tuple[int, ...] = ()
        try:
            while len(pids) < 3:
                pids = tree_of((await host.run(family_script(leader.pid))).out, [leader.pid]).pids
            text = (await host.run(family_script(leader.pid, alone=True))).out
            rows = parse_processes(sections(text)["stat"])
            ticks = rows[leader.pid].start_ticks
            assert sorted(rows) == sorted(pids)
            whole = (await host.run(family_script(leader.pid))).out
            assert parse_family(text, leader.pid, ticks, leader.pid) == parse_family(
                whole, leader.pid, ticks, leader.pid
            )
            assert parse_processes(sections(whole)["stat"]).keys() > rows.keys()
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)


async def test_a_process_whose_start_time_differs_and_our_own_shell_are_never_signalled(host: LocalHost) -> None:
    me = os.getpid()
    table = parse_processes((await host.run("cat /proc/[0-9]*/stat | sed 's/(.*) //' | "
                                            "awk '{print $1, $3, $4, $5, $21, $2}'")).out)  # fmt: skip
    ticks = table[me].start_ticks
    answer = await host.run(kill_script([Member(me, ticks + 1), Member(me, ticks), Member(1, 0)], "TERM"))
    assert answer.out == "", "this test lives on: it is an ancestor of the script"

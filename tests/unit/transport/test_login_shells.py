"""Login shells as people have them, started by a real sshd, with start-up files that talk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from process_tools import until_gone
from sshd import ACCOUNTS_MISSING, Account, Sshd
from tokpit.config.inventory import Inventory
from tokpit.ops.host.doctor import examine
from tokpit.ops.session import Session
from tokpit.transport.detached import process_alive, signal_group, start_detached
from tokpit.transport.ssh import SshHost

pytestmark = pytest.mark.skipif(bool(ACCOUNTS_MISSING), reason=ACCOUNTS_MISSING)

# Shell, the start-up file that it reads for `-c` under sshd, and what that file says on stdout and stderr.
SHELLS = {
    "bash": (".bashrc", "echo 'Welcome to lab7!'; printf '\\033[33mkeep to /data\\033[0m\\n'; echo motd >&2\n"),
    "dash": ("", ""),
    "fish": (".config/fish/config.fish", "echo 'Welcome to lab7!'\nset_color red; echo keep to /data\necho motd >&2\n"),
    "tcsh": (".tcshrc", "echo 'Welcome to lab7!'\necho 'keep to /data'\nset prompt='%n@%m %# '\nalias ls 'ls -F'\n"),
    "csh": (".cshrc", "echo 'Welcome to lab7!'\necho 'keep to /data'\nset noclobber\n"),
    "zsh": (".zshenv", "echo 'Welcome to lab7!'; echo 'keep to /data'; echo motd >&2; setopt noclobber nomatch\n"),
    "busybox": ("", ""),
}  # fmt: skip
AWKWARD = 'it\'s a "b" $HOME `id` !! \\n %s {a,b} [x]* ~ #c ; & | ^old^new'


def account(name: str, folder: Path) -> Account:
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"no {name} on this machine")
    if name == "busybox":  # one program that is a shell under the name of one
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ash").symlink_to(program)
        program = str(folder / "ash")
    return Account(shell=program)


@pytest.mark.parametrize("name", SHELLS)
async def test_everything_works_whatever_the_login_shell_is_and_says(name: str, tmp_path: Path) -> None:
    file, text = SHELLS[name]
    own = account(name, tmp_path / "bin")
    banner = tmp_path / "banner"
    banner.write_text("Authorised use only\n")
    with Sshd.start(tmp_path / "sshd", account=own, PermitUserRC="yes", Banner=str(banner)) as server:
        (server.home / ".ssh").mkdir()
        (server.home / ".ssh" / "rc").write_text("echo 'rc of sshd'\n")
        if file:
            path = server.home / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        host = SshHost(server.spec(), ssh_config=[])
        done = await host.run(f"printf '%s\\n' {quoted(AWKWARD)}; echo \"$SHELL\"; echo e >&2; exit 5")
        assert (done.out, done.stderr, done.status) == (f"{AWKWARD}\n{own.shell}\n", b"e\n", 5)
        assert b"rc of sshd\n" in done.noise
        assert (b"Welcome to lab7!" in done.noise) == bool(file)
        assert (await host.run("wc -c", stdin=bytes(range(256)))).out.strip() == "256"
        async with host.stream("echo one; echo two") as chunks:
            assert b"".join([chunk async for chunk in chunks]) == b"one\ntwo\n"
        await host.write_file("~/sub/file", b"a\xffb\n")
        assert (server.home / "sub" / "file").read_bytes() == b"a\xffb\n"
        async for position, data in host.follow("~/sub/file"):
            assert (position, data) == (0, b"a\xffb\n")
            break
        state = await start_detached(
            host,
            ("sh", "-c", 'printf "%s\\n" "$WORDS"; exec sleep 300'),
            env={"WORDS": AWKWARD},
            log_path="~/logs/a b.log",
        )
        await host.close()
        second = SshHost(server.spec(), ssh_config=[])
        assert await process_alive(second, state.pid, state.start_ticks)
        assert (server.home / "logs" / "a b.log").read_text() == f"{AWKWARD}\n"
        assert await signal_group(second, state, "TERM")
        await until_gone(state.pid)
        await second.close()


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


async def test_doctor_names_the_shell_and_what_its_start_files_print(tmp_path: Path) -> None:
    own = account("tcsh", tmp_path)
    with Sshd.start(tmp_path / "sshd", account=own) as server:
        (server.home / ".tcshrc").write_text(SHELLS["tcsh"][1] + "setenv HF_HOME /data/hf\n")
        async with Session(Inventory(hosts={"box": server.spec()}), history_path=tmp_path / "h.sqlite") as session:
            report = await examine(session, "box")
        (line,) = [check for check in report.checks if check.name == "shell"]
        assert line.status == "warn"
        assert "login shell tcsh" in line.says
        assert "2 lines of login noise removed (Welcome to lab7!)" in line.says
        assert "start-up file" in line.mend
        (environment,) = [check for check in report.checks if check.name == "environment"]
        assert "HF_HOME not set here" not in environment.says, "a start-up file that runs for commands too is no loss"
        assert "did not tell" not in environment.says


async def test_a_shell_that_prints_before_every_command_leaves_probes_alone(tmp_path: Path) -> None:
    own = account("bash", tmp_path)
    with Sshd.start(tmp_path / "sshd", account=own) as server:
        (server.home / ".bashrc").write_text(
            "printf '\\033[33mOnly these folders persist: /data\\033[0m\\nWelcome to lab7!\\n'\n"
        )
        host = SshHost(server.spec(), ssh_config=[])
        done = await host.run("printf '0\\n1\\n'")
        assert done.out.splitlines() == ["0", "1"]
        assert len(done.noise.splitlines()) == 2
        await host.close()

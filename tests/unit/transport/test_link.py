from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from sshd import SSHD_MISSING, Sshd, free_port, make_key
from tokpit.domain.records import LinkRecord, LinkState
from tokpit.errors import AuthFailed, ConnectFailed, HostError, HostKeyChanged, HostKeyUnknown, LinkLost, UnknownHost
from tokpit.transport.ssh import SshHost, backoff_s


def listen(host: SshHost) -> list[LinkRecord]:
    seen: list[LinkRecord] = []
    host.on_link(seen.append)
    return seen


async def until(seen: list[LinkRecord], state: LinkState, count: int = 1) -> LinkRecord:
    """The record with which `state` was reached the `count`-th time; the test's time limit is the check."""
    while True:
        found = [record for record in seen if record.state is state]
        if len(found) >= count:
            return found[count - 1]
        await asyncio.sleep(0.02)


async def failure(host: SshHost) -> HostError:
    with pytest.raises(HostError) as caught:
        await host.connect()
    await host.close()
    return caught.value


async def test_states_of_a_link_are_told_in_order(sshd: Sshd) -> None:
    host = SshHost(sshd.spec(), ssh_config=[])
    seen = listen(host)
    await host.connect()
    await host.connect()
    await host.close()
    assert [record.state for record in seen] == [LinkState.CONNECTING, LinkState.UP, LinkState.CLOSED]
    assert seen[1].rtt_s is not None
    assert seen[1].rtt_s > 0


async def test_first_command_connects_by_itself_and_only_once(sshd: Sshd) -> None:
    host = SshHost(sshd.spec(), ssh_config=[])
    seen = listen(host)
    await asyncio.gather(*(host.run("true") for _ in range(6)))
    assert [record.state for record in seen] == [LinkState.CONNECTING, LinkState.UP]
    await host.close()


async def test_refused_port_says_so_and_is_tried_again(sshd: Sshd) -> None:
    host = SshHost(sshd.spec(port=free_port()), ssh_config=[])
    seen = listen(host)
    with pytest.raises(ConnectFailed, match="refused"):
        await host.connect()
    assert seen[-1].state is LinkState.LOST
    assert seen[-1].retry_in_s is not None
    with pytest.raises(LinkLost, match="refused"):
        await host.run("true")
    await host.close()


async def test_name_that_does_not_resolve_is_final(sshd: Sshd) -> None:
    host = SshHost(sshd.spec(address="no-such-host.invalid"), ssh_config=[])
    seen = listen(host)
    assert isinstance(await failure(host), UnknownHost)
    assert LinkState.FAILED in [record.state for record in seen]


async def test_wrong_key_is_final_and_names_ssh_add(sshd: Sshd, tmp_path: Path) -> None:
    host = SshHost(sshd.spec(identity_files=(str(make_key(tmp_path / "other")),)), ssh_config=[])
    seen = listen(host)
    error = await failure(host)
    assert isinstance(error, AuthFailed)
    assert "ssh-add" in error.hint
    assert [record.state for record in seen] == [LinkState.CONNECTING, LinkState.FAILED, LinkState.CLOSED]


async def test_missing_identity_file_is_named(sshd: Sshd) -> None:
    error = await failure(SshHost(sshd.spec(identity_files=("/nowhere/id",)), ssh_config=[]))
    assert isinstance(error, AuthFailed)
    assert "/nowhere/id" in error.message


async def test_unknown_key_carries_the_fingerprint_that_openssh_prints(sshd: Sshd, tmp_path: Path) -> None:
    error = await failure(SshHost(sshd.spec(known_hosts=str(tmp_path / "none")), ssh_config=[]))
    assert isinstance(error, HostKeyUnknown)
    printed = subprocess.run(["ssh-keygen", "-lf", str(sshd.host_key)], capture_output=True, text=True, check=True)
    assert error.fingerprint == printed.stdout.split()[1]
    assert not (tmp_path / "none").exists()


async def test_agreed_key_is_written_down_and_accepted_from_then_on(sshd: Sshd, tmp_path: Path) -> None:
    questions: list[tuple[str, str]] = []

    async def agree(kind: str, question: str) -> str | None:
        questions.append((kind, question))
        return "yes"

    known = tmp_path / "new" / "known_hosts"
    host = SshHost(sshd.spec(known_hosts=str(known)), prompt=agree, ssh_config=[])
    await host.connect()
    await host.close()
    assert [kind for kind, _ in questions] == ["hostkey"]
    assert "SHA256:" in questions[0][1]
    assert known.read_text() == sshd.host_key_line()
    again = SshHost(sshd.spec(known_hosts=str(known)), ssh_config=[])
    await again.connect()
    await again.close()


@pytest.mark.parametrize("answer", [None, "", "no"])
async def test_key_that_is_not_agreed_to_is_not_used(sshd: Sshd, tmp_path: Path, answer: str | None) -> None:
    async def refuse(kind: str, question: str) -> str | None:
        return answer

    known = tmp_path / "known_hosts"
    known.write_text("other.example ssh-ed25519 AAAA")
    host = SshHost(sshd.spec(known_hosts=str(known)), prompt=refuse, ssh_config=[])
    assert isinstance(await failure(host), HostKeyUnknown)
    assert known.read_text() == "other.example ssh-ed25519 AAAA"


@pytest.mark.parametrize("hashed", [False, True])
async def test_changed_key_is_refused_whatever_the_user_says(sshd: Sshd, tmp_path: Path, hashed: bool) -> None:
    asked: list[str] = []

    async def agree(kind: str, question: str) -> str | None:
        asked.append(kind)
        return "yes"

    kind, key, *_ = make_key(tmp_path / "old_host").with_suffix(".pub").read_text().split()
    known = tmp_path / "known_hosts"
    known.write_text(f"not a line\n[127.0.0.1]:{sshd.port} {kind} {key}\n")
    if hashed:
        known.write_text(f"[127.0.0.1]:{sshd.port} {kind} {key}\n")
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
        assert "127.0.0.1" not in known.read_text()
    host = SshHost(sshd.spec(known_hosts=str(known)), prompt=agree, ssh_config=[])
    seen = listen(host)
    error = await failure(host)
    assert isinstance(error, HostKeyChanged)
    assert "ssh-keygen -R" in error.hint
    assert asked == []
    assert LinkState.FAILED in [record.state for record in seen]


async def test_key_of_another_kind_than_recorded_counts_as_changed(sshd: Sshd, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(tmp_path / "rsa")], check=True)
    kind, key, *_ = (tmp_path / "rsa.pub").read_text().split()
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {kind} {key}\n")
    assert isinstance(await failure(SshHost(sshd.spec(known_hosts=str(known)), ssh_config=[])), HostKeyChanged)


async def test_entry_without_port_vouches_but_its_mismatch_is_only_unknown(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(sshd.host_key_line("127.0.0.1"))
    host = SshHost(sshd.spec(known_hosts=str(known)), ssh_config=[])
    await host.connect()
    await host.close()
    kind, key, *_ = make_key(tmp_path / "other").with_suffix(".pub").read_text().split()
    known.write_text(f"127.0.0.1 {kind} {key}\n")
    assert isinstance(await failure(SshHost(sshd.spec(known_hosts=str(known)), ssh_config=[])), HostKeyUnknown)


async def test_revoked_key_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("@revoked " + sshd.host_key_line())
    error = await failure(SshHost(sshd.spec(known_hosts=str(known)), ssh_config=[]))
    assert isinstance(error, HostKeyChanged)
    assert "revoked" in error.message


async def test_protected_key_asks_for_its_passphrase_once(tmp_path: Path) -> None:
    if SSHD_MISSING:
        pytest.skip(SSHD_MISSING)
    asked: list[str] = []

    async def answer(kind: str, question: str) -> str | None:
        asked.append(kind)
        return "wrong" if len(asked) == 1 else "open sesame"

    key = make_key(tmp_path / "locked", passphrase="open sesame")
    with Sshd.start(tmp_path / "sshd", user_key=key) as server:
        error = await failure(SshHost(server.spec(), ssh_config=[]))
        assert isinstance(error, AuthFailed)
        assert "passphrase" in error.hint
        host = SshHost(server.spec(), prompt=answer, ssh_config=[])
        seen = listen(host)
        await host.connect()
        assert asked == ["passphrase", "passphrase"]
        server.signal_sessions(signal.SIGKILL)
        await until(seen, LinkState.UP, 2)
        assert asked == ["passphrase", "passphrase"], "a reconnect uses the key that is open already"
        await host.close()


@pytest.mark.parametrize("only", [False, True])
async def test_key_in_the_agent_is_used(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: bool
) -> None:
    if shutil.which("ssh-agent") is None or shutil.which("ssh-add") is None:
        pytest.skip("no ssh-agent on this machine")
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    try:
        while not socket.exists():
            await asyncio.sleep(0.01)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        monkeypatch.setenv("HOME", str(tmp_path))
        subprocess.run(["ssh-add", "-q", str(sshd.user_key)], check=True)
        config = tmp_path / "config"
        # The private half is not on this disk: only its public half says which of the agent's keys to use.
        (tmp_path / "mine.pub").write_text(sshd.user_key.with_suffix(".pub").read_text())
        config.write_text(f"Host *\n  IdentitiesOnly yes\n  IdentityFile {tmp_path}/mine\n" if only else "")
        host = SshHost(sshd.spec(identity_files=()), ssh_config=[config])
        await host.connect()
        await host.close()
    finally:
        agent.terminate()
        agent.wait()


async def test_killed_session_is_lost_with_a_reason_and_comes_back(own_sshd: Sshd) -> None:
    host = SshHost(own_sshd.spec(), ssh_config=[])
    seen = listen(host)
    await host.connect()
    running = asyncio.ensure_future(host.run("sleep 300"))
    await asyncio.sleep(0.2)
    own_sshd.signal_sessions(signal.SIGKILL)
    with pytest.raises(LinkLost):
        await running
    lost = await until(seen, LinkState.LOST)
    assert lost.reason
    assert lost.retry_in_s is not None
    await until(seen, LinkState.UP, 2)
    assert (await host.run("echo back")).out == "back\n"
    await host.close()


async def test_server_that_went_away_is_waited_for(own_sshd: Sshd) -> None:
    host = SshHost(own_sshd.spec(), ssh_config=[])
    seen = listen(host)
    await host.connect()
    own_sshd.stop()
    await until(seen, LinkState.LOST, 2)
    own_sshd.launch()
    await host.wait_up()
    assert (await host.run("echo back")).out == "back\n"
    await host.close()


async def test_host_key_that_changes_between_two_connections_is_final(own_sshd: Sshd, tmp_path: Path) -> None:
    host = SshHost(own_sshd.spec(), ssh_config=[])
    seen = listen(host)
    await host.connect()
    own_sshd.stop()
    own_sshd.host_key = make_key(tmp_path / "new_host")
    own_sshd.launch()
    failed = await until(seen, LinkState.FAILED)
    assert "not the recorded one" in failed.reason
    with pytest.raises(HostError):
        await host.wait_up()
    await host.close()


async def test_silent_link_is_found_by_its_keepalive(own_sshd: Sshd) -> None:
    host = SshHost(own_sshd.spec(), ssh_config=[], keepalive_s=0.3)
    seen = listen(host)
    await host.connect()
    own_sshd.signal_sessions(signal.SIGSTOP)
    lost = await until(seen, LinkState.LOST)
    assert "keepalive" in lost.reason
    await host.close()


async def test_low_session_limit_is_waited_out(tmp_path: Path) -> None:
    if SSHD_MISSING:
        pytest.skip(SSHD_MISSING)
    with Sshd.start(tmp_path / "sshd", MaxSessions="2") as server:
        host = SshHost(server.spec(), ssh_config=[])
        answers = await asyncio.gather(*(host.run(f"sleep 0.1; echo {i}") for i in range(8)))
        assert [done.out for done in answers] == [f"{i}\n" for i in range(8)]
        await host.close()


async def test_many_hosts_connect_at_once_despite_the_login_limit_of_sshd(sshd: Sshd) -> None:
    hosts = [SshHost(sshd.spec(f"box{i}"), ssh_config=[]) for i in range(24)]
    await asyncio.gather(*(host.connect() for host in hosts))
    await asyncio.gather(*(host.close() for host in hosts))


async def test_jump_host_is_gone_through_and_its_key_checked(sshd: Sshd, own_sshd: Sshd, tmp_path: Path) -> None:
    own_sshd.stop()
    own_sshd.user_key = sshd.user_key
    own_sshd.launch()
    known = tmp_path / "known_hosts"
    jump = f"{own_sshd.user}@127.0.0.1:{own_sshd.port}"
    known.write_text(sshd.host_key_line() + own_sshd.host_key_line())
    host = SshHost(sshd.spec(jump=jump, known_hosts=str(known)), ssh_config=[])
    await host.connect()
    assert (await host.run("echo through")).out == "through\n"
    assert len(own_sshd.sessions()) >= 1
    await host.close()

    known.write_text(sshd.host_key_line())
    error = await failure(SshHost(sshd.spec(jump=jump, known_hosts=str(known)), ssh_config=[]))
    assert isinstance(error, HostKeyUnknown)

    known.write_text(sshd.host_key_line() + sshd.host_key_line(f"[127.0.0.1]:{own_sshd.port}"))
    error = await failure(SshHost(sshd.spec(jump=jump, known_hosts=str(known)), ssh_config=[]))
    assert isinstance(error, HostKeyChanged)


async def test_ssh_config_is_honoured_but_not_its_command_and_terminal(
    sshd: Sshd, own_sshd: Sshd, tmp_path: Path
) -> None:
    own_sshd.stop()
    own_sshd.user_key = sshd.user_key
    own_sshd.launch()
    known = tmp_path / "known_hosts"
    known.write_text(sshd.host_key_line() + own_sshd.host_key_line())
    (tmp_path / "more.conf").write_text(f"Host *\n  IdentityFile {sshd.user_key}\n  UserKnownHostsFile {known}\n")
    config = tmp_path / "config"
    config.write_text(
        f"Include {tmp_path}/more.conf\n"
        f"Host gate\n  HostName 127.0.0.1\n  Port {own_sshd.port}\n"
        f"Match originalhost gpu*\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {sshd.user}\n"
        "  ProxyJump gate\n  RemoteCommand tmux new\n  RequestTTY force\n"
    )
    host = SshHost(sshd.spec().__class__(name="gpu7"), ssh_config=[config])
    done = await host.run("tty; echo $0")
    assert "not a tty" in done.out
    assert own_sshd.sessions()
    await host.close()


async def test_broken_ssh_config_names_the_line(sshd: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  Port twenty\n")
    error = await failure(SshHost(sshd.spec(), ssh_config=[config]))
    assert "line 2" in error.message


@pytest.mark.parametrize("shell", ["bash", "dash", "fish", "tcsh", "zsh"])
async def test_any_login_shell_with_a_noisy_start_runs_scripts(shell: str, sshd: Sshd, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine")
    # What sshd does: LOGIN_SHELL -c COMMAND. The shell's own start-up noise comes before.
    fake = tmp_path / "login"
    fake.write_text(
        f"#!/bin/sh\necho 'Welcome! \\033[31m'; echo motd >&2\nexec {program} -c \"$SSH_ORIGINAL_COMMAND\"\n"
    )
    fake.chmod(0o755)
    with Sshd.start(tmp_path / "sshd", user_key=sshd.user_key, ForceCommand=str(fake)) as server:
        host = SshHost(server.spec(), ssh_config=[])
        done = await host.run("printf '%s\\n' 'a \"b\" !c $d'; echo e >&2; exit 5")
        assert (done.stdout, done.stderr, done.status) == (b'a "b" !c $d\n', b"e\n", 5)
        async with host.stream("echo one; echo two") as chunks:
            assert b"".join([chunk async for chunk in chunks]) == b"one\ntwo\n"
        await host.close()


async def test_account_without_a_shell_says_what_the_host_said(sshd: Sshd, tmp_path: Path) -> None:
    fake = tmp_path / "nologin"
    fake.write_text("#!/bin/sh\necho 'This account is currently not available.'\nexit 1\n")
    fake.chmod(0o755)
    with Sshd.start(tmp_path / "sshd", user_key=sshd.user_key, ForceCommand=str(fake)) as server:
        host = SshHost(server.spec(), ssh_config=[])
        with pytest.raises(HostError, match="currently not available"):
            await host.run("true")
        await host.close()


def test_waits_grow_to_half_a_minute_and_are_spread() -> None:
    assert [backoff_s(n, jitter=0.5) for n in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert backoff_s(3, jitter=0.0) == 6
    assert backoff_s(3, jitter=1.0) == 10
    assert all(1 <= backoff_s(n, jitter=j) <= 30 for n in (0, 1, 50, 10_000) for j in (0.0, 0.5, 1.0))

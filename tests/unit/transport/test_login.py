"""Logins that OpenSSH cannot be asked for without changing the machine's accounts: asyncssh's own server stands in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from tokpit.domain.hostspec import HostSpec
from tokpit.domain.records import LinkState
from tokpit.errors import AuthFailed
from tokpit.transport.ssh import SshHost


class PasswordServer(asyncssh.SSHServer):
    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return password == "let me in"


class CodeServer(asyncssh.SSHServer):
    """Asks two questions, as a second factor does."""

    def kbdint_auth_supported(self) -> bool:
        return True

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> object:
        return "", "", "", [("Pin: ", False), ("Code: ", True)]

    def validate_kbdint_response(self, username: str, responses: list[str]) -> bool:
        return responses == ["1234", "567"]


@pytest.fixture(params=[PasswordServer, CodeServer])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HostSpec]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    acceptor = await asyncssh.create_server(request.param, "127.0.0.1", 0, server_host_keys=[key])
    known = tmp_path / "known_hosts"
    port = acceptor.get_port()
    known.write_text(f"[127.0.0.1]:{port} {key.export_public_key().decode()}")
    yield HostSpec(name=request.param.__name__, address="127.0.0.1", port=port, user="me", known_hosts=str(known))
    acceptor.close()
    await acceptor.wait_closed()


@pytest.fixture(autouse=True)
def no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


async def test_questions_of_the_server_go_to_the_user(server: HostSpec) -> None:
    asked: list[str] = []

    async def answer(kind: str, question: str) -> str | None:
        asked.append(question)
        assert kind == "password"
        return next(reply for word, reply in ANSWERS.items() if word in question)

    host = SshHost(server, prompt=answer, ssh_config=[])
    await host.connect()
    assert host.link.state is LinkState.UP
    assert len(asked) == (1 if server.name == "PasswordServer" else 2)
    await host.close()


ANSWERS = {"Password": "let me in", "Pin": "1234", "Code": "567"}


async def test_wrong_answer_is_asked_again_and_then_given_up(server: HostSpec) -> None:
    asked: list[str] = []

    async def answer(kind: str, question: str) -> str | None:
        asked.append(question)
        return "guess" if len(asked) < 3 else None

    host = SshHost(server, prompt=answer, ssh_config=[])
    with pytest.raises(AuthFailed):
        await host.connect()
    assert len(asked) >= 3
    assert host.link.state is LinkState.FAILED
    await host.close()


async def test_nobody_to_ask_is_a_failed_login_at_once(server: HostSpec) -> None:
    host = SshHost(server, ssh_config=[])
    with pytest.raises(AuthFailed):
        await host.connect()
    await host.close()


async def test_password_is_kept_for_reconnects(server: HostSpec) -> None:
    asked: list[str] = []

    async def answer(kind: str, question: str) -> str | None:
        asked.append(question)
        return next(reply for word, reply in ANSWERS.items() if word in question)

    host = SshHost(server, prompt=answer, ssh_config=[])
    await host.connect()
    count = len(asked)
    changes: list[LinkState] = []
    host.on_link(lambda record: changes.append(record.state))
    assert host._connection is not None
    host._connection.abort()
    while host.link.state is LinkState.UP:
        await host._changed.wait()
    await host.wait_up()
    assert changes == [LinkState.LOST, LinkState.CONNECTING, LinkState.UP]
    assert len(asked) == count
    await host.close()

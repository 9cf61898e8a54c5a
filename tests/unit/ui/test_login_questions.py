"""What a login needs is asked for in the console: host keys, passphrases and passwords, against a real OpenSSH."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from console_screen import console, rows, shows, until
from sshd import ACCOUNTS_MISSING, SSHD_MISSING, Account, Sshd, make_key
from tokpit.config.inventory import Inventory
from tokpit.domain.hostspec import HostSpec
from tokpit.ops.session import Session

pytestmark = pytest.mark.skipif(bool(SSHD_MISSING), reason=SSHD_MISSING)


def session_on(spec: HostSpec, tmp_path: Path) -> Session:
    session = Session(Inventory(hosts={spec.name: spec}), history_path=tmp_path / "history.sqlite")
    session.add_host(spec.name)
    return session


async def type_in(pilot: Any, text: str) -> None:
    pilot.app.screen.query_one("#answer", Input).value = text
    await pilot.press("enter")


async def test_fingerprint_then_passphrase_are_asked_and_the_link_comes_up(tmp_path: Path) -> None:
    key = make_key(tmp_path / "locked", passphrase="open sesame")
    with Sshd.start(tmp_path / "sshd", user_key=key) as server:
        spec = server.spec("box", known_hosts=str(tmp_path / "known"))
        printed = subprocess.run(["ssh-keygen", "-lf", str(server.host_key)], capture_output=True, text=True).stdout
        async with session_on(spec, tmp_path) as session, console(session) as pilot:
            shown = await shows(pilot, "Unknown host key", "Compare it")
            assert printed.split()[1] in shown.replace("\n", "").replace(" ", "").replace("│", "")
            await pilot.click("#go")
            await shows(pilot, "Key passphrase", str(key.name))
            await type_in(pilot, "wrong")
            await shows(pilot, "once more")
            await type_in(pilot, "open sesame")
            await until(pilot, lambda: "● up" in rows(pilot)[0])
    assert (tmp_path / "known").read_text() == server.host_key_line()


async def test_a_refused_fingerprint_ends_the_attempt_and_says_how_to_go_on(tmp_path: Path) -> None:
    with Sshd.start(tmp_path / "sshd") as server:
        spec = server.spec("box", known_hosts=str(tmp_path / "known"))
        async with session_on(spec, tmp_path) as session, console(session) as pilot:
            await shows(pilot, "Unknown host key")
            await pilot.press("escape")
            await until(pilot, lambda: "✗ failed" in rows(pilot)[0] and "first contact" in rows(pilot)[1])
    assert not (tmp_path / "known").exists()


@pytest.mark.skipif(bool(ACCOUNTS_MISSING), reason=ACCOUNTS_MISSING)
async def test_a_password_is_asked_until_it_is_right_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    hashed = subprocess.run(["openssl", "passwd", "-6", "let me in"], capture_output=True, text=True, check=True)
    account = Account(password_hash=hashed.stdout.strip())
    with Sshd.start(tmp_path / "sshd", account=account, PasswordAuthentication="yes", PermitRootLogin="yes") as server:
        spec = server.spec("box", identity_files=())
        async with session_on(spec, tmp_path) as session, console(session) as pilot:
            await shows(pilot, "Password for 127.0.0.1")
            await type_in(pilot, "guess")
            await shows(pilot, "not accepted, once more")
            await pilot.press(*"let")
            assert "let" not in "\n".join(rows(pilot))
            await type_in(pilot, "let me in")
            await until(pilot, lambda: "● up" in rows(pilot)[0])

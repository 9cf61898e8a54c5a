"""Bad input at each edge: one clear sentence on stderr, a non-zero exit code, no traceback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sshd import Sshd


class Shell:
    """`tokpit` as a user runs it, with folders of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TOKPIT")}
        for name in ("CONFIG", "STATE", "CACHE"):
            self.env[f"TOKPIT_{name}_DIR"] = str(folder / name.lower())

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tokpit", *words]
        return subprocess.run(
            argv, env=self.env, capture_output=True, text=True, timeout=50, check=False, stdin=subprocess.DEVNULL
        )

    def fails(self, code: int, *words: str) -> str:
        """Run it, check that it failed as said, and return stderr."""
        done = self(*words)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture
def tokpit(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that nobody listens on, kept from others while the test runs."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def test_unknown_host(tokpit: Shell) -> None:
    said = tokpit.fails(3, "ps", "no-such-host.invalid")
    assert "no-such-host.invalid" in said


def test_nothing_listens_on_the_ssh_port(tokpit: Shell, dead_port: int) -> None:
    assert "refused" in tokpit.fails(3, "ps", f"127.0.0.1:{dead_port}")


def test_refused_key(tokpit: Shell, sshd: Sshd, tmp_path: Path) -> None:
    key = tmp_path / "other_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    inventory = tmp_path / "hosts.toml"
    inventory.write_text(
        f'[hosts.box]\naddress = "127.0.0.1"\nport = {sshd.port}\nuser = "{sshd.user}"\n'
        f'identity_files = ["{key}"]\nknown_hosts = "{sshd.known_hosts}"\n'
    )
    tokpit.env.pop("SSH_AUTH_SOCK", None)
    said = tokpit.fails(3, "--inventory", str(inventory), "ps", "box")
    assert "key" in said


def test_unknown_host_key_is_not_trusted(tokpit: Shell, sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    inventory = tmp_path / "hosts.toml"
    inventory.write_text(
        f'[hosts.box]\naddress = "127.0.0.1"\nport = {sshd.port}\nuser = "{sshd.user}"\n'
        f'identity_files = ["{sshd.user_key}"]\nknown_hosts = "{tmp_path / "empty"}"\n'
    )
    assert "SHA256:" in tokpit.fails(3, "--inventory", str(inventory), "ps", "box")


def test_no_such_server(tokpit: Shell, dead_port: int) -> None:
    said = tokpit.fails(4, "sweep", f"local:{dead_port}", "-c", "1")
    assert "server" in said


@pytest.mark.parametrize("levels", ["", "0", "4,x", "8-4", "-1", "1,,2"])
def test_bad_level_list(tokpit: Shell, levels: str) -> None:
    said = tokpit.fails(2, "sweep", "http://127.0.0.1:9", "-c", levels or " ")
    assert said.startswith("tokpit: ")


def test_a_dead_url(tokpit: Shell, dead_port: int) -> None:
    said = tokpit.fails(7, "sweep", f"http://127.0.0.1:{dead_port}", "-c", "1")
    assert "does not answer" in said


def test_unwritable_state_folder(tokpit: Shell, dead_port: int) -> None:
    Path(tokpit.env["TOKPIT_STATE_DIR"]).write_text("a file where the folder should be")
    assert tokpit.env["TOKPIT_STATE_DIR"] in tokpit.fails(8, "runs")


def test_no_such_run(tokpit: Shell) -> None:
    assert "zzz" in tokpit.fails(2, "runs", "zzz")


def test_broken_inventory(tokpit: Shell, tmp_path: Path) -> None:
    inventory = tmp_path / "bad.toml"
    inventory.write_text('[hosts.a]\nadress = "x"\n')
    said = tokpit.fails(2, "--inventory", str(inventory), "hosts")
    assert "adress" in said
    assert "address" in said
    assert str(inventory) in said


def test_port_in_use(tokpit: Shell, tmp_path: Path) -> None:
    binary = tmp_path / "bin" / "llama-server"
    binary.parent.mkdir()
    binary.write_text('#!/bin/sh\necho "version: 9999 (abc)" >&2\n')
    binary.chmod(0o755)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = tokpit.fails(
            5, "launch", "local", "llamacpp", "--yes", "--program", str(binary), "--model", str(tmp_path / "m.gguf"),
            "--port", str(port),
        )  # fmt: skip
    assert str(port) in said


def test_unknown_engine(tokpit: Shell) -> None:
    assert "sglang" in tokpit.fails(2, "launch", "local", "tgi", "--model", "m", "--yes")


def test_engine_that_is_not_installed(tokpit: Shell) -> None:
    tokpit.env["PATH"] = "/usr/bin:/bin"
    said = tokpit.fails(5, "launch", "local", "vllm", "--model", "m", "--yes", "--program", "/opt/none/bin/vllm serve")
    assert "/opt/none/bin/vllm" in said


def test_nobody_to_ask_for_consent(tokpit: Shell) -> None:
    process = subprocess.Popen(["sleep", "30"])
    try:
        assert tokpit("stop", f"local/{process.pid}").returncode != 0
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_read_only_mode_refuses_a_launch(tokpit: Shell) -> None:
    said = tokpit.fails(1, "--read-only", "launch", "local", "vllm", "--model", "m", "--yes")
    assert "read-only" in said


def test_the_cockpit_needs_a_terminal(tokpit: Shell) -> None:
    assert "terminal" in tokpit.fails(2, "local")


def test_a_log_that_does_not_exist(tokpit: Shell) -> None:
    assert "/no/such.log" in tokpit.fails(2, "parse-log", "/no/such.log")


def test_ps_of_this_machine_without_servers_is_an_empty_list(tokpit: Shell) -> None:
    done = tokpit("ps", "local", "--json")
    assert done.returncode == 0
    assert set(json.loads(done.stdout)) == {"servers", "orphans", "errors"}

"""Chains of jump hosts with each key checked, and certificates of users and hosts, with real OpenSSH servers."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sshd import SSHD_MISSING, Sshd, make_key
from tokpit.domain.hostspec import HostSpec
from tokpit.errors import AuthFailed, HostError, HostKeyChanged, HostKeyUnknown
from tokpit.transport.ssh import SshHost

pytestmark = pytest.mark.skipif(bool(SSHD_MISSING), reason=SSHD_MISSING)


@contextlib.contextmanager
def chain(tmp_path: Path) -> Iterator[tuple[Sshd, Sshd, Sshd]]:
    """Two gates and a host, with one key for all of them."""
    key = make_key(tmp_path / "me")
    with (
        Sshd.start(tmp_path / "outer", user_key=key) as outer,
        Sshd.start(tmp_path / "inner", user_key=key) as inner,
        Sshd.start(tmp_path / "gpu", user_key=key) as gpu,
    ):
        yield outer, inner, gpu


def config_for(tmp_path: Path, outer: Sshd, inner: Sshd, gpu: Sshd, known: Path) -> list[Path]:
    """ssh_config as people write it: the host behind `inner`, which is behind `outer`; ports are not 22."""
    file = tmp_path / "config"
    file.write_text(
        f"Host *\n  IdentityFile {gpu.user_key}\n  UserKnownHostsFile {known}\n  User {gpu.user}\n"
        f"Host outer\n  HostName 127.0.0.1\n  Port {outer.port}\n"
        f"Host inner\n  HostName 127.0.0.1\n  Port {inner.port}\n  ProxyJump outer\n"
        f"Host gpu7\n  HostName 127.0.0.1\n  Port {gpu.port}\n  ProxyJump inner\n"
    )
    return [file]


async def refusal(host: SshHost) -> HostError:
    with pytest.raises(HostError) as caught:
        await host.connect()
    await host.close()
    return caught.value


async def test_a_chain_is_gone_through_and_an_unknown_or_changed_key_is_told_with_its_hop(tmp_path: Path) -> None:
    with chain(tmp_path) as (outer, inner, gpu):
        known = tmp_path / "known_hosts"
        files = config_for(tmp_path, outer, inner, gpu, known)
        lines = [server.host_key_line() for server in (outer, inner, gpu)]
        known.write_text("".join(lines))
        host = SshHost(HostSpec(name="gpu7"), ssh_config=files)
        assert (await host.run("echo through")).out == "through\n"
        assert outer.sessions()
        assert inner.sessions()
        await host.close()

        for at, (server, hop) in enumerate(((outer, "outer"), (inner, "inner"), (gpu, "gpu7"))):
            known.write_text("".join(line for n, line in enumerate(lines) if n != at))
            error = await refusal(SshHost(HostSpec(name="gpu7"), ssh_config=files))
            assert isinstance(error, HostKeyUnknown)
            assert error.message.startswith(f"{hop}: "), error.message
            other = lines[(at + 1) % 3].split(" ", 1)[1]
            known.write_text("".join(lines[:at] + lines[at + 1 :]) + f"[127.0.0.1]:{server.port} {other}")
            error = await refusal(SshHost(HostSpec(name="gpu7"), ssh_config=files))
            assert isinstance(error, HostKeyChanged)
            assert error.message.startswith(f"{hop}: "), error.message
            assert "ssh-keygen -R" in error.hint


async def test_each_unknown_hop_is_asked_for_with_its_own_fingerprint(tmp_path: Path) -> None:
    with chain(tmp_path) as (outer, inner, gpu):
        known = tmp_path / "known_hosts"
        asked: list[str] = []

        async def agree(kind: str, question: str) -> str | None:
            asked.append(question)
            return "yes"

        jump = f"{outer.user}@127.0.0.1:{outer.port},{inner.user}@127.0.0.1:{inner.port}"
        host = SshHost(gpu.spec(jump=jump, known_hosts=str(known)), prompt=agree, ssh_config=[])
        await host.connect()
        await host.close()
        assert [str(server.port) in question for server, question in zip((outer, inner, gpu), asked, strict=True)] == [
            True,
            True,
            True,
        ]
        for server, question in zip((outer, inner, gpu), asked, strict=True):
            printed = subprocess.run(["ssh-keygen", "-lf", str(server.host_key)], capture_output=True, text=True)
            assert printed.stdout.split()[1] in question
        assert known.read_text() == "".join(server.host_key_line() for server in (outer, inner, gpu))


def sign(ca: Path, key: Path, *words: str) -> Path:
    """The certificate of a key, made by ssh-keygen."""
    subprocess.run(["ssh-keygen", "-q", "-s", str(ca), "-I", "test", *words, f"{key}.pub"], check=True)
    return key.with_name(key.name + "-cert.pub")


async def test_a_users_certificate_beside_its_key_or_named_in_ssh_config_is_used(tmp_path: Path) -> None:
    ca, stranger, mine = make_key(tmp_path / "ca"), make_key(tmp_path / "stranger"), make_key(tmp_path / "mine")
    with Sshd.start(tmp_path / "sshd", user_key=stranger, TrustedUserCAKeys=f"{ca}.pub") as server:
        assert isinstance(
            await refusal(SshHost(server.spec(identity_files=(str(mine),)), ssh_config=[])), AuthFailed
        ), "the key itself is not known there"
        certificate = sign(ca, mine, "-n", server.user, "-V", "+1h")
        host = SshHost(server.spec(identity_files=(str(mine),)), ssh_config=[])
        assert (await host.run("echo in")).out == "in\n"
        await host.close()

        certificate.rename(tmp_path / "elsewhere-cert.pub")
        config = tmp_path / "config"
        config.write_text(f"Host *\n  IdentityFile {mine}\n  CertificateFile {tmp_path}/elsewhere-cert.pub\n")
        host = SshHost(server.spec(identity_files=()), ssh_config=[config])
        assert (await host.run("echo in")).out == "in\n"
        await host.close()


async def test_a_hosts_certificate_is_believed_by_its_authority_alone(tmp_path: Path) -> None:
    ca, other = make_key(tmp_path / "ca"), make_key(tmp_path / "other")
    with Sshd.start(tmp_path / "sshd") as server:
        server.stop()
        certificate = sign(ca, server.host_key, "-h", "-n", "127.0.0.1", "-V", "+1h")
        server.options = {"HostCertificate": str(certificate)}
        server.launch()

        def trust(key: Path) -> None:
            server.write_known_hosts(f"@cert-authority [127.0.0.1]:* {Path(f'{key}.pub').read_text()}")

        trust(ca)
        host = SshHost(server.spec(), ssh_config=[])
        assert (await host.run("echo in")).out == "in\n"
        await host.close()
        trust(other)
        assert isinstance(await refusal(SshHost(server.spec(), ssh_config=[])), HostKeyUnknown)

"""A throwaway OpenSSH server on loopback: own keys, own known_hosts, no touch of the machine's SSH set-up.

Use `with Sshd.start(folder) as server:` and `server.spec("name")`, or the fixtures in tests/unit/transport/conftest.py.
Works as root and as a plain user (who can then log in as himself only). `SSHD_MISSING` is the reason to skip, or "".

With `account=Account(...)` the daemon sees one more account, with a login shell or a password of its own, through
nss_wrapper (cwrap.org): no account of the machine is touched. `ACCOUNTS_MISSING` is the reason to skip, or "".
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tokpit.transport.base import HostSpec


def find_sshd() -> str | None:
    """The sshd program; it insists on being started by its full path."""
    for folder in ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/sbin"):
        if os.access(f"{folder}/sshd", os.X_OK):
            return f"{folder}/sshd"
    return shutil.which("sshd")


def _missing() -> str:
    if find_sshd() is None:
        return "no sshd on this machine (Debian: apt-get install openssh-server)"
    if shutil.which("ssh-keygen") is None:
        return "no ssh-keygen on this machine"
    return ""


SSHD_MISSING = _missing()


def _wrapper() -> Path | None:
    return next((path for top in ("/usr/lib", "/usr/lib64") for path in Path(top).glob("**/libnss_wrapper.so")), None)


NSS_WRAPPER = _wrapper()
ACCOUNTS_MISSING = SSHD_MISSING or (
    "" if NSS_WRAPPER else "no nss_wrapper on this machine (Debian: apt-get install libnss-wrapper)"
)


@dataclass(frozen=True)
class Account:
    """An account that only the daemon of a test knows. `password_hash`: as `openssl passwd -6` prints it."""

    name: str = "ops"
    shell: str = "/bin/sh"
    password_hash: str = "*"

    def environment(self, folder: Path, home: Path) -> dict[str, str]:
        """What makes a daemon see the account; its uid is that of the tests."""
        assert NSS_WRAPPER is not None, ACCOUNTS_MISSING
        mine = f"{os.getuid()}:{os.getgid()}"
        (folder / "passwd").write_text(
            f"{self.name}:{self.password_hash}:{mine}::{home}:{self.shell}\n"
            "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
        )
        (folder / "group").write_text(f"{self.name}:x:{os.getgid()}:\nnogroup:x:65534:\n")
        return {
            "LD_PRELOAD": str(NSS_WRAPPER),
            "NSS_WRAPPER_PASSWD": str(folder / "passwd"),
            "NSS_WRAPPER_GROUP": str(folder / "group"),
        }


def free_port() -> int:
    """A loopback port that is free right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def make_key(path: Path, *, passphrase: str = "") -> Path:
    """A fresh ed25519 key pair; the private half is at `path`."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", path.stem, "-f", str(path)], check=True
    )
    return path


@dataclass
class Sshd:
    """A running server and what a client needs to reach it."""

    folder: Path
    port: int
    user: str
    user_key: Path
    host_key: Path
    known_hosts: Path
    log_path: Path
    options: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextlib.contextmanager
    def start(
        cls,
        folder: Path,
        *,
        user_key: Path | None = None,
        port: int | None = None,
        account: Account | None = None,
        **options: str,
    ) -> Iterator[Sshd]:
        """Run a server in `folder`; `options` are lines of sshd_config, e.g. MaxSessions="2"."""
        folder.mkdir(parents=True, exist_ok=True)
        home = folder / "home"
        home.mkdir(exist_ok=True)
        server = cls(
            folder=folder,
            port=port or free_port(),
            user=account.name if account else getpass.getuser(),
            user_key=user_key or make_key(folder / "user_ed25519"),
            host_key=make_key(folder / "host_ed25519"),
            known_hosts=folder / "known_hosts",
            log_path=folder / "sshd.log",
            options=options,
            account=account,
        )
        server.write_known_hosts()
        server.launch()
        try:
            yield server
        finally:
            server.stop()

    @property
    def home(self) -> Path:
        """HOME of remote commands: empty at first, so that no rc file of the machine is read."""
        return self.folder / "home"

    def host_key_line(self, name: str | None = None) -> str:
        """The known_hosts line of this server."""
        kind, key, *_ = self.host_key.with_suffix(".pub").read_text().split()
        return f"{name or f'[127.0.0.1]:{self.port}'} {kind} {key}\n"

    def write_known_hosts(self, text: str | None = None) -> None:
        """Write the client's known_hosts: this server's key, or `text`."""
        self.known_hosts.write_text(self.host_key_line() if text is None else text)

    def launch(self) -> None:
        """Start the daemon and wait until it listens."""
        sshd = find_sshd()
        assert sshd is not None, SSHD_MISSING
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        keys = self.folder / "authorized_keys"
        keys.write_text(self.user_key.with_suffix(".pub").read_text())
        settings = {
            "Port": str(self.port),
            "ListenAddress": "127.0.0.1",
            "HostKey": str(self.host_key),
            "PidFile": str(self.folder / "sshd.pid"),
            "AuthorizedKeysFile": str(keys),
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "UsePAM": "no",
            "StrictModes": "no",
            "PermitRootLogin": "prohibit-password",
            "AllowTcpForwarding": "yes",
            "LogLevel": "VERBOSE",
            "SetEnv": f"HOME={self.home}",
            **self.options,
        }
        config = self.folder / "sshd_config"
        config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        with self.log_path.open("ab") as log:
            env = self.account.environment(self.folder, self.home) if self.account else {}
            self.process = subprocess.Popen(
                [sshd, "-D", "-e", "-f", str(config)], stdout=log, stderr=log, env={**os.environ, **env}
            )
        deadline = time.monotonic() + 10
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"sshd ended at once:\n{self.log_path.read_text()}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                # A connection to a port that nobody listens on may meet itself.
                if probe.getsockname() != probe.getpeername():
                    return
            if time.monotonic() > deadline:
                raise RuntimeError("sshd does not listen")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the daemon and its sessions."""
        if self.process is None:
            return
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        self.process.terminate()
        self.process.wait(10)
        self.process = None

    def sessions(self) -> list[int]:
        """Process ids of the daemon's children: one per connection (and, with privilege separation, theirs)."""
        assert self.process is not None
        found = [self.process.pid]
        for pid in found:
            children = Path(f"/proc/{pid}/task/{pid}/children")
            with contextlib.suppress(OSError):
                for word in children.read_text().split():
                    if "sshd" in Path(f"/proc/{word}/comm").read_text():
                        found.append(int(word))
        return found[1:]

    def signal_sessions(self, number: signal.Signals) -> None:
        """Send a signal to every process that serves a connection, innermost first."""
        for pid in reversed(self.sessions()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def spec(self, name: str = "box", **changes: object) -> HostSpec:
        """How a client reaches this server."""
        fields: dict[str, object] = {
            "name": name,
            "address": "127.0.0.1",
            "user": self.user,
            "port": self.port,
            "identity_files": (str(self.user_key),),
            "known_hosts": str(self.known_hosts),
        }
        return HostSpec(**{**fields, **changes})  # type: ignore[arg-type]  # the caller names fields of HostSpec

"""known_hosts: look a host's key up, tell unknown from changed, write down a key the user agreed to.

asyncssh calls back alike for a host it has never seen and for one whose key changed, so the recorded keys are looked
up here first. Names are matched as OpenSSH does: `[host]:port` for a port other than 22; an entry without the port may
vouch for a key, but its mismatch does not make the key a changed one. Hashed entries match too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import asyncssh

from tokpit.errors import HostError, HostKeyChanged, HostKeyUnknown

Keys = tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey], list[asyncssh.SSHKey]]
"""Trusted host keys, trusted CA keys, revoked keys."""

DEFAULT_PORT = 22


class KnownHosts:
    """The recorded keys of one hop. `files` are read at every lookup; the first is the one written to."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = [path.expanduser() for path in files]
        self._agreed: set[asyncssh.SSHKey] = set()
        self.offered: asyncssh.SSHKey | None = None
        """The key the server offered, if it was not a recorded one."""

    def _load(self) -> asyncssh.SSHKnownHosts:
        known = asyncssh.import_known_hosts("")
        for path in self._files:
            try:
                text = path.read_text("utf-8", "replace")
            except (FileNotFoundError, PermissionError, IsADirectoryError):
                continue
            try:
                known.load(text)
            except ValueError:
                # One bad line must not make every other host unknown.
                for line in text.splitlines():
                    try:
                        known.load(line)
                    except ValueError:
                        continue
        return known

    def _match(self, host: str, port: int | None) -> tuple[Keys, Keys]:
        """The entries under the exact name, and those a key may be accepted by."""
        known = self._load()
        exact_port = port if port and port != DEFAULT_PORT else None
        # The private _match is the lookup without the fall-back to the name without port.
        exact = known._match(host, "", exact_port)
        usable = known.match(host, "", exact_port)
        return (
            (list(exact[0]), list(exact[1]), list(exact[2])),
            (list(usable[0]), list(usable[1]), list(usable[2])),
        )

    def lookup(self, host: str, addr: str, port: int | None) -> Keys:
        """For asyncssh: the CAs and revocations of a host, but none of its keys.

        Keys handed over here would narrow the choice to their kinds, and a server that offers another kind would then
        just close the connection; see vouches() and kinds().
        """
        _, usable = self._match(host, port)
        return [], usable[1], usable[2]

    def kinds(self, host: str, port: int) -> str | None:
        """The algorithms of the recorded keys, to be preferred as OpenSSH does; None: no preference."""
        exact, usable = self._match(host, port)
        algorithms = dict.fromkeys(name.decode() for key in exact[0] for name in key.sig_algorithms)
        return "^" + ",".join(algorithms) if algorithms and not usable[1] else None

    def vouches(self, host: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Whether an entry, with or without the port, or a yes of the user, holds this very key."""
        self.offered = key
        _, usable = self._match(host, port)
        return key in usable[0] or key in self._agreed

    def error(self, name: str, host: str, port: int) -> HostError:
        """Why `offered` was not accepted: HostKeyUnknown or HostKeyChanged."""
        exact, _ = self._match(host, port)
        fingerprint = self.offered.get_fingerprint() if self.offered is not None else "unknown"
        place = entry_name(host, port)
        if self.offered is not None and self.offered in exact[2]:
            return HostKeyChanged(
                f"{name}: the host key {fingerprint} is marked as revoked in known_hosts.",
                hint="Do not connect; ask whoever runs the host.",
            )
        if exact[0]:
            return HostKeyChanged(
                f"{name}: the host key {fingerprint} is not the recorded one.",
                hint=f"If the host was reinstalled, remove the old key: ssh-keygen -R '{place}'",
            )
        return HostKeyUnknown(
            f"{name}: first contact, and its host key {fingerprint} is not in known_hosts.",
            fingerprint=fingerprint,
            hint=f"Compare the fingerprint, then connect once with ssh, or add the key of {place} to known_hosts.",
        )

    def agree(self, host: str, port: int) -> None:
        """Trust `offered` from now on, and write it to the first file where that is possible."""
        key = self.offered
        if key is None:
            return
        self._agreed.add(key)
        if not self._files:
            return
        path = self._files[0]
        line = f"{entry_name(host, port)} {key.export_public_key('openssh').decode().split(' #')[0].strip()}\n"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, 2)
                    if file.read(1) != b"\n":
                        line = "\n" + line
                file.write(line.encode())
        except OSError:
            # A read-only known_hosts: the yes holds for this process only.
            return


def entry_name(host: str, port: int) -> str:
    """The name under which OpenSSH records a host."""
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"

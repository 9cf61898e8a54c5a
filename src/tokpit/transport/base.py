"""The Host protocol: everything tokpit does on a machine goes through it. Two transports: SSH and local."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

import msgspec

from tokpit.domain.hostspec import HostSpec
from tokpit.domain.records import LinkRecord

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Completed", "Dialog", "Host", "HostFactory", "HostSpec", "Prompt", "quote"]


class Completed(msgspec.Struct, frozen=True):
    """A finished remote command: bytes as they came, and the exit status (negative: the signal that ended it)."""

    stdout: bytes
    stderr: bytes
    status: int
    noise: bytes = b""
    """What start-up files of the login shell printed on stdout before the command began."""

    @property
    def out(self) -> str:
        """stdout as text, undecodable bytes replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        """stderr as text, undecodable bytes replaced."""
        return self.stderr.decode("utf-8", "replace")


class Dialog(Protocol):
    """A remote command that is talked to: bytes go to its stdin, which stays open, and its stdout comes back."""

    async def write(self, data: bytes) -> None:
        """Send to stdin, waiting while the far side does not read. Raises LinkLost."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """stdout in chunks as they come, until the command ends. Raises LinkLost if the link breaks first."""
        ...

    @property
    def status(self) -> int | None:
        """The exit status (negative: the signal that ended it) once `chunks` has ended; None before."""
        ...

    @property
    def errors(self) -> str:
        """The last part of stderr as text."""
        ...


class Host(Protocol):
    """One machine. All methods raise HostError subclasses; all are safe to cancel."""

    spec: HostSpec

    @property
    def name(self) -> str:
        """Name of the host as the user knows it."""
        ...

    def now(self) -> float:
        """UTC seconds on this host's clock: real time, scaled from connect on by `spec.clock_factor`."""
        ...

    async def connect(self) -> None:
        """Open the connection if it is not open. Raises ConnectFailed, AuthFailed, HostKeyUnknown, HostKeyChanged."""
        ...

    async def close(self) -> None:
        """Close the connection and end what this side runs over it; servers on the host live on."""
        ...

    def on_link(self, listener: Callable[[LinkRecord], None]) -> Callable[[], None]:
        """Call `listener` at each change of the link's state, until what is returned is called."""
        ...

    async def run(self, script: str, *, stdin: bytes = b"", timeout_s: float = 30.0, check: bool = False) -> Completed:
        """Run a POSIX shell script under /bin/sh whatever the login shell is.

        Raises LinkLost if the link broke, RemoteFailed on timeout, and on a non-zero status if `check` is set.
        """
        ...

    def stream(self, script: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Run a script and give its stdout in chunks as they come; leaving the context ends the remote command.

        The iterator ends when the command ends, and raises LinkLost if the link breaks first.
        """
        ...

    def dialog(self, script: str) -> AbstractAsyncContextManager[Dialog]:
        """Run a script that reads its stdin; leaving the context, or a link that ends, ends its process group.

        A command that must not outlive the link by the two seconds that this may take ends when its stdin does.
        """
        ...

    def lasting_free(self) -> bool:
        """Whether a stream or a dialog would start at once, instead of waiting for another one to end."""
        ...

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Write a file atomically, parents created. Raises RemoteFailed (read-only, disk full)."""
        ...

    def session(self) -> aiohttp.ClientSession:
        """An HTTP session whose connections start on the host: `http://127.0.0.1:PORT/` is the host's own loopback.

        No local port is opened. No total timeout and no connection limit; the caller closes it.
        """
        ...

    def follow(self, path: str, *, offset: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        """The bytes of a file from `offset` on, for ever: pairs of (position of the first byte, bytes).

        Survives truncation and rotation (position goes back to 0) and a lost link (resumes at the next byte after
        reconnecting). Negative `offset`: that many bytes before the end.
        """
        ...


HostFactory = Callable[[HostSpec], Host]

Prompt = Callable[[str, str], Awaitable["str | None"]]
"""Ask the user: kind (`password`, `passphrase`, `hostkey`) and question; None: refused."""


def quote(argv: Sequence[str]) -> str:
    """argv as one POSIX shell command line."""
    import shlex

    return shlex.join(argv)

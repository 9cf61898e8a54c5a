"""One table from what asyncssh and the operating system raise to a sentence a person can act on."""

from __future__ import annotations

import asyncio
import errno
import socket

import asyncssh

from tokpit.domain.text import sanitize
from tokpit.errors import AuthFailed, ConnectFailed, HostError, HostKeyChanged, HostKeyUnknown, LinkLost, UnknownHost

_Row = tuple[type[HostError], str, str]

# First row whose exception type fits. `{host}` is the name the user knows, `{detail}` what the library said.
_TABLE: tuple[tuple[type[BaseException], _Row], ...] = (
    (
        socket.gaierror,
        (UnknownHost, "{host}: the name does not resolve ({detail}).", "Check the spelling, ssh_config and DNS."),
    ),
    (
        ConnectionRefusedError,
        (ConnectFailed, "{host} refused the connection.", "Is sshd running, and is this its port?"),
    ),
    (
        asyncssh.HostKeyNotVerifiable,
        (HostKeyChanged, "{host}: the host key was not accepted ({detail}).", "Compare it with the host's own key."),
    ),
    (
        asyncssh.PermissionDenied,
        (AuthFailed, "{host} accepted no key or password.", "Load the key with ssh-add, or name it as identity file."),
    ),
    (
        asyncssh.KeyEncryptionError,
        (AuthFailed, "{host}: an encrypted key cannot be read ({detail}).", "Load it with ssh-add."),
    ),
    (
        asyncssh.KeyImportError,
        (AuthFailed, "{host}: a key file cannot be read ({detail}).", "Check the identity file."),
    ),
    (
        asyncssh.KeyExchangeFailed,
        (ConnectFailed, "{host}: no common SSH algorithm ({detail}).", "The SSH server is too old or too strict."),
    ),
    (
        asyncssh.ChannelOpenError,
        (ConnectFailed, "{host}: a channel could not be opened ({detail}).", "Forwarding or sessions are limited."),
    ),
    (
        asyncssh.ConnectionLost,
        (LinkLost, "The connection to {host} broke ({detail}).", "It is opened again as soon as the host answers."),
    ),
    (
        asyncssh.DisconnectError,
        (LinkLost, "{host} ended the connection ({detail}).", "The server's log says why."),
    ),
    (
        TimeoutError,
        (
            ConnectFailed,
            "{host} did not answer in time.",
            "Is it up, is this its SSH port, does a firewall let it through?",
        ),
    ),
    (
        asyncio.IncompleteReadError,
        (LinkLost, "The connection to {host} broke in the middle of an answer.", ""),
    ),
)

_GONE: _Row = (LinkLost, "The connection to {host} is closed.", "It is opened again as soon as the host answers.")

_ERRNO: dict[int, _Row] = {
    errno.EHOSTUNREACH: (ConnectFailed, "{host} cannot be reached: no route to the host.", "Is the VPN up?"),
    errno.ENETUNREACH: (ConnectFailed, "{host} cannot be reached: no route to its network.", "Is the VPN up?"),
    errno.ETIMEDOUT: (ConnectFailed, "{host} did not answer in time.", "Is it up, does a firewall let SSH through?"),
    errno.ECONNRESET: (LinkLost, "{host} reset the connection.", "Too many logins at once, or a restart of sshd."),
    errno.EPIPE: (LinkLost, "The connection to {host} broke.", ""),
}


def translate(error: BaseException, host: str) -> HostError:
    """The HostError for `error` on `host`; HostErrors pass unchanged, unknown errors become ConnectFailed."""
    if isinstance(error, HostError):
        return error
    detail = sanitize(str(error)).strip().rstrip(".") or type(error).__name__
    row: _Row | None = next((row for kind, row in _TABLE if isinstance(error, kind)), None)
    if row is None and isinstance(error, OSError) and error.errno is not None:
        row = _ERRNO.get(error.errno)
    if row is None:
        row = (ConnectFailed, "{host}: {detail}.", "")
    if isinstance(error, asyncssh.ChannelOpenError) and "connection closed" in detail.lower():
        row = _GONE
    kind, sentence, hint = row
    return kind(sentence.format(host=host, detail=detail), hint=hint)


def is_final(error: HostError, *, was_up: bool) -> bool:
    """Whether trying again cannot mend it. A name that resolved before is taken for a network that is away."""
    if isinstance(error, UnknownHost):
        return not was_up
    return isinstance(error, AuthFailed | HostKeyUnknown | HostKeyChanged)

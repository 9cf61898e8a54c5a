"""Every error that tokpit raises on purpose: a sentence a person can act on.

TokpitError
├── UsageError            the request itself is off (bad level list, unknown setting)         exit 2
│   └── ConfigError       a configuration, inventory or theme file is off                     exit 2
├── HostError             the host cannot be used                                             exit 3
│   ├── UnknownHost       the name is in no inventory, ssh_config or DNS
│   ├── ConnectFailed     refused, unreachable, timed out
│   ├── AuthFailed        no key or password was accepted
│   ├── HostKeyUnknown    first contact; carries the fingerprint
│   ├── HostKeyChanged    the key is not the recorded one; never overridden
│   ├── LinkLost          the connection broke during the call
│   └── RemoteFailed      a remote command answered with an unexpected status
├── TargetError           no such server, or more than one fits                               exit 4
├── LaunchError           the server cannot be or was not started                             exit 5
│   ├── EndedAtOnce       it was gone at the first look; carries its pid and start time
│   └── StartFailed       it ran and failed; carries the verdict
├── StopError             the process is not the recorded one, or would not end               exit 6
├── LoadError             a sweep cannot run (dead server, nothing measured)                  exit 7
└── StoreError            history, recording or export cannot be read or written              exit 8
"""

from __future__ import annotations


class TokpitError(Exception):
    """Root of the tree. `str(error)` is one sentence; `hint` says what to do; `exit_code` is for the shell."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(TokpitError):
    """The request itself is off."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration, inventory or theme file is off."""


class HostError(TokpitError):
    """The host cannot be used."""

    exit_code = 3


class UnknownHost(HostError):
    """The name is in no inventory and does not resolve."""


class ConnectFailed(HostError):
    """Refused, unreachable or timed out."""


class AuthFailed(HostError):
    """No key or password was accepted."""


class HostKeyUnknown(HostError):
    """First contact with this host; `fingerprint` is the SHA256 form that OpenSSH prints."""

    def __init__(self, message: str, *, fingerprint: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.fingerprint = fingerprint


class HostKeyChanged(HostError):
    """The host's key differs from the recorded one. Never overridden."""


class LinkLost(HostError):
    """The connection broke while it was in use."""


class RemoteFailed(HostError):
    """A remote command ended with an unexpected status; `status` is its exit status (None: unknown)."""

    def __init__(self, message: str, *, status: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class TargetError(TokpitError):
    """No such server, or more than one fits the name."""

    exit_code = 4


class LaunchError(TokpitError):
    """The server cannot be started, or was not."""

    exit_code = 5


class EndedAtOnce(LaunchError):
    """The process was started and was gone at the first look; `start_ticks` as in /proc/PID/stat."""

    def __init__(self, message: str, *, pid: int, pgid: int, start_ticks: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.pid, self.pgid, self.start_ticks = pid, pgid, start_ticks


class StartFailed(LaunchError):
    """The server ran and failed; `code` is the verdict's code and `evidence` its decisive lines."""

    def __init__(self, message: str, *, code: str, evidence: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.evidence = evidence


class StopError(TokpitError):
    """The process is not the recorded one, or it would not end."""

    exit_code = 6


class LoadError(TokpitError):
    """A sweep cannot run or measured nothing."""

    exit_code = 7


class StoreError(TokpitError):
    """History, a recording or an export cannot be read or written."""

    exit_code = 8

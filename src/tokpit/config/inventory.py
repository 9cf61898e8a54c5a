"""The user's hosts: `[hosts.NAME]` tables in hosts.toml or config.toml, and names typed on the command line."""

from __future__ import annotations

import re

from tokpit.errors import UsageError

_BRACKETED = re.compile(r"^\[([^\]]+)\](?::(\d+))?$")


def parse_destination(text: str) -> tuple[str | None, str, int | None]:
    """`host`, `user@host`, `user@host:port`, `[v6]:port` or `ssh://user@host:port` as (user, host, port).

    Raises UsageError.
    """
    word = text.strip()
    rest = word[len("ssh://") :].rstrip("/") if word.lower().startswith("ssh://") else word
    user: str | None = None
    if "@" in rest:
        user, _, rest = rest.rpartition("@")
    port: int | None = None
    if match := _BRACKETED.match(rest):
        host = match[1]
        port = int(match[2]) if match[2] else None
    elif rest.count(":") == 1:
        host, _, digits = rest.partition(":")
        if not digits.isdigit():
            raise UsageError(f"{text!r} names no port after the colon.", hint="Write user@host:22.")
        port = int(digits)
    else:
        host = rest
    if not host or user == "" or re.search(r"[\s/]", host) or host.startswith("-"):
        raise UsageError(f"{text!r} is no host.", hint="Write host, user@host or user@host:port.")
    if port is not None and not 0 < port < 65536:
        raise UsageError(f"{text!r} has no valid port.", hint="Ports are 1 to 65535.")
    return user, host, port

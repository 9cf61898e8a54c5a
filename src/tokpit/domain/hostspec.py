"""How to reach a host."""

from __future__ import annotations

import msgspec


class HostSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a host: an inventory entry, an ssh_config name, `user@host:port`, or `local`."""

    name: str
    address: str | None = None
    """Name given to SSH; ssh_config is applied to it. None: `name`."""
    user: str | None = None
    port: int | None = None
    identity_files: tuple[str, ...] = ()
    known_hosts: str | None = None
    jump: str | None = None
    local: bool = False
    label: str = ""
    """Shown beside the name, e.g. the word for a simulated host."""
    clock_factor: float = 1.0
    """Seconds on the host's clock per real second; 1 on every real machine, higher on a simulated one."""
    programs: dict[str, str] = {}
    """Engine name to the environment folder or program used for launches."""
    group: str = ""

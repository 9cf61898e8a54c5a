"""How to reach a host."""

from __future__ import annotations

import msgspec


class HostSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a host: an inventory entry, an ssh_config name, `user@host:port`, or `local`."""

    name: str
    address: str | None = None
    """Name or address given to SSH, to which ssh_config is applied. Not given: the host's name."""
    user: str | None = None
    """Not given: what ssh_config says, else yours."""
    port: int | None = None
    """Not given: what ssh_config says, else 22."""
    identity_files: tuple[str, ...] = ()
    """Private keys to try beside the agent's."""
    known_hosts: str | None = None
    """File of host keys instead of `~/.ssh/known_hosts`."""
    jump: str | None = None
    """Host to go through: a name of the inventory or `user@host:port`."""
    local: bool = False
    """This machine, without SSH."""
    label: str = ""
    """Shown beside the name, e.g. the word for a simulated host."""
    clock_factor: float = 1.0
    """Seconds on the host's clock per real second; 1 on every real machine, higher on a simulated one."""
    programs: dict[str, str] = {}
    """Engine name to the environment folder or program used for launches."""
    group: str = ""
    """Word that several hosts share."""

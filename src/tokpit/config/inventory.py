"""The user's hosts: `[hosts.NAME]` tables in hosts.toml or config.toml, and names typed on the command line.

A table has the keys of HostSpec except `name`:

    [hosts.gpu1]
    address = "gpu1.lab"
    user = "ops"
    jump = "gateway"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tokpit.config.paths import config_dir
from tokpit.config.tomlfile import convert, read_toml, unknown_key
from tokpit.domain.hostspec import HostSpec
from tokpit.errors import ConfigError, UnknownHost, UsageError

LOCAL_NAMES = ("local", "localhost")

_BRACKETED = re.compile(r"^\[([^\]]+)\](?::(\d+))?$")
_SHORT = re.compile(r"[^A-Za-z0-9_.@:\[\]%~+-]")


class Inventory(msgspec.Struct, frozen=True):
    """Hosts by name, in the order of the files."""

    hosts: Mapping[str, HostSpec] = {}

    def resolve(self, name: str) -> HostSpec:
        """A name, destination or `local` as a host; see resolve()."""
        return resolve(name, self)

    def group(self, name: str) -> tuple[HostSpec, ...]:
        """The hosts of a group."""
        return tuple(spec for spec in self.hosts.values() if spec.group == name)


def load_inventory(path: Path | None = None) -> Inventory:
    """The hosts of one file, or of hosts.toml and config.toml in the user's folder. Raises ConfigError.

    A file that was asked for must exist; the user's own may be missing.
    """
    if path is not None:
        if not path.exists():
            raise ConfigError(f"{path} does not exist.")
        return Inventory(_hosts(path, only_hosts=path.name != "config.toml"))
    found: dict[str, HostSpec] = {}
    for file in (config_dir() / "hosts.toml", config_dir() / "config.toml"):
        for name, spec in _hosts(file, only_hosts=file.name == "hosts.toml").items():
            if name in found:
                raise ConfigError(f"{file}: the host {name!r} is in hosts.toml too.", hint="Keep one of them.")
            found[name] = spec
    return Inventory(found)


def _hosts(path: Path, *, only_hosts: bool) -> dict[str, HostSpec]:
    tables = read_toml(path)
    if only_hosts:
        for key in tables:
            if key != "hosts":
                raise unknown_key(path, "the file", key, ("hosts",))
    hosts = tables.get("hosts", {})
    if not isinstance(hosts, dict):
        raise ConfigError(f"{path}: hosts is no table.", hint="Write one [hosts.NAME] table for each host.")
    found = {}
    for name, values in hosts.items():
        table = f"[hosts.{name}]"
        if _SHORT.search(name):
            raise ConfigError(f"{path}: {table}: a host name has no spaces, slashes or control characters.")
        spec = convert(values, HostSpec, path=path, table=table, name=name)
        if spec.port is not None and not 0 < spec.port < 65536:
            raise ConfigError(f"{path}: {table} at 'port': {spec.port} is no port.")
        if spec.clock_factor <= 0:
            raise ConfigError(f"{path}: {table} at 'clock_factor': must be above 0.")
        if spec.address is not None:
            try:
                parse_destination(spec.address)
            except UsageError as error:
                raise ConfigError(f"{path}: {table} at 'address': {error.message}", hint=error.hint) from error
            if "@" in spec.address or spec.address.lower().startswith("ssh://"):
                raise ConfigError(
                    f"{path}: {table} at 'address': only the host goes here.", hint="Use the keys user and port."
                )
        found[name] = spec
    return found


def resolve(name: str, inventory: Inventory) -> HostSpec:
    """The host a word means: an inventory name, `local`, `user@host:port`, `ssh://...` or a name for ssh_config.

    Raises UnknownHost for a word that can be none of them.
    """
    word = name.strip()
    if word in inventory.hosts:
        return inventory.hosts[word]
    if word.lower() in LOCAL_NAMES:
        return HostSpec(name=word.lower(), local=True)
    try:
        user, host, port = parse_destination(word)
    except UsageError as error:
        raise UnknownHost(error.message, hint=error.hint) from error
    if user is None and port is None:
        return HostSpec(name=host)
    if host in inventory.hosts:
        # The rest of what is known about the host holds, e.g. its jump host.
        known = inventory.hosts[host]
        return msgspec.structs.replace(
            known,
            name=_label(user, host, port),
            address=known.address or host,
            user=user or known.user,
            port=port or known.port,
        )
    return HostSpec(name=_label(user, host, port), address=host, user=user, port=port)


def _label(user: str | None, host: str, port: int | None) -> str:
    shown = f"[{host}]" if ":" in host and port is not None else host
    return (f"{user}@" if user else "") + shown + (f":{port}" if port is not None else "")


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
    if not host or user == "" or host.startswith("-") or _SHORT.search(host) or (user and user.startswith("-")):
        raise UsageError(f"{text!r} is no host.", hint="Write host, user@host or user@host:port.")
    if port is not None and not 0 < port < 65536:
        raise UsageError(f"{text!r} has no valid port.", hint="Ports are 1 to 65535.")
    return user, host, port

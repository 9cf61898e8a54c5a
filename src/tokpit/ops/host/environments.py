"""Environments and models of a host, looked for once and kept for a day in the user's cache folder."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokpit.errors import LaunchError, RemoteFailed
from tokpit.ops.diagnose.searched import searched
from tokpit.probes.environments import BUDGET_S, Environment, Found, environments_script, parse_environments

if TYPE_CHECKING:
    from tokpit.ops.session import Session

log = logging.getLogger(__name__)

KEPT_S = 24 * 3600.0


class Kept(msgspec.Struct, frozen=True):
    """A cached look. `t`: local UTC seconds."""

    t: float
    found: Found


async def find_environments(session: Session, host_name: str, *, fresh: bool = False) -> Found:
    """What can run an engine on a host, and its models. Read-only; about `BUDGET_S` seconds where it is not cached.

    Raises HostError.
    """
    host = await session.connected(host_name)
    path = cache_path(host.name)
    if not fresh and (kept := _read(path)) is not None and 0 <= time.time() - kept.t < KEPT_S:
        return kept.found
    named = [words.split()[0] for words in host.spec.programs.values() if words.strip().startswith("/")]
    answer = await host.run(environments_script(searched(), extra=named), timeout_s=BUDGET_S * 4 + 20.0)
    found = parse_environments(answer.out, searched())
    if answer.status != 0 and found == Found(cut=True):
        raise RemoteFailed(f"{host.name}: environments could not be looked for", status=answer.status)
    if not found.cut:
        _write(path, Kept(time.time(), found))
    return found


def holding(found: Found, engine: str) -> tuple[Environment, ...]:
    """The environments that hold an engine, released builds and newer versions first."""

    def rank(environment: Environment) -> tuple[bool, list[int]]:
        version = environment.engines[engine]
        return "dev" not in version, [int(part) for part in re.findall(r"\d+", version)]

    return tuple(sorted((e for e in found.environments if engine in e.engines), key=rank, reverse=True))


async def suggest(session: Session, host_name: str, engine: str, error: LaunchError) -> LaunchError:
    """The error that an engine was not found, with the places where it is. Raises HostError."""
    places = holding(await find_environments(session, host_name), engine)
    if not places:
        return error
    listed = ", ".join(f"{place.prefix} ({place.engines[engine]})" for place in places[:4])
    return LaunchError(error.message, hint=f"it is in {listed}: add --env-dir {places[0].prefix}")


def cache_path(host_name: str) -> Path:
    """Where the look at a host is kept."""
    from tokpit.config.paths import cache_dir

    return cache_dir() / "hosts" / (re.sub(r"[^A-Za-z0-9._-]", "_", host_name) + ".json")


def _read(path: Path) -> Kept | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return None


def _write(path: Path, kept: Kept) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(kept))
    except OSError as error:
        log.info("the environments of a host could not be cached: %s", error)

"""The flag schema of the engine that is installed on a host, read there once and kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import logging
import posixpath
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tokpit.engines.base import Engine, FlagSpec
from tokpit.engines.flagkit import dump
from tokpit.errors import HostError
from tokpit.transport.base import Host, quote

log = logging.getLogger(__name__)

_FEWEST = 20
"""A help text with fewer flags than this is not one."""


class Stored(msgspec.Struct, frozen=True):
    """A cached schema and the version that it belongs to."""

    version: str
    flags: tuple[FlagSpec, ...]


async def installed_schema(
    host: Host, engine: Engine, program: Sequence[str], version: str | None, *, folder: Path | None = None
) -> tuple[FlagSpec, ...] | None:
    """The schema of the engine in the environment of `program`; None where it cannot be read (a built-in table serves).

    Read from the installed sources, or from what a program of its own prints for `--help`, under a second; cached by
    host, interpreter or program, and version.
    """
    asked = interpreter(program) if engine.interpreted else quote(program)
    if not asked or version is None:
        return None
    if folder is None:
        from tokpit.config.paths import cache_dir

        folder = cache_dir() / "schemas"
    key = hashlib.sha256("\0".join((host.name, engine.name, asked, version)).encode()).hexdigest()[:24]
    path = folder / f"{engine.name}-{key}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Stored).flags
    except (OSError, msgspec.DecodeError):
        pass
    try:
        if engine.interpreted:
            words = quote(dump.command(asked, engine.name, "source"))
            answer = await host.run(words, stdin=dump.script().encode(), timeout_s=60)
            flags = tuple(dump.parse_dump(answer.out)[1])
        else:
            answer = await host.run(f"{asked} --help 2>&1 </dev/null", timeout_s=60)
            flags = tuple(engine.read_help(answer.out))
            if len(flags) < _FEWEST:
                raise ValueError(f"its help names {len(flags)} flags")
    except (HostError, ValueError) as error:
        log.info("no flag schema of %s on %s: %s", engine.name, host.name, error)
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(Stored(version, flags)))
    except OSError as error:
        log.info("the flag schema could not be cached: %s", error)
    return flags


def interpreter(program: Sequence[str]) -> str | None:
    """The Python that runs `program`: its first word, or the one beside a console script; None for a binary by name."""
    if not program:
        return None
    first = program[0]
    if posixpath.basename(first).startswith("python"):
        return first
    folder = posixpath.dirname(first)
    return posixpath.join(folder, "python") if folder else None

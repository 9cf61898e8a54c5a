"""llama-server's process: one process with its full command line."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.engines.base import Recognised
from tokpit.engines.flagkit.process import start_of
from tokpit.engines.llamacpp.flags import from_flags


def recognise(argv: Sequence[str]) -> Recognised | None:
    """See `Engine.recognise`: `llama-server`, or `llama server` of the combined binary, behind any wrapper."""
    start = start_of(argv)
    if start is None or start.module or start.python:
        return None
    end = start.end
    if start.base == "llama" and list(argv[end : end + 1]) == ["server"]:
        end += 1
    elif start.base != "llama-server":
        return None
    return Recognised(engine="llamacpp", settings=from_flags(argv[end:], None), program=tuple(argv[:end]))


def recognise_worker(argv: Sequence[str]) -> str | None:
    """See `Engine.recognise_worker`: llama-server has none."""
    del argv
    return None


def default_program(prefix: str, version: str | None) -> tuple[str, ...]:
    """See `Engine.default_program`."""
    del version
    return (f"{prefix.rstrip('/')}/bin/llama-server",)


def command(program: Sequence[str], flags: Sequence[str]) -> tuple[str, ...]:
    """Program and flags as one command line."""
    return (*program, *flags)

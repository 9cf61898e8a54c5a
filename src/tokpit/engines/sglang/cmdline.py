"""SGLang's processes: what its main process and its workers look like in a process table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokpit.engines.base import Recognised
from tokpit.engines.flagkit.process import Start, beside, start_of
from tokpit.engines.sglang.flags import from_flags

_SUBCOMMAND_MODULES = frozenset({"sglang", "sglang.cli", "sglang.cli.main"})
_TITLE = re.compile(r"^sglang::(scheduler|detokenizer_router|detokenizer|data_parallel_controller|tokenizer_worker)")


def recognise(argv: Sequence[str]) -> Recognised | None:
    """See `Engine.recognise`: `python -m sglang.launch_server` or `sglang serve`, behind any wrapper."""
    start = start_of(argv)
    end = None if start is None else _end(start, argv)
    if start is None or end is None:
        return None
    python = start.python or (beside(start.name) if not start.module else None)
    return Recognised(engine="sglang", settings=from_flags(argv[end:], None), program=tuple(argv[:end]), python=python)


def _end(start: Start, argv: Sequence[str]) -> int | None:
    if start.module and start.name == "sglang.launch_server":
        return start.end
    if not start.module and start.python and start.name.endswith("sglang/launch_server.py"):
        return start.end
    subcommands = start.name in _SUBCOMMAND_MODULES if start.module else start.base == "sglang"
    if subcommands and list(argv[start.end : start.end + 1]) == ["serve"]:
        return start.end + 1
    return None


def recognise_worker(argv: Sequence[str]) -> str | None:
    """See `Engine.recognise_worker`: titles such as `sglang::scheduler_TP0`."""
    found = _TITLE.match(argv[0]) if argv else None
    return found[1].replace("_", "-") if found else None


def default_program(prefix: str, version: str | None) -> tuple[str, ...]:
    """See `Engine.default_program`: the module, which every version has."""
    del version
    return (f"{prefix.rstrip('/')}/bin/python", "-m", "sglang.launch_server")


def command(program: Sequence[str], flags: Sequence[str]) -> tuple[str, ...]:
    """Program and flags as one command line."""
    return (*program, *flags)

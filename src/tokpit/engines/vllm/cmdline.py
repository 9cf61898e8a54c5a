"""vLLM's processes: what its main process and its workers look like in a process table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokpit.engines.base import Recognised
from tokpit.engines.flagkit.process import Start, beside, start_of
from tokpit.engines.vllm.flags import from_flags

API_SERVER = "vllm.entrypoints.openai.api_server"
_SERVER_MODULES = frozenset({API_SERVER, "vllm.entrypoints.api_server"})
_SUBCOMMAND_MODULES = frozenset({"vllm", "vllm.entrypoints.cli.main"})
# The prefix is `VLLM` unless VLLM_PROCESS_NAME_PREFIX says otherwise.
_TITLE = re.compile(r"^[\w.-]+::(EngineCore|Worker|DPCoordinator|APIServer)(?:_|$|\s)")
_ROLES = {
    "EngineCore": "engine-core",
    "Worker": "worker",
    "DPCoordinator": "dp-coordinator",
    "APIServer": "api-server",
}


def recognise(argv: Sequence[str]) -> Recognised | None:
    """See `Engine.recognise`: `vllm serve`, `python -m vllm.entrypoints.openai.api_server` or `vllm-rs serve`."""
    start = start_of(argv)
    end = None if start is None else _end(start, argv)
    if start is None or end is None:
        return None
    script = not start.module and start.base == "vllm"
    python = start.python or (beside(start.name) if script else None)
    return Recognised(
        engine="vllm",
        settings=from_flags(argv[end:], None),
        program=tuple(argv[:end]),
        python=python,
        headless="--headless" in argv[end:],
    )


def _end(start: Start, argv: Sequence[str]) -> int | None:
    if start.module and start.name in _SERVER_MODULES:
        return start.end
    if not start.module and start.python and start.name.endswith("vllm/entrypoints/openai/api_server.py"):
        return start.end
    following = list(argv[start.end : start.end + 1])
    if start.base == "vllm-rs" and not start.module:
        if following == ["serve"]:
            return start.end + 1
        return None if following and not following[0].startswith("-") else start.end
    subcommands = start.name in _SUBCOMMAND_MODULES if start.module else start.base == "vllm"
    return start.end + 1 if subcommands and following == ["serve"] else None


def recognise_worker(argv: Sequence[str]) -> str | None:
    """See `Engine.recognise_worker`: titles such as `VLLM::EngineCore_DP0`, and the Rust front end's child."""
    if not argv:
        return None
    if found := _TITLE.match(argv[0]):
        return _ROLES[found[1]]
    if argv[0].rpartition("/")[2] == "vllm-rs" and list(argv[1:2]) == ["frontend"]:
        return "frontend"
    return None


def command(program: Sequence[str], flags: Sequence[str]) -> tuple[str, ...]:
    """Program and flags as one command line: the old API server module takes the model as `--model` only."""
    start = start_of(program)
    old = start is not None and (start.name in _SERVER_MODULES or start.name.endswith("api_server.py"))
    if old and flags and not flags[0].startswith("-"):
        return (*program, "--model", *flags)
    return (*program, *flags)


def default_program(prefix: str, version: str | None) -> tuple[str, ...]:
    """See `Engine.default_program`: the console script, started by its own interpreter."""
    del version
    folder = f"{prefix.rstrip('/')}/bin"
    return (f"{folder}/python", f"{folder}/vllm", "serve")

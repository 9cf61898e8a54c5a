"""Prints the flag schema of the SGLang or vLLM that this python would run. Sent to a host and run there by its python.

    python - sglang|vllm [parser|source|auto] [FOLDER]

`parser`: import the engine, let it build its own parser, read that (exact; tens of seconds). `source`: read the
engine's source files without importing them (under a second); FOLDER is the one that holds the package. `auto`:
parser, else source. Standard library only, python 3.9 or later; `dump.script` joins it with
`host_source` and `host_vllm` into one text.

Output: one line, `TOKPIT-FLAGS ` and a JSON object {engine, version, route, rows, problems}; a row is {flags, dest,
type, default, choices, nargs, hidden}. Everything else that an import prints goes to standard error. Exit status 1:
no route worked.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from tokpit.engines.flagkit.host_source import Row, row, sglang_sources
from tokpit.engines.flagkit.host_vllm import VllmSources

MARK = "TOKPIT-FLAGS "


def converter(kind: Any, depth: int = 0) -> Any:
    """The name of a converter; wrappers that only add "or None" are looked through."""
    name = getattr(kind, "__name__", None)
    if name in ("_optional_type", "_parse_type", "optional_type", "parse_type") and depth < 4:
        for cell in getattr(kind, "__closure__", None) or ():
            if callable(cell.cell_contents):
                return converter(cell.cell_contents, depth + 1)
    return name or (None if kind is None else str(kind))


def rows_of(parser: argparse.ArgumentParser) -> list[Row]:
    """The rows of a built parser."""
    rows = []
    for action in parser._actions:
        if isinstance(action, (argparse._HelpAction, argparse._VersionAction)):
            continue
        rows.append(
            row(
                list(action.option_strings) or [action.dest],
                action.dest,
                "bool" if action.nargs == 0 else converter(action.type),
                None if action.default is argparse.SUPPRESS else action.default,
                action.choices,
                nargs=action.nargs,
                hidden=action.help is argparse.SUPPRESS,
            )
        )
    return rows


def attribute(name: str, *modules: str) -> Any:
    """The attribute from the first module that has it."""
    problems = []
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            problems.append(str(error))
    raise RuntimeError("; ".join(problems))


def parser_route(engine: str) -> list[Row]:
    """Rows by the engine's own code."""
    if engine == "sglang":
        arguments = attribute("ServerArgs", "sglang.srt.server_args")
        parser = argparse.ArgumentParser(prog="sglang", add_help=False)
        arguments.add_cli_args(parser)
        return rows_of(parser)
    make = attribute(
        "make_arg_parser",
        "vllm.entrypoints.common.cli_args",
        "vllm.entrypoints.launchers.cli_args",
        "vllm.entrypoints.openai.cli_args",
    )
    flexible = attribute("FlexibleArgumentParser", "vllm.utils.argparse_utils", "vllm.utils")
    return rows_of(make(flexible(prog="vllm serve")))


def source_route(engine: str, folder: str | None) -> list[Row]:
    """Rows by reading source files."""
    if folder is None:
        spec = importlib.util.find_spec(engine)
        places = list(spec.submodule_search_locations or []) if spec else []
        if not places:
            raise RuntimeError(engine + " is not installed for this python")
        folder = str(Path(places[0]).parent)
    return sglang_sources(Path(folder)) if engine == "sglang" else VllmSources(Path(folder)).rows()


def main(argv: list[str]) -> int:
    """Entry point."""
    engine = argv[0] if argv else ""
    route = argv[1] if len(argv) > 1 else "auto"
    folder = argv[2] if len(argv) > 2 else None
    if engine not in ("sglang", "vllm") or route not in ("auto", "parser", "source"):
        sys.stderr.write("usage: host_dump.py sglang|vllm [parser|source|auto] [FOLDER]\n")
        return 2
    output = os.dup(1)
    os.dup2(2, 1)
    problems: list[str] = []
    rows: list[Row] = []
    used = ""
    for used in ("parser", "source") if route == "auto" else (route,):
        try:
            rows = parser_route(engine) if used == "parser" else source_route(engine, folder)
            break
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an engine raises anything while it is imported, SystemExit included
            problems.append(used + ": " + type(error).__name__ + ": " + str(error)[:500])
    try:
        version = importlib.metadata.version(engine)
    except importlib.metadata.PackageNotFoundError:
        version = None
    answer = {"engine": engine, "version": version, "route": used, "rows": rows, "problems": problems}
    with os.fdopen(output, "w", encoding="utf-8") as stream:
        stream.write(MARK + json.dumps(answer) + "\n")
    return 0 if rows else 1


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # an imported engine may leave threads that would keep the process alive

"""SGLang 0.5.11's argument parser, built from its flag table: the same names, types, choices, usage text and exit 2."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("sglang_flags.tsv")


def _human_int(text: str) -> int:
    units = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3}
    return int(float(text[:-1]) * units[text[-1]]) if text[-1:] in units else int(text)


_TYPES: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "human_readable_int": _human_int,
    "loads": json.loads,
    "json_list_type": json.loads,
    "nullable_str": lambda text: None if text in {"None", ""} else text,
    "-": str,
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare every flag of the table on `parser`."""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        names, dest, kind, nargs, default, choices = line.split("\t")
        options: dict[str, Any] = {"dest": dest, "default": json.loads(default)}
        if kind == "bool":
            options["action"] = "store_true"
        else:
            options["type"] = _TYPES[kind]
            if nargs != "-":
                options["nargs"] = int(nargs) if nargs.isdigit() else nargs
            if choices != "-":
                options["choices"] = json.loads(choices)
        if dest == "model_path":
            options["required"] = True
        parser.add_argument(*names.split(","), **options)


def parse(argv: list[str], prog: str) -> argparse.Namespace:
    """The namespace of a command line; prints usage and raises SystemExit(2) as argparse does."""
    parser = argparse.ArgumentParser(prog=prog)
    add_flags(parser)
    if "--config" in argv:
        at = argv.index("--config")
        argv = _from_config(Path(argv[at + 1])) + argv[:at] + argv[at + 2 :]
    args = parser.parse_args(argv)
    for short, long in _RENAMED.items():
        setattr(args, short, vars(args).pop(long))
    return args


# SGLang's own ServerArgs keeps these under their short names.
_RENAMED = {"tp_size": "tensor_parallel_size", "pp_size": "pipeline_parallel_size", "dp_size": "data_parallel_size"}


def _from_config(path: Path) -> list[str]:
    """Flags of a flat YAML file (`key: value` lines); command line values come later and win."""
    flags: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        key, colon, value = line.partition(":")
        if not colon or key.lstrip().startswith("#"):
            continue
        value = value.strip().strip("'\"")
        if value.lower() == "false":
            continue
        flags += [f"--{key.strip()}"] if value.lower() == "true" else [f"--{key.strip()}", value]
    return flags

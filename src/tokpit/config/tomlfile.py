"""Strict reading of TOML files: every complaint names the file, the table and the key."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tokpit.errors import ConfigError

T = TypeVar("T", bound=msgspec.Struct)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file; {} if it does not exist. Raises ConfigError."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text.", hint="Save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is no valid TOML: {error}.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error


def unknown_key(path: Path, table: str, key: str, known: Iterable[str]) -> ConfigError:
    """The error for a key that nobody reads, with the nearest one that somebody does."""
    names = sorted(known)
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(names)}."
    return ConfigError(f"{path}: {table} has no key {key!r}.", hint=hint)


def convert(
    values: object, kind: type[T], *, path: Path, table: str, known: Iterable[str] | None = None, **fixed: object
) -> T:
    """A table as a struct; `fixed` are fields that do not come from the file. Raises ConfigError."""
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: {table} is no table.")
    allowed = set(known if known is not None else kind.__struct_fields__) - set(fixed)
    for key in values:
        if key not in allowed:
            raise unknown_key(path, table, key, allowed)
    try:
        return msgspec.convert({**values, **fixed}, kind, strict=True)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        key = where.strip("`").lstrip(".")
        place = f" at {key!r}" if key else ""
        raise ConfigError(f"{path}: {table}{place}: {text[0].lower()}{text[1:]}.") from error

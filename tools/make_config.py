"""Writes docs/configuration.md from the structs that read the files: `python tools/make_config.py`."""

from __future__ import annotations

import ast
import inspect
import sys
import types
import typing
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
PAGE = ROOT / "docs" / "configuration.md"
HEAD = """# Configuration

Made from what reads the files by `python tools/make_config.py`; do not edit it by hand.

tokpit works without any file. What is off in one is said with file, table and key, and the nearest key that exists.

| what | folder | moved by |
| --- | --- | --- |
| `config.toml`, `hosts.toml`, `themes/*.toml`, `gpus.toml` | `~/.config/tokpit` | `TOKPIT_CONFIG_DIR` |
| history, recordings, rings, exports, audit | `~/.local/state/tokpit` | `TOKPIT_STATE_DIR` |
| what can be made again | `~/.cache/tokpit` | `TOKPIT_CACHE_DIR` |

`NO_COLOR` (any value) shows the console without colour. Folders are those of Linux; other systems have their own.
"""
KEYS = """
## `[keys]` in config.toml

Action or command to key: see [keys](keys.md).

```toml
[keys]
"stop_server" = "ctrl+x"
```
"""
EXAMPLE = """
```toml
# config.toml
theme = "tokpit-light"

[alarms]
quiet = "22:00-07:00"
desktop = "osc9"
command = "/usr/local/bin/page-me"
```

The command of an alarm runs without a shell, with `TOKPIT_ALARM_STATE` (`raised`, `ended`), `TOKPIT_ALARM_CODE`,
`TOKPIT_ALARM_SEVERITY`, `TOKPIT_ALARM_SERVER`, `TOKPIT_ALARM_TEXT`, `TOKPIT_ALARM_ACTION` and `TOKPIT_ALARM_SINCE` (UTC
seconds) in its environment. Beside the findings of the rules `LINK_LOST` and `SERVER_GONE` alarm. `tokpit alarms HOST`
watches without a screen.
"""


def render() -> str:
    """The page as it should be."""
    from tokpit.config.settings import AlarmPreferences, Preferences, RecordingPreferences
    from tokpit.domain.hostspec import HostSpec

    parts = [HEAD]
    parts += _table("config.toml", Preferences, without={"keys", "recording", "alarms"})
    parts.append(EXAMPLE)
    parts += _table("`[recording]` in config.toml", RecordingPreferences)
    parts += _table("`[alarms]` in config.toml", AlarmPreferences)
    parts.append(KEYS)
    parts += _table("`[hosts.NAME]` in hosts.toml or config.toml", HostSpec, without={"name"})
    return "".join(parts)


def _table(title: str, struct: type[Any], without: frozenset[str] | set[str] = frozenset()) -> list[str]:
    hints = typing.get_type_hints(struct)
    words = _docstrings(struct)
    rows = [f"\n## {title}\n\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n"]
    for field in msgspec.structs.fields(struct):
        if field.name not in without:
            meaning = " ".join(words.get(field.name, field.name.replace("_", " ")).split())
            rows.append(f"| `{field.name}` | {_type(hints[field.name])} | {_default(field.default)} | {meaning} |\n")
    return rows


def _docstrings(struct: type[Any]) -> dict[str, str]:
    """The string below each field."""
    (body,) = ast.parse(inspect.getsource(struct)).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    name = ""
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name:
            found[name] = str(node.value.value)
            name = ""
    return found


_TYPES = {str: "text", int: "whole number", float: "number", bool: "true / false"}


def _type(hint: Any) -> str:
    if hint in _TYPES:
        return _TYPES[hint]
    arguments = [a for a in typing.get_args(hint) if a not in (type(None), Ellipsis)]
    if typing.get_origin(hint) is tuple:
        return f"list of {_type(arguments[0])}"
    if typing.get_origin(hint) is dict:
        return "table of text"
    if isinstance(hint, types.UnionType):
        return _type(arguments[0])
    return str(hint)


def _default(value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{one}"' for one in value) + "]`"
    if isinstance(value, (str, int, float)):
        return f'`"{value}"`' if isinstance(value, str) else f"`{value:g}`"
    return "–"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")

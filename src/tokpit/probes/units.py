"""systemd units as text: what they start, with which environment, drop-ins applied. Source: systemd.service(5),
systemd.exec(5) (EnvironmentFile=), systemd.unit(5)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import msgspec

_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A service. `notes`: what a person would not see at once, as sentences."""

    path: str
    exec_start: str = ""
    env: dict[str, str] = {}
    env_files: tuple[str, ...] = ()
    working_directory: str = ""
    user: str = ""
    restart: str = ""
    description: str = ""
    drop_ins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`sglang.service`."""
        return self.path.rpartition("/")[2]


def parse_unit_files(
    path: str, text: str, drop_ins: Sequence[tuple[str, str]] = (), files: Mapping[str, str] | None = None
) -> Unit:
    """A unit from its file, its drop-ins (path, text) in order, and the environment files it names (path to text)."""
    values: dict[str, list[str]] = {}
    came: dict[str, str] = {}
    for where, content in ((path, text), *drop_ins):
        for key, value in _directives(content):
            if not value:
                values[key] = []  # an empty assignment resets the list
            else:
                values.setdefault(key, []).append(value)
            if where != path:
                came[key] = where
    env: dict[str, str] = {}
    notes: list[str] = []
    names = [value.lstrip("-") for value in values.get("EnvironmentFile", [])]
    for value in values.get("Environment", []):
        env.update(_pairs(value))
    for name in names:
        read = (files or {}).get(name)
        if read is None:
            continue
        pairs, said = parse_env_file(name, read)
        env.update(pairs)
        notes += said
    for key, where in came.items():
        what = ", ".join(_pairs(values[key][-1])) if key == "Environment" and values.get(key) else ""
        notes.append(f"{key}= {f'({what}) ' if what else ''}comes from the drop-in {where}")
    starts = values.get("ExecStart", [])

    def last(key: str) -> str:
        return values[key][-1] if values.get(key) else ""

    return Unit(
        path=path,
        exec_start=re.sub(r"^[@\-:+!|]+", "", starts[-1]).strip() if starts else "",
        env=env,
        env_files=tuple(names),
        working_directory=last("WorkingDirectory").lstrip("-"),
        user=last("User"),
        restart=last("Restart"),
        description=last("Description"),
        drop_ins=tuple(where for where, _ in drop_ins),
        notes=tuple(notes),
    )


def parse_env_file(path: str, text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables of an EnvironmentFile as systemd takes them, and sentences about lines that it takes otherwise."""
    env: dict[str, str] = {}
    notes = []
    for number, line in enumerate(_joined(text), 1):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        match = _ASSIGNMENT.match(line)
        if match is None:
            word = "`export` is no systemd syntax" if line.startswith("export ") else "it is no NAME=VALUE"
            notes.append(f"{path} line {number} is ignored by systemd: {word}")
            continue
        value = match[2].strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        elif "$" in value:
            notes.append(f"{path} line {number}: ${value.partition('$')[2][:30]} is not expanded by systemd")
        env[match[1]] = value
    return env, tuple(notes)


def _directives(text: str) -> list[tuple[str, str]]:
    found = []
    section = ""
    for line in _joined(text):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            continue
        key, equals, value = line.partition("=")
        if equals and section in ("Service", "Unit", ""):
            found.append((key.strip(), value.strip()))
    return found


def _joined(text: str) -> list[str]:
    """Lines with continuations joined; comments between continued lines are dropped, as systemd does."""
    lines: list[str] = []
    held: str | None = None
    for line in text.splitlines():
        if held is not None and line.lstrip()[:1] in ("#", ";"):
            continue
        whole = line if held is None else f"{held} {line.lstrip()}"
        if whole.endswith("\\"):
            held = whole[:-1].rstrip()
        else:
            lines.append(whole)
            held = None
    return [*lines, held] if held is not None else lines


def _pairs(value: str) -> dict[str, str]:
    try:
        words = shlex.split(value)
    except ValueError:
        words = value.split()
    return {m[1]: m[2] for word in words if (m := _ASSIGNMENT.match(word)) is not None}

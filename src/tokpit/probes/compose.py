"""Compose files: what each service runs, with which environment. Source: the Compose Specification (05-services.md,
12-interpolation.md)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_INTERPOLATED = re.compile(r"\$(?:(\$)|\{([A-Za-z_]\w*)(?:(:?[-+?])([^}]*))?\}|([A-Za-z_]\w*))")


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service. `words`: entry point and command."""

    name: str
    image: str = ""
    words: tuple[str, ...] = ()
    env: dict[str, str] = {}


def parse_compose(text: str, env: Mapping[str, str] | None = None) -> tuple[Service, ...]:
    """The services of a compose file; `env` fills `${NAME}`. Anything that is no such file gives none."""
    import yaml  # a third of a millisecond a line, and seldom needed

    try:
        page = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return ()
    services = page.get("services") if isinstance(page, dict) else None
    if not isinstance(services, dict):
        return ()
    known = dict(env or {})
    return tuple(_services(services, known))


def _services(services: Mapping[Any, Any], known: Mapping[str, str]) -> Iterator[Service]:
    for name, one in services.items():
        if not isinstance(one, dict):
            continue
        words = (*_words(one.get("entrypoint"), known), *_words(one.get("command"), known))
        yield Service(
            name=str(name),
            image=interpolated(str(one.get("image") or ""), known),
            words=words,
            env=_environment(one.get("environment"), known),
        )


def _words(value: object, known: Mapping[str, str]) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(interpolated(str(word), known) for word in value)
    if not isinstance(value, str):
        return ()
    text = interpolated(value, known)
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())


def _environment(value: object, known: Mapping[str, str]) -> dict[str, str]:
    if isinstance(value, list):
        pairs = dict(str(item).partition("=")[::2] for item in value if "=" in str(item))
    elif isinstance(value, dict):
        pairs = {str(key): "" if item is None else str(item) for key, item in value.items()}
    else:
        return {}
    return {key: interpolated(item, known) for key, item in pairs.items()}


def interpolated(text: str, known: Mapping[str, str]) -> str:
    """`${NAME}`, `${NAME:-default}` and `$NAME` filled in; a name that is not known stays as it is written."""

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        name, operator, word = match[2] or match[5], match[3] or "", match[4]
        held = known.get(name)
        there = held is not None and (held != "" or not operator.startswith(":"))
        if operator.endswith("+"):
            return word if there else ""
        if there:
            return held or ""
        return word if operator.endswith("-") else match[0]

    return _INTERPOLATED.sub(value, text)

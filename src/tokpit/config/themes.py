"""Theme files: one TOML file a theme, with the keys of Textual's Theme and a [variables] table.

Order, later ones win: shipped themes, the user's `themes` folder, further folders. Nothing of Textual is imported
here, so colours are checked by their form: `#rgb`, `#rgba`, `#rrggbb`, `#rrggbbaa` or an `ansi_` name.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tokpit.config.paths import config_dir
from tokpit.config.tomlfile import convert, read_toml
from tokpit.errors import ConfigError

_HEX = re.compile(r"#(?:[0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})\Z")
_ANSI = frozenset(
    f"ansi_{bright}{name}"
    for bright in ("", "bright_")
    for name in ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
) | {"ansi_default"}
_RIGHT = "write #rgb, #rrggbb or an ansi_ name"
_SHARE = re.compile(r"\d{1,3}%\Z")
_WORD = re.compile(r"[A-Za-z0-9_$#%. -]*\Z")
_VARIABLE = re.compile(r"[a-z][a-z0-9-]*\Z")

COLOURS = (
    "primary", "secondary", "warning", "error", "success", "accent", "foreground", "background", "surface", "panel",
    "boost",
)  # fmt: skip


class ThemeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a theme file; `Theme(**spec.arguments())` makes Textual's."""

    name: str
    primary: str
    secondary: str | None = None
    warning: str | None = None
    error: str | None = None
    success: str | None = None
    accent: str | None = None
    foreground: str | None = None
    background: str | None = None
    surface: str | None = None
    panel: str | None = None
    boost: str | None = None
    dark: bool = True
    luminosity_spread: float = 0.15
    text_alpha: float = 0.95
    ansi: bool = False
    variables: dict[str, str] = {}

    def arguments(self) -> dict[str, Any]:
        """The fields that are given, by the names of Textual's Theme."""
        values = msgspec.structs.asdict(self)
        return {key: value for key, value in values.items() if value is not None}


class ThemeProblem(msgspec.Struct, frozen=True):
    """Why a file, or one key of it, was not taken."""

    file: Path
    key: str
    why: str

    def __str__(self) -> str:
        place = f"{self.file}: {self.key}" if self.key else str(self.file)
        return f"{place}: {self.why}"


class Themes(msgspec.Struct, frozen=True):
    """The themes that can be used, by name, and what was wrong with the others."""

    themes: dict[str, ThemeSpec]
    problems: tuple[ThemeProblem, ...] = ()


def is_colour(text: str) -> bool:
    """Whether `text` has the form of a colour, with an optional share behind it (`#112233 40%`)."""
    words = text.split(" ")
    if len(words) > 2 or (len(words) == 2 and not _SHARE.match(words[1])):
        return False
    return bool(_HEX.match(words[0])) or words[0] in _ANSI


def read_theme(path: Path) -> tuple[ThemeSpec | None, list[ThemeProblem]]:
    """The theme of a file, or every reason why it is none."""
    try:
        values = read_toml(path)
        spec = convert(values, ThemeSpec, path=path, table="the theme")
    except ConfigError as error:
        why = error.message.removeprefix(f"{path}: ").removeprefix(f"{path} ")
        return None, [ThemeProblem(path, "", f"{why} {error.hint}".strip())]
    problems = []
    for key in COLOURS:
        value = getattr(spec, key)
        if value is not None and not is_colour(value):
            problems.append(ThemeProblem(path, key, f"{value!r} is no colour: {_RIGHT}."))
    for key, value in spec.variables.items():
        if not _VARIABLE.match(key):
            problems.append(ThemeProblem(path, f"variables.{key}", "a variable is written in lower case with dashes."))
        if (value.startswith("#") or key.startswith("chart-")) and not is_colour(value):
            problems.append(ThemeProblem(path, f"variables.{key}", f"{value!r} is no colour: {_RIGHT}."))
        elif not _WORD.match(value):
            problems.append(ThemeProblem(path, f"variables.{key}", f"{value!r} has characters that no style has."))
    if not spec.name.strip():
        problems.append(ThemeProblem(path, "name", "is empty."))
    for key in ("luminosity_spread", "text_alpha"):
        if not 0 <= getattr(spec, key) <= 1:
            problems.append(ThemeProblem(path, key, "must be between 0 and 1."))
    return (None if problems else spec), problems


def shipped_folder() -> Path:
    """Where the themes that come with tokpit lie: inside the package, or beside `src` in a checkout."""
    packaged = Path(str(importlib.resources.files("tokpit"))) / "themes"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "themes"


def load_themes(extra: Iterable[Path] = ()) -> Themes:
    """All themes: shipped ones, those of the user's `themes` folder, those of `extra` folders.

    A file that is off costs only itself. A folder of `extra` that does not exist is a problem too.
    """
    found: dict[str, ThemeSpec] = {}
    problems: list[ThemeProblem] = []
    asked = tuple(extra)
    for folder in (shipped_folder(), config_dir() / "themes", *asked):
        if folder in asked and not folder.is_dir():
            problems.append(ThemeProblem(folder, "", "there is no such folder."))
        for path in sorted(folder.glob("*.toml")):
            spec, off = read_theme(path)
            problems += off
            if spec is not None:
                found[spec.name] = spec
    return Themes(found, tuple(problems))

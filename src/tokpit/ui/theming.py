"""Theme files become Textual themes; every colour is checked before it can crash a running console."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import msgspec
from textual.color import Color, ColorParseError
from textual.theme import Theme

from tokpit.errors import ConfigError

DEFAULT_THEME = "tokpit-dark"
COLOURS = (
    "primary",
    "secondary",
    "warning",
    "error",
    "success",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
)
_OTHER = frozenset({"name", "dark", "boost", "luminosity_spread", "text_alpha", "variables"})


def theme_from(fields: Mapping[str, Any], *, source: str = "theme") -> Theme:
    """A theme from the fields of its file. Raises ConfigError naming the field that is off."""
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{source}: a theme needs a name")
    unknown = sorted(set(fields) - set(COLOURS) - _OTHER)
    if unknown:
        raise ConfigError(f"{source}: unknown field {unknown[0]!r} in theme {name!r}")
    if "primary" not in fields:
        raise ConfigError(f"{source}: theme {name!r} has no primary colour")
    variables = {str(k): str(v) for k, v in dict(fields.get("variables", {})).items()}
    colours = {key: str(fields[key]) for key in COLOURS if key in fields}
    for key, text in [*colours.items(), *((k, v) for k, v in variables.items() if _is_colour(k))]:
        try:
            Color.parse(text.split()[0])
        except (ColorParseError, IndexError):
            raise ConfigError(f"{source}: {key} = {text!r} is not a colour (theme {name!r})") from None
    return Theme(
        name=name,
        variables=variables,
        dark=bool(fields.get("dark", True)),
        luminosity_spread=float(fields.get("luminosity_spread", 0.15)),
        text_alpha=float(fields.get("text_alpha", 0.95)),
        **cast(Any, colours),
    )


def _is_colour(variable: str) -> bool:
    return variable.startswith(("chart-", "log-", "gauge-", "text-dim", "panel-border"))


def shipped_folder() -> Path:
    """Where the themes that come with tokpit lie: in the package, or beside `src` in a checkout."""
    packaged = Path(str(files("tokpit"))) / "themes"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "themes"


def read_themes(folder: Path) -> tuple[list[Theme], list[str]]:
    """The themes of a folder, and one sentence for each file that is off."""
    themes: list[Theme] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            themes.append(theme_from(msgspec.toml.decode(path.read_bytes()), source=path.name))
        except (ConfigError, msgspec.DecodeError, OSError) as error:
            problems.append(str(error) if isinstance(error, ConfigError) else f"{path.name}: {error}")
    return themes, problems


def all_themes(extra: Iterable[Path] = ()) -> tuple[list[Theme], list[str]]:
    """Shipped themes, then those of further folders; a later one of the same name wins."""
    found: dict[str, Theme] = {}
    problems: list[str] = []
    for folder in (shipped_folder(), *extra):
        themes, off = read_themes(folder)
        found.update({theme.name: theme for theme in themes})
        problems += off
    return list(found.values()), problems

"""Theme files become Textual themes, and are read again as they change."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.color import Color, ColorParseError
from textual.theme import Theme

from tokpit.config.paths import config_dir
from tokpit.config.themes import COLOURS, ThemeSpec, load_themes

if TYPE_CHECKING:
    from tokpit.ui.app import TokpitApp

DEFAULT_THEME = "tokpit-dark"
_LOW, _HIGH, _GREYS = 0, 170, (0, 85, 170, 255)
"""Channel values of the sixteen colours as Rich knows them."""
_BEHIND = frozenset({"background", "surface", "panel", "boost", "panel-border", "chart-grid", "gauge-track"})
"""What lies behind words; all else must be told from it."""


def all_themes(extra: Iterable[Path] = (), *, sixteen: bool = False) -> tuple[list[Theme], list[str]]:
    """Shipped themes, the user's, those of further folders; and one sentence for everything that is off in a file.

    `sixteen`: for terminals with that many colours.
    """
    loaded = load_themes(extra)
    themes = [Theme(**(snapped(spec) if sixteen else spec.arguments())) for spec in loaded.themes.values()]
    return themes, [str(problem) for problem in loaded.problems]


def snapped(spec: ThemeSpec) -> dict[str, Any]:
    """A theme's arguments with each colour replaced by the one of sixteen that means the same.

    Taken to the nearest one, most colours of a soft theme become grey, and an orange warning becomes an error's red.
    """
    values = spec.arguments()
    for key in COLOURS:
        if key in values:
            values[key] = _snap(key, values[key], spec.dark)
    values["variables"] = {key: _snap(key, text, spec.dark) for key, text in spec.variables.items()}
    return values


def _snap(key: str, text: str, dark: bool) -> str:
    try:
        color = Color.parse(text.split(" ", maxsplit=1)[0])
    except ColorParseError:
        return text
    hue, full, light = color.hsl
    degrees = hue * 360
    if full * (1 - abs(2 * light - 1)) < 0.15:  # the chroma: what the eye takes for grey
        greys = _GREYS if key in _BEHIND else _GREYS[2:] if dark else _GREYS[:2]
        level = min(greys, key=lambda grey: abs(grey - light * 255))
        return Color(level, level, level).hex
    low, high = (85, 255) if dark else (_LOW, _HIGH)
    if degrees < 25 or degrees >= 335:
        channels = (high, low, low)
    elif degrees < 75:
        channels = (high, high, low) if dark else (_HIGH, 85, _LOW)
    elif degrees < 165:
        channels = (low, high, low)
    elif degrees < (230 if dark else 190):
        channels = (low, high, high)
    elif degrees < 265:
        channels = (low, low, high)
    else:
        channels = (high, low, high)
    return Color(*channels).hex


LOOK_S = 1.0
"""Between two looks at the files."""


class ThemeFiles:
    """The user's own themes: who edits one sees it at once, or what is off in it; the last good one stays till then."""

    def __init__(self, app: TokpitApp, extra: Iterable[Path], *, sixteen: bool, said: Iterable[str]) -> None:
        """`said`: what was off when they were read first."""
        self._app, self._extra, self._sixteen = app, tuple(extra), sixteen
        self._seen, self._said = self._stamps(), set(said)

    def look(self) -> None:
        """Take what has changed since the last look."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        themes, problems = all_themes(self._extra, sixteen=self._sixteen)
        here = self._app.current_theme
        for theme in themes:
            self._app.register_theme(theme)
        self._app.themes_are([theme.name for theme in themes])
        for problem in problems:
            if problem not in self._said:
                self._app.report(problem)
        self._said = set(problems)
        if self._app.current_theme != here:
            self._app.mutate_reactive(type(self._app).theme)

    def _stamps(self) -> dict[Path, tuple[int, int]]:
        found = {}
        for folder in (config_dir() / "themes", *self._extra):
            for path in folder.glob("*.toml"):
                try:
                    status = path.stat()
                except OSError:
                    continue
                found[path] = (status.st_mtime_ns, status.st_size)
        return found

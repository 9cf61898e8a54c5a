"""Style names to terminal styles, resolved once per theme from the theme's own variables."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.color import Color, ColorParseError

SERIES = tuple(f"series-{n}" for n in range(1, 7))
"""Style names of chart series in the order in which they are used."""

ON_CURSOR = "@cursor"
"""Behind a style's name: the same on the cursor's ground."""


class Palette:
    """Styles by name. `fg`, `dim`, `bold`, `title`, `border`, `focus`, `good`, `warn`, `bad`, `series-1`..."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.background = self._color("background", Color(0, 0, 0))
        foreground = self._color("foreground", Color(220, 220, 220))
        dim = self._color("text-dim", foreground.blend(self.background, 0.42))
        border = self._color("panel-border", foreground.blend(self.background, 0.76))
        primary = self._color("primary", foreground)
        accent = self._color("accent", primary)
        bad = self._color("error", foreground)
        warn = self._color("warning", foreground)
        good = self._color("success", foreground)
        cursor = primary.blend(self.background, 0.70)
        self._styles = {
            "fg": self._style(foreground),
            "bold": self._style(foreground, bold=True),
            "dim": self._style(dim),
            "faint": self._style(foreground.blend(self.background, 0.5)),
            "title": self._style(primary, bold=True),
            "border": self._style(border),
            "focus": self._style(primary),
            "accent": self._style(accent),
            "key": self._style(accent, bold=True),
            "good": self._style(good),
            "warn": self._style(warn),
            "bad": self._style(bad),
            "bad-bold": self._style(bad, bold=True),
            "good-bold": self._style(good, bold=True),
            "warn-bold": self._style(warn, bold=True),
            "stale": self._style(dim, italic=True),
            "cursor": Style(color=foreground.rich_color, bgcolor=cursor.rich_color, bold=True),
            "badge": Style(color=self.background.rich_color, bgcolor=accent.rich_color, bold=True),
            "brand": Style(color=self.background.rich_color, bgcolor=primary.rich_color, bold=True),
            "match": Style(color=self.background.rich_color, bgcolor=warn.rich_color),
            "axis": self._style(self._color("chart-axis", dim)),
            "grid": self._style(self._color("chart-grid", foreground.blend(self.background, 0.84))),
            "mark": self._style(self._color("chart-mark", accent)),
            "track": self._style(self._color("gauge-track", foreground.blend(self.background, 0.84))),
            "gauge-low": self._style(self._color("gauge-low", good)),
            "gauge-mid": self._style(self._color("gauge-mid", warn)),
            "gauge-high": self._style(self._color("gauge-high", bad)),
            "log-error": self._style(self._color("log-error", bad)),
            "log-warning": self._style(self._color("log-warning", warn)),
            "log-debug": self._style(self._color("log-debug", dim)),
            "log-number": self._style(self._color("log-number", accent)),
            "log-time": self._style(self._color("log-time", foreground.blend(self.background, 0.58))),
            "log-event": self._style(self._color("log-event", primary)),
        }
        for index, name in enumerate(SERIES):
            fallback = (primary, accent, good, warn, bad, foreground)[index]
            self._styles[name] = self._style(self._color(f"chart-{name}", fallback))

    def __getitem__(self, name: str) -> Style:
        if name.endswith(ON_CURSOR) and name not in self._styles:
            on = Style(bgcolor=self._styles["cursor"].bgcolor)
            self._styles[name] = self._styles[name.removesuffix(ON_CURSOR)] + on
        return self._styles[name]

    def __contains__(self, name: object) -> bool:
        return name in self._styles

    def _color(self, name: str, fallback: Color) -> Color:
        text = self._variables.get(name, "")
        try:
            color = Color.parse(text)
        except (ColorParseError, ValueError):
            return fallback
        return color if color.a == 1 else self.background.blend(color, color.a, 1)

    def _style(self, color: Color, *, bold: bool = False, italic: bool = False) -> Style:
        return Style(
            color=color.rich_color, bgcolor=self.background.rich_color, bold=bold or None, italic=italic or None
        )

"""Style names to terminal styles, resolved once per theme from the theme's own variables."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.color import Color, ColorParseError

SERIES = tuple(f"series-{n}" for n in range(1, 7))
"""Style names of chart series in the order in which they are used."""

ON_CURSOR = "@cursor"
"""Behind a style's name: the same on the cursor's ground."""


def contrast(one: Color, other: Color) -> float:
    """WCAG 2 contrast ratio of two colours, 1 to 21 (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: Color) -> float:
    parts = [part / 255 for part in color.rgb]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


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
        self._foreground, self._cursor = foreground, cursor
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
            base = self._styles[name.removesuffix(ON_CURSOR)]
            self._styles[name] = base + Style(color=self._readable(base).rich_color, bgcolor=self._cursor.rich_color)
        return self._styles[name]

    def __contains__(self, name: object) -> bool:
        return name in self._styles

    def _readable(self, style: Style) -> Color:
        """The style's colour, as near to the text's as the cursor's ground makes needful."""
        color = Color.from_rich_color(style.color) if style.color is not None else self._foreground
        steps = (color.blend(self._foreground, share / 4, 1) for share in range(4))
        return next((one for one in steps if contrast(one, self._cursor) >= 4.5), self._foreground)

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

"""Theme files become Textual themes, and are read again as they change."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from textual.theme import Theme

from tokpit.config.paths import config_dir
from tokpit.config.themes import load_themes

if TYPE_CHECKING:
    from tokpit.ui.app import TokpitApp

DEFAULT_THEME = "tokpit-dark"


def all_themes(extra: Iterable[Path] = ()) -> tuple[list[Theme], list[str]]:
    """Shipped themes, the user's, those of further folders; and one sentence for everything that is off in a file."""
    loaded = load_themes(extra)
    themes = [Theme(**spec.arguments()) for spec in loaded.themes.values()]
    return themes, [str(problem) for problem in loaded.problems]


LOOK_S = 1.0
"""Between two looks at the files."""


class ThemeFiles:
    """The user's own themes: who edits one sees it at once, or what is off in it; the last good one stays till then."""

    def __init__(self, app: TokpitApp, extra: Iterable[Path]) -> None:
        self._app, self._extra = app, tuple(extra)
        self._seen = self._stamps()
        self._said: set[str] = set(all_themes(self._extra)[1]) if self._seen else set()

    def look(self) -> None:
        """Take what has changed since the last look."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        themes, problems = all_themes(self._extra)
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

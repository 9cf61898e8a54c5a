"""Theme files become Textual themes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from textual.theme import Theme

from tokpit.config.themes import load_themes

DEFAULT_THEME = "tokpit-dark"


def all_themes(extra: Iterable[Path] = ()) -> tuple[list[Theme], list[str]]:
    """Shipped themes, the user's, those of further folders; and one sentence for everything that is off in a file."""
    loaded = load_themes(extra)
    themes = [Theme(**spec.arguments()) for spec in loaded.themes.values()]
    return themes, [str(problem) for problem in loaded.problems]

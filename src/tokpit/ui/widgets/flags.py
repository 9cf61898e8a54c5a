"""How the selected server was started: its settings under canonical names, further flags, and facts from its log."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.text import mask_secrets
from tokpit.ui import figures
from tokpit.ui.text import Row, crop, fit, safe
from tokpit.ui.view import View
from tokpit.ui.widgets.scrolled import ScrolledPanel

_SKIPPED = frozenset({"model", "port", "listen", "served_name", "elapsed_s"})


class FlagsPanel(ScrolledPanel):
    """One setting a row."""

    ages = False

    def __init__(self, view: View) -> None:
        super().__init__(id="flags")
        self.view = view

    def topics(self) -> Sequence[str]:
        """The server, and the host that lists it."""
        return self.view.topics("server", "host")

    def heading(self, width: int) -> tuple[Row, Row]:
        """Which of them are in view, where not all are."""
        return [("flags", "title")], self.place()

    def all_rows(self, width: int) -> Sequence[Row]:
        """Settings, other flags as given, facts."""
        server = self.view.server
        if server is None:
            return []
        settings = server.info.settings
        label = min(16, width // 2)
        rows: list[Row] = []
        for name, value in settings.given().items():
            if name not in _SKIPPED:
                rows.append(
                    [(fit(name.replace("_", " "), label), "dim"), (crop(" " + _text(value), width - label), "fg")]
                )
        for line in _flags(settings.raw):
            rows.append([(crop(line, width), "fg")])
        for name, fact in server.facts.items():
            if "." in name or isinstance(fact, (str, tuple)) or name in _SKIPPED:
                continue
            rows.append(
                [(fit(safe(name).replace("_", " "), label), "dim"), (crop(" " + _text(fact), width - label), "accent")]
            )
        return rows or [[("none given: the engine's defaults", "dim")]]


def _flags(raw: Sequence[str]) -> list[str]:
    """Flags with their values, one a row."""
    lines: list[str] = []
    for word in raw:
        if word.startswith("--") or not lines:
            lines.append(safe(word))
        else:
            lines[-1] += " " + safe(word)
    return [mask_secrets(line) for line in lines]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return figures.number(value, 2)
    return safe(value)

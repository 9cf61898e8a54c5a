"""How the selected server was started: its settings under canonical names, further flags, and facts from its log."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.text import mask_secrets
from tokpit.ui import figures
from tokpit.ui.forms import LAUNCH_FIELDS
from tokpit.ui.text import Row, crop, fit, safe
from tokpit.ui.view import View
from tokpit.ui.widgets.scrolled import ScrolledPanel

_SKIPPED = frozenset({"model", "port", "listen", "served_name", "elapsed_s"})

_SHORT = {name: label for name, label, _ in LAUNCH_FIELDS if len(label) <= 12} | {"max_running_reqs": "running cap"}
"""The words of the launch form."""


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
        facts = {
            name: fact
            for name, fact in server.facts.items()
            if "." not in name and not isinstance(fact, (str, tuple)) and name not in _SKIPPED
        }
        names = [_label(name) for name in (*(n for n in settings.given() if n not in _SKIPPED), *facts)]
        label = min(max(map(len, names), default=0), max(12, width - 11))
        rows: list[Row] = []
        for name, value in settings.given().items():
            if name not in _SKIPPED:
                rows.append([(fit(_label(name), label), "dim"), (crop(" " + _text(value), width - label), "fg")])
        for line in _flags(settings.raw):
            rows.append([(crop(line, width), "fg")])
        for name, fact in facts.items():
            rows.append([(fit(_label(name), label), "dim"), (crop(" " + _text(fact), width - label), "accent")])
        return rows or [[("none given: the engine's defaults", "dim")]]


def _label(name: str) -> str:
    """A setting's or fact's name as the other panels say it."""
    return _SHORT.get(name) or safe(name).replace("_", " ")


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

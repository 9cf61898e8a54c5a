"""What the host says of a launch before it is started: what would fail, what to know, what it will take."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.ui.text import Row, safe
from tokpit.ui.widgets.levels import hanging
from tokpit.ui.widgets.scrolled import ScrolledPanel

WAITING, ASKING, SAID, FAILED = "waiting", "asking", "said", "failed"

NOTHING_YET = "the host is asked once the command line is whole; a recording has none to ask"
READING = "whether its program takes these flags, port and memory are free, and what it will take"


class ChecksPanel(ScrolledPanel):
    """Errors, warnings, expected use, and what differs from what runs or from where the form came from."""

    ages = False

    def __init__(self) -> None:
        super().__init__(id="checks")
        self.state = WAITING
        self.problem = ""
        self.errors: Sequence[str] = ()
        self.warnings: Sequence[str] = ()
        self.expected: Sequence[str] = ()
        self.differs: Sequence[tuple[str, Sequence[str]]] = ()
        """A title (`against gpu1:30000, which runs`) and the changes."""

    def heading(self, width: int) -> tuple[Row, Row]:
        """How it stands."""
        if self.state == WAITING:
            return [("checks", "title")], []
        if self.state == ASKING:
            return [("checks", "title")], [("asking the host …", "dim")]
        if self.state == FAILED or self.errors:
            return [("checks", "title")], [("would be refused", "bad")]
        count = len(self.warnings)
        said = f"{count} warning{'s' if count > 1 else ''}" if count else "nothing against it"
        return [("checks", "title")], [(said, "warn" if count else "good"), ("  ", "fg"), *self.place()]

    def all_rows(self, width: int) -> list[Row]:
        """One sentence after the other."""
        if self.state in (WAITING, ASKING):
            return [*hanging("", "fg", NOTHING_YET if self.state == WAITING else READING, "dim", width)]
        rows: list[Row] = []
        if self.state == FAILED:
            rows += hanging("✗ ", "bad", safe(self.problem), "bad", width)
        for sentence in self.errors:
            rows += hanging("✗ ", "bad", safe(sentence), "bad", width)
        for sentence in self.warnings:
            rows += hanging("! ", "warn", safe(sentence), "warn", width)
        for sentence in self.expected:
            rows += hanging("· ", "accent", safe(sentence), "fg", width)
        for title, changes in self.differs:
            words = "; ".join(changes) if changes else "no difference"
            rows += hanging("± ", "accent", safe(f"{title}: {words}"), "fg", width)
        return rows

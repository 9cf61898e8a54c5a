"""What a rate would take: each lever with what it is now, what it would have to be, and the arithmetic."""

from __future__ import annotations

from tokpit.errors import UsageError
from tokpit.insight.solver import ALONE, ENOUGH, NEVER, Reach
from tokpit.ui.text import Row, safe
from tokpit.ui.widgets.levels import hanging
from tokpit.ui.widgets.scrolled import ScrolledPanel

_SIGNS = {ALONE: ("● ", "good"), ENOUGH: ("● ", "good"), NEVER: ("✗ ", "bad")}
ASK = "tok/s of one stream, or: all 600"


class ReachPanel(ScrolledPanel):
    """Rows of one `Reach`."""

    ages = False

    def __init__(self) -> None:
        super().__init__(id="reach")
        self.reach: Reach | None = None

    def heading(self, width: int) -> tuple[Row, Row]:
        """What was asked."""
        return [("what it would take", "title")], self.place()

    def all_rows(self, width: int) -> list[Row]:
        """The sentence, then lever by lever."""
        if self.reach is None:
            return []
        rows = hanging("", "fg", safe(self.reach.sentence), "bold", width)
        for way in self.reach.ways:
            sign, style = _SIGNS.get(way.verdict, ("· ", "dim"))
            rows.append(
                [(sign, style), (safe(way.lever), "fg"), (f"  {safe(way.now)} → ", "dim"), (safe(way.needed), "bold"),
                 (f"  {way.verdict}", style)]
            )  # fmt: skip
            rows += hanging("    ", "fg", safe(f"= {way.arithmetic}"), "accent", width)
            if way.how:
                rows += hanging("    ", "fg", safe(way.how), "dim", width)
        for missing in self.reach.missing:
            rows += hanging("  ", "fg", safe(f"to say more: {missing}"), "dim", width)
        return rows


def asked(text: str) -> tuple[bool, float]:
    """Whether all streams are meant, and the rate, from what was typed: `70`, `all 600`. Raises UsageError."""
    words = text.lower().replace("tok/s", " ").split()
    everything = bool(words) and words[0] in ("all", "total")
    try:
        rate = float(words[-1].replace(",", ""))
    except (IndexError, ValueError):
        rate = 0.0
    if not 0 < rate < 1e9 or len(words) > 1 + everything:
        raise UsageError(f"{text!r} is no rate", hint=f"type {ASK}")
    return everything, rate

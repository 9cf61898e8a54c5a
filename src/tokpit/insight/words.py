"""Numbers as a person writes them: three significant digits, units behind a space, no exponents."""

from __future__ import annotations

import math
from collections.abc import Iterable


def num(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, whole numbers whole: 0.0347, 2.31, 62, 1,310."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    # Half away from zero, as people round: 22.15 is stored as a hair less.
    text = f"{value * (1 + 1e-12):,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def within(value: float, half: float) -> str:
    """A value with the half width of its interval: `885.9 ± 290`."""
    return f"{num(value, 4)} ± {num(half, 2)}"


def seconds(value: float, digits: int = 3) -> str:
    """A duration: `52 ms`, `2.8 s`, `22 s`, `40 min`."""
    if abs(value) < 1:
        return f"{num(value * 1000, digits)} ms"
    return f"{num(value, digits)} s" if abs(value) < 1800 else f"{num(value / 60, digits)} min"


def span(hours: float) -> str:
    """Hours of a job: `40 min`, `13.5 h`, `49.1 days`."""
    if hours < 1:
        return seconds(hours * 3600) if hours < 0.05 else f"{num(hours * 60)} min"
    return f"{num(hours)} h" if hours < 48 else f"{num(hours / 24)} days"


def percent(share: float) -> str:
    """A fraction as percent: whole from 10 % on, one digit below."""
    value = 100 * share
    if abs(value) >= 9.95:
        return f"{value:.0f}%"
    return f"{value:.1f}%".replace(".0%", "%")


def listed(items: Iterable[object], word: str = "and") -> str:
    """`1, 4 and 8`."""
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {word} {words[-1]}" if words else ""

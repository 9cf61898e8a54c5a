"""Numbers as people read them: units named, nothing invented where nothing is known."""

from __future__ import annotations

import math

NA = "–"
GIB = float(1 << 30)


def number(value: float | None, digits: int = 1) -> str:
    """A figure with at most `digits` decimals, thousands grouped; NA where it is not known."""
    if value is None or math.isnan(value):
        return NA
    if abs(value) >= 10_000:
        return f"{value:,.0f}".replace(",", " ")
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def fixed(value: float | None, digits: int = 1) -> str:
    """A figure with exactly `digits` decimals, for columns."""
    return NA if value is None or math.isnan(value) else f"{value:.{digits}f}"


def percent(fraction: float | None, digits: int = 0) -> str:
    """A fraction as percent."""
    return NA if fraction is None or math.isnan(fraction) else f"{fraction * 100:.{digits}f}%"


def quantity(value: float | None, unit: str) -> str:
    """A value of a registered metric with its unit; fractions become percent, short times milliseconds."""
    if value is None:
        return NA
    if unit == "fraction":
        return percent(value, 0 if value >= 0.01 or value == 0 else 1)
    if unit == "s":
        return seconds(value)
    if unit in {"req", "slots", "tok"}:
        return f"{number(value, 0)} {unit}"
    return f"{number(value, 2 if value < 10 else 1)} {unit}"


def tick(value: float, unit: str) -> str:
    """An axis label: short; a unit only where the same axis may be in another one at another time."""
    if unit == "fraction":
        return f"{value * 100:g}%"
    if unit == "s":
        return "0" if value == 0 else f"{value * 1000:g}ms" if value < 1 else f"{value:g}s"
    if abs(value) >= 1_000_000:
        return f"{value / 1e6:g}M"
    if abs(value) >= 1000:
        return f"{value / 1000:g}k"
    return f"{value:g}"


def compact(count: int | None) -> str | None:
    """A count of tokens as `131k`, in thousands of 1024 where it is a multiple of them; None stays None."""
    if count is None:
        return None
    if count >= 1024 and count % 1024 == 0:
        return f"{count // 1024}Ki"
    return f"{count / 1000:g}k" if count >= 10_000 else str(count)


def seconds(value: float | None) -> str:
    """A latency: ms below one second."""
    if value is None or math.isnan(value):
        return NA
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def duration(value: float | None) -> str:
    """A span of time in its two largest units."""
    if value is None or math.isnan(value):
        return NA
    whole = max(0, int(value))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h"


def gib(count: float | None, digits: int = 1) -> str:
    """Bytes as GiB."""
    return NA if count is None else f"{count / GIB:.{digits}f} GiB"


def bar(fraction: float | None, width: int) -> tuple[str, str]:
    """A gauge of `width` cells as (filled, rest); eighths of a cell; all rest where the fraction is not known."""
    if fraction is None or width <= 0:
        return "", "·" * max(0, width)
    eighths = round(max(0.0, min(1.0, fraction)) * width * 8)
    full, part = divmod(eighths, 8)
    filled = "█" * full + (" ▏▎▍▌▋▊▉"[part] if part and full < width else "")
    return filled, "─" * (width - len(filled))


def heat(fraction: float | None) -> str:
    """Style name of a gauge by how full it is."""
    if fraction is None:
        return "dim"
    return "gauge-high" if fraction >= 0.92 else "gauge-mid" if fraction >= 0.75 else "gauge-low"

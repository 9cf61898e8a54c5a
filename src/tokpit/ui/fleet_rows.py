"""Which hosts the fleet shows and in which order: filtered, sorted, grouped. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SORTS = ("as listed", "tok/s", "queue", "GPU use", "link")
"""By what rows can be ordered; the largest, or the worst link, comes first."""


@dataclass(frozen=True)
class HostRow:
    """What of a host decides about its place. None: not known, which sorts last."""

    name: str
    group: str = ""
    words: str = ""
    """All that a filter looks into: name, group, GPUs, engines, models."""
    tps: float | None = None
    queue: float | None = None
    util: float | None = None
    rtt_s: float | None = None
    linked: bool = True

    def key(self, sort: str) -> tuple[float, ...]:
        """Sort key, smallest first."""
        if sort == "link":
            return (float(self.linked), -(self.rtt_s or 0.0))
        value = {"tok/s": self.tps, "queue": self.queue, "GPU use": self.util}.get(sort)
        return (float(value is None), -(value or 0.0))


@dataclass(frozen=True)
class Heading:
    """A line between groups."""

    group: str
    count: int


def fits(row: HostRow, wanted: str) -> bool:
    """Whether every word of the filter is in the row; `-word` must not be."""
    text = row.words.lower()
    return all((word[1:] not in text) if word.startswith("-") and word[1:] else word in text for word in wanted.split())


def arrange(rows: Iterable[HostRow], *, sort: str, wanted: str, grouped: bool) -> list[HostRow | Heading]:
    """The rows in view order; with `grouped` under a heading for each group, those of no group last."""
    kept = [row for row in rows if fits(row, wanted.lower())]
    if sort != SORTS[0]:
        kept.sort(key=lambda row: row.key(sort))
    if not grouped or not any(row.group for row in kept):
        return list(kept)
    groups = sorted({row.group for row in kept}, key=lambda group: (not group, group))
    found: list[HostRow | Heading] = []
    for group in groups:
        members = [row for row in kept if row.group == group]
        found += [Heading(group, len(members)), *members]
    return found


def hosts_of(lines: Sequence[HostRow | Heading]) -> list[str]:
    """The names, headings left out."""
    return [line.name for line in lines if isinstance(line, HostRow)]

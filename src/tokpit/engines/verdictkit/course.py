"""The course of a start as its log shows it: where starts begin, which phase a line is in, what died, what went on."""

from __future__ import annotations

import bisect
import re
import sys
from collections.abc import Sequence

import msgspec

from tokpit.engines.verdictkit.lines import Line
from tokpit.engines.verdictkit.signature import Signature


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine's log looks like, as far as a verdict needs it."""

    signatures: tuple[Signature, ...]
    phases: tuple[tuple[re.Pattern[str], str], ...]
    """Milestones in order: the last one seen before a failure names its phase; `ready` means serving."""
    life: re.Pattern[str]
    """Lines that only a server at work prints."""
    boot: re.Pattern[str]
    """The line with which a start begins."""
    early: re.Pattern[str]
    """Lines printed once in a start by each process; seen again after a crash, they mean a restart."""
    death: re.Pattern[str]
    """Lines that say that a server has died."""
    wrapper: re.Pattern[str]
    """Messages that only pass on somebody else's failure: never the cause."""
    facts: re.Pattern[str]
    """`key=value` pairs of the argument echo that signatures ask for; groups `key`, `value`."""
    echo: re.Pattern[str]
    """The line that carries the argument echo."""


def deadly(dialect: Dialect, line: Line) -> bool:
    """Whether a line says that the server has died, and not just quotes that further on."""
    match = None if line.quotes or line.busy else dialect.death.search(line.text)
    return match is not None and match.start() <= (30 if line.level in {"info", "warning", "debug"} else 80)


def starts_of(dialect: Dialect, lines: Sequence[Line]) -> list[int]:
    """Index of the first line of each start in this log."""
    starts, seen, crashed = [0], set[tuple[str, str]](), ""
    crashed_proc = ""
    for index, line in enumerate(lines):
        if line.busy:
            continue
        boot = dialect.boot.search(line.text)
        early = dialect.early.search(line.text) if not boot else None
        if boot and (crashed or seen):  # a start may print several boot lines before anything else
            starts.append(index)
            seen.clear()
            crashed = ""
        elif early:
            key = (line.proc, early.group(0))
            if crashed and key in seen and line.proc == crashed_proc:
                starts.append(index)
                seen.clear()
                crashed = ""
            seen.add(key)
        elif not crashed and deadly(dialect, line):
            crashed, crashed_proc = line.text, line.proc
    return starts


def phases_of(dialect: Dialect, lines: Sequence[Line]) -> list[str]:
    """The phase that each line falls in: that of the last milestone, `args` before any."""
    phases, now = [], "args"
    for line in lines:
        if not line.quotes and not line.busy:
            for pattern, phase in dialect.phases:
                if pattern.search(line.text):
                    now = phase
        phases.append(now)
    return phases


def facts_of(dialect: Dialect, lines: Sequence[Line]) -> dict[str, str]:
    """Settings that the argument echo of this log names, as text."""
    facts: dict[str, str] = {}
    for line in lines:
        if line.quotes and dialect.echo.search(line.text):
            for match in dialect.facts.finditer(line.raw):
                facts.setdefault(match["key"], match["value"].strip("'\""))
    return facts


class Alive:
    """Where a start's lines show that it went on: milestones and work, by process."""

    def __init__(self, dialect: Dialect, lines: Sequence[Line]) -> None:
        milestone = re.compile("|".join(pattern.pattern for pattern, _ in dialect.phases))
        self._last_work = -1
        self._of: dict[str, list[int]] = {}
        for index, line in enumerate(lines):
            if line.quotes:
                continue
            work = dialect.life.search(line.text) is not None
            if work:
                self._last_work = index
            if work or (not line.busy and milestone.search(line.text)):
                self._of.setdefault(line.proc, []).append(index)

    def outlived(self, at: int, proc: str, deaths: Sequence[int]) -> bool:
        """Whether what stands at `at` was survived: work after it and no death, or progress of its own process."""
        position = bisect.bisect_left(deaths, at)
        if position == len(deaths) and self._last_work > at:
            return True
        until = deaths[position] if position < len(deaths) else sys.maxsize
        own = self._of.get(proc, [])
        following = bisect.bisect_right(own, at)
        return following < len(own) and own[following] < until

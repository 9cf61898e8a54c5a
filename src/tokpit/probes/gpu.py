"""What every GPU probe answers, and the words they share.

A new kind of GPU is one file and one line in `registry.READERS`."""

from __future__ import annotations

import math
from typing import Protocol

import msgspec

from tokpit.domain.records import GpuProcess, GpuSample, Problem


class GpuPoll(msgspec.Struct, frozen=True, kw_only=True):
    """What one poll brought. `absent`: this kind of GPU (or its tool) is not on the host."""

    gpus: tuple[GpuSample, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    problems: tuple[Problem, ...] = ()
    absent: bool = False
    again: bool = False
    """The question was changed (a field dropped): ask once more at once."""


class GpuReader(Protocol):
    """A pure state machine for one host: gives the next script and reads its output."""

    def script(self) -> str:
        """The POSIX shell script of the next poll."""
        ...

    def read(self, output: str, took_s: float) -> GpuPoll:
        """What the output says; `took_s` is how long it took, in real seconds."""
        ...


SLOW_S = 4.0
"""A healthy driver answers in well under a second; beyond this the figures are old when they arrive."""
HUNG_S = 60.0


def slow(waited_s: float, lost: int = 0) -> Problem | None:
    """The problem of a poll that is unanswered for `waited_s` (or `lost` polls in a row), None while that is normal."""
    if waited_s < SLOW_S and not lost:
        return None
    if waited_s >= HUNG_S or lost >= 3:
        return Problem(
            "GPU_POLL_SLOW",
            f"no answer from the GPU driver for {waited_s:.0f} s: the driver hangs (look for nvidia-smi in state D)",
        )
    unanswered = f"; last {lost} polls unanswered" if lost else ""
    return Problem("GPU_POLL_SLOW", f"GPU polling is slow ({waited_s:.1f} s){unanswered}: figures are old")


def judge_polls(seconds: list[float | None]) -> Problem | None:
    """The verdict on a row of poll durations; None: still unanswered. Only the newest tell how it is now."""
    lost = 0
    for value in reversed(seconds):
        if value is not None:
            break
        lost += 1
    answered = [value for value in seconds if value is not None][-2:]
    worst = max(answered, default=0.0)
    if worst < SLOW_S and not lost:
        return None
    if lost >= 3 or not answered:
        return slow(worst, max(lost, 3)) if lost >= 3 else slow(worst, lost)
    span = f"{min(answered):.0f}–{worst:.0f} s" if round(min(answered)) != round(worst) else f"{worst:.0f} s"
    tail = f"; last {lost} polls unanswered" if lost > 1 else "; the last poll is unanswered" if lost else ""
    return Problem("GPU_POLL_SLOW", f"GPU polling is slow ({span}){tail}")


def number(cell: str) -> float | None:
    """The number at the start of a cell (`61.23 W`, `12 %`, `81000 MiB`); None for `[N/A]`, `ERR!` and other text."""
    word = cell.strip().split(" ", 1)[0].rstrip("%°cCWMhz")
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def fraction(percent: float | None) -> float | None:
    """Percent as 0..1, None outside 0..100."""
    return None if percent is None or not 0 <= percent <= 100 else percent / 100

"""Time stamps as servers print them, to seconds. Only differences are meant: servers seldom say their zone."""

from __future__ import annotations

import re
from datetime import date

_FULL = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?$")
_SHORT = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)$")
_RUNNING = re.compile(r"(\d{1,9})\.(\d\d)\.(\d{3})\.(\d{3})$")
_DAY = 86_400.0
_HALF_YEAR = 182


class Clock:
    """Turns the stamps of one log into seconds that keep rising over New Year, where a stamp has no year.

    `year` is that of the first stamp without one (the year of the host's clock; default: 2000, a leap year).
    """

    def __init__(self, year: int = 2000) -> None:
        self._year = year
        self._last_day: int | None = None
        self._days: dict[str, int] = {}
        self._stamp: str | None = None
        self._value: float | None = None

    def seconds(self, stamp: object) -> float | None:
        """Seconds of a stamp, None for a text that is none. Accepts `2026-05-01 10:00:00`, `05-01 10:00:00`
        and the time since start of llama-server, `M.SS.mmm.uuu`.
        """
        if stamp == self._stamp:
            return self._value
        if not isinstance(stamp, str):
            return None
        self._stamp, self._value = stamp, self._read(stamp)
        return self._value

    def _read(self, stamp: str) -> float | None:
        match = _FULL.match(stamp)
        if match:
            day = self._ordinal(int(match[1]), match[2], match[3])
            part = float(f"0.{match[7]}") if match[7] else 0.0
            return None if day is None else _of_day(day, match[4], match[5], match[6]) + part
        match = _SHORT.match(stamp)
        if match:
            day = self._day(match[1], match[2])
            return None if day is None else _of_day(day, match[3], match[4], match[5])
        match = _RUNNING.match(stamp)
        if match:
            return int(match[1]) * 60 + int(match[2]) + int(match[3]) / 1e3 + int(match[4]) / 1e6
        return None

    def _ordinal(self, year: int, month: str, day: str) -> int | None:
        key = f"{year}-{month}-{day}"
        if key not in self._days:
            if len(self._days) > 1000:
                self._days.clear()
            try:
                self._days[key] = date(year, int(month), int(day)).toordinal()
            except ValueError:
                return None
        return self._days[key]

    def _day(self, month: str, day: str) -> int | None:
        found = self._ordinal(self._year, month, day)
        if found is not None and self._last_day is not None and found < self._last_day - _HALF_YEAR:
            self._year += 1
            found = self._ordinal(self._year, month, day)
        if found is not None:
            self._last_day = found
        return found


def _of_day(day: int, hours: str, minutes: str, seconds: str) -> float:
    return day * _DAY + int(hours) * 3600 + int(minutes) * 60 + int(seconds)

"""What was in a log before anybody watched: its age, its head, and the time of its records."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tokpit.domain.records import LogRecord
from tokpit.engines.logkit.clock import Clock
from tokpit.transport.base import Host, quote


class Age(msgspec.Struct, frozen=True):
    """Size of a log in bytes and seconds (of the host's clock) since its last write."""

    size: int
    since_write_s: float


async def read_age(host: Host, path: str) -> Age | None:
    """Size and age of a file, None where it is not there. Raises HostError."""
    done = await host.run(f"stat -L -c '%s %Y' {_path(path)} 2>/dev/null && date +%s", timeout_s=15.0)
    words = done.out.split()
    if done.status != 0 or len(words) != 3 or not all(word.lstrip("-").isdecimal() for word in words):
        return None
    size, written, now = (int(word) for word in words)
    return Age(size, max(0.0, (now - written) * host.spec.clock_factor))


async def read_head(host: Host, path: str, size: int) -> bytes:
    """The first `size` bytes of a file. Raises HostError."""
    return (await host.run(f"head -c {size} {_path(path)}", timeout_s=60.0)).stdout


def _path(path: str) -> str:
    return f'"$HOME"/{quote([path[2:]])}' if path.startswith("~/") else quote([path])


class Stamps:
    """Gives records the time at which they were written, from the stamps that the server prints.

    Stamps seldom say their zone, so only their differences are used: the last one is the time of the last write.
    """

    def __init__(self) -> None:
        self._clock = Clock()

    def times(self, records: Sequence[LogRecord], last_write: float) -> list[float | None]:
        """UTC seconds of each record, never falling; None where nothing tells (then the newest is the last write)."""
        stamps = [self._clock.seconds(record.fields.get("ts") or record.fields.get("t")) for record in records]
        known = [stamp for stamp in stamps if stamp is not None]
        if not known:
            return [None] * (len(records) - 1) + [last_write] if records else []
        newest = max(known)
        times: list[float | None] = []
        current: float | None = None
        for stamp in stamps:
            if stamp is not None:
                t = last_write - (newest - stamp)
                current = t if current is None else max(current, t)
            times.append(current)
        return times

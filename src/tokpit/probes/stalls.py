"""What a host's programs wait for: processor time that a hypervisor gives to others, and memory."""

from __future__ import annotations

import re

import msgspec

SCRIPT = "head -n 1 /proc/stat; sleep 1; head -n 1 /proc/stat; cat /proc/pressure/memory 2>/dev/null"
"""Two readings of the processor counters a second apart, and the pressure that the kernel keeps itself."""

_SOME = re.compile(r"^some avg10=(\d+(?:\.\d+)?)", re.MULTILINE)


class Stalls(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of time, 0..1; None: the kernel does not tell."""

    steal: float | None = None
    memory: float | None = None
    """Something waited for memory, over the last 10 s."""


def parse(text: str) -> Stalls:
    """What `SCRIPT` printed. Fields of the line `cpu` are those of proc(5): the eighth is stolen time."""
    readings = [list(map(int, line.split()[1:9])) for line in text.splitlines() if re.match(r"cpu(?: +\d+){8}", line)]
    steal = None
    if len(readings) >= 2:
        spent = [after - before for before, after in zip(readings[0], readings[-1], strict=True)]
        total = sum(spent)
        steal = spent[7] / total if total > 0 and min(spent) >= 0 else None
    some = _SOME.search(text)
    return Stalls(steal=steal, memory=float(some[1]) / 100 if some else None)

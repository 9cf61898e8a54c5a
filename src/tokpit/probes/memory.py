"""Memory, processor and disk of a host: /proc, cgroup limits of both versions, /dev/shm.

Formats: proc(5); cgroup v1 and v2: kernel documentation admin-guide/cgroup-v1/memory and cgroup-v2.
"""

from __future__ import annotations

import re
import shlex

import msgspec

from tokpit.domain.records import HostRecord
from tokpit.probes.sections import mark, sections

UNLIMITED = 1 << 60
"""cgroup v1 writes a number near 2**63 for "no limit"."""


class MemInfo(msgspec.Struct, frozen=True, kw_only=True):
    """/proc/meminfo, in bytes; inside a container it shows the whole host."""

    total: int | None = None
    available: int | None = None
    shm: int | None = None
    swap_total: int | None = None
    swap_free: int | None = None

    @property
    def swap_used(self) -> int | None:
        """Bytes of swap in use."""
        return None if self.swap_total is None or self.swap_free is None else self.swap_total - self.swap_free


class Space(msgspec.Struct, frozen=True):
    """Size and free space of a file system, bytes."""

    total: int
    free: int


class CpuTimes(msgspec.Struct, frozen=True):
    """Clock ticks of all processors since boot."""

    busy: int
    total: int

    def util_since(self, earlier: CpuTimes) -> float | None:
        """Busy fraction between two readings; None where no time has passed or the counters went back."""
        total, busy = self.total - earlier.total, self.busy - earlier.busy
        return min(1.0, busy / total) if total > 0 and busy >= 0 else None


class MemoryReading(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the script."""

    memory: MemInfo
    load1: float | None = None
    cores: int | None = None
    cpu: CpuTimes | None = None
    cgroup_limit: int | None = None
    cgroup_used: int | None = None
    shm: Space | None = None
    disk: Space | None = None

    @property
    def usable(self) -> int | None:
        """Bytes that a new process can still take: the host's available memory or what the cgroup leaves of it."""
        if self.cgroup_limit is None:
            return self.memory.available
        left = max(0, self.cgroup_limit - (self.cgroup_used or 0))
        return left if self.memory.available is None else min(left, self.memory.available)

    def record(self, host: str, t: float, earlier: MemoryReading | None) -> HostRecord:
        """This reading as a record; processor use is the mean since `earlier`."""
        return HostRecord(
            host,
            t,
            mem_total_bytes=self.memory.total,
            mem_available_bytes=self.memory.available,
            shm_bytes=self.memory.shm,
            swap_used_bytes=self.memory.swap_used,
            load1=self.load1,
            cores=self.cores,
            cpu_util=self.cpu.util_since(earlier.cpu) if self.cpu and earlier and earlier.cpu else None,
        )


LIMITS = r"""
while IFS=: read -r _ ctl path; do
  case ",$ctl," in
    ,,) base=/sys/fs/cgroup; max=memory.max; now=memory.current
        [ -d /sys/fs/cgroup/unified ] && base=/sys/fs/cgroup/unified ;;
    *,memory,*) base=/sys/fs/cgroup/memory; max=memory.limit_in_bytes; now=memory.usage_in_bytes ;;
    *) continue ;;
  esac
  # Inside a container the path is often the host's: then the mount point itself is our group.
  [ -d "$base$path" ] || path=
  while :; do
    m=; n=
    { read -r m <"$base$path/$max"; read -r n <"$base$path/$now"; } 2>/dev/null
    [ -n "$m" ] && echo "$m ${n:-?}"
    case $path in ''|/) break ;; esac
    path=${path%/*}
  done
done </proc/self/cgroup
"""
"""Prints `limit used` of this process's group and of each one above it, for `parse_cgroup`."""


def script(path: str | None = None) -> str:
    """The script; `path`: also the file system that holds it (or its nearest existing parent)."""
    lines = [
        mark("meminfo"),
        "cat /proc/meminfo",
        mark("load"),
        "cat /proc/loadavg",
        mark("cpu"),
        'while read -r line; do case $line in cpu*) echo "$line" ;; *) break ;; esac; done </proc/stat',
        mark("cgroup"),
        LIMITS,
        mark("shm"),
        "df -Pk /dev/shm 2>/dev/null",
    ]
    if path is not None:
        lines += [
            mark("disk"),
            f'd={shlex.quote(path)}; while [ ! -e "$d" ] && [ "$d" != / ] && [ "$d" != . ]; do d=$(dirname "$d"); done',
            'df -Pk "$d" 2>/dev/null',
        ]
    return "\n".join([*lines, mark("end"), ""])


def parse(output: str) -> MemoryReading:
    """The reading. Raises ValueError where /proc/meminfo is missing from the output."""
    found = sections(output)
    memory = parse_meminfo(found.get("meminfo", ""))
    if memory.total is None:
        raise ValueError("the host did not tell its memory")
    load = found.get("load", "").split()
    cpu_lines = [line.split() for line in found.get("cpu", "").split("\n") if line.startswith("cpu")]
    limit, used = parse_cgroup(found.get("cgroup", ""), memory.total)
    return MemoryReading(
        memory=memory,
        load1=float(load[0]) if load and re.fullmatch(r"[\d.]+", load[0]) else None,
        cores=len(cpu_lines) - 1 if len(cpu_lines) > 1 else None,
        cpu=_cpu(cpu_lines[0][1:]) if cpu_lines else None,
        cgroup_limit=limit,
        cgroup_used=used,
        shm=space(found.get("shm", "")),
        disk=space(found.get("disk", "")),
    )


def parse_meminfo(text: str) -> MemInfo:
    """The lines of /proc/meminfo that count; a kernel without MemAvailable (before 3.14) leaves it unknown."""
    kib = {m.group(1): int(m.group(2)) for m in re.finditer(r"(?m)^(\w+):\s*(\d+)(?: kB)?\s*$", text)}
    names = {
        "total": "MemTotal",
        "available": "MemAvailable",
        "shm": "Shmem",
        "swap_total": "SwapTotal",
        "swap_free": "SwapFree",
    }
    return MemInfo(**{field: kib[name] * 1024 for field, name in names.items() if name in kib})


def parse_cgroup(text: str, mem_total: int) -> tuple[int | None, int | None]:
    """(limit, used) of the tightest group on the way up, bytes; None where nothing below the host's memory limits."""
    best: tuple[int, int | None] | None = None
    for line in text.split("\n"):
        limit, _, used = line.partition(" ")
        if limit.isdecimal() and int(limit) < min(UNLIMITED, mem_total) and (best is None or int(limit) < best[0]):
            best = int(limit), int(used) if used.isdecimal() else None
    return best or (None, None)


def _cpu(cells: list[str]) -> CpuTimes | None:
    ticks = [int(cell) for cell in cells if cell.isdecimal()]
    if len(ticks) < 4:
        return None
    # guest time (fields 9 and 10) is already inside user time.
    idle = ticks[3] + (ticks[4] if len(ticks) > 4 else 0)
    total = sum(ticks[:8])
    return CpuTimes(total - idle, total)


def space(text: str) -> Space | None:
    """The last row of `df -Pk` output; None where there is none."""
    rows = [line.split() for line in text.split("\n") if line.strip()]
    for cells in reversed(rows):
        # `df -P` keeps a row on one line; the device name may contain spaces, so count from the mount point's side.
        numbers = [index for index, cell in enumerate(cells) if cell.endswith("%") and index >= 3]
        if numbers and cells[numbers[0] - 3].isdecimal() and cells[numbers[0] - 1].isdecimal():
            return Space(int(cells[numbers[0] - 3]) * 1024, int(cells[numbers[0] - 1]) * 1024)
    return None

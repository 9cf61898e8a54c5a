"""The state of the simulated machine on disk: what each engine holds, shared by nvidia-smi and /proc/meminfo.

Layout under the sandbox root: `sim.json` (clock), `gpu/PID.json` (one an engine, ignored once the process is gone),
`proc/meminfo` (what is left of the host's memory), `proc/PID` (links, so that a process listing finds the engines).
Standard library only: the fake nvidia-smi imports it without tokpit's dependencies.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tokpit.sim import story
from tokpit.sim.clock import SimClock


def alive(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return not stat.rpartition(")")[2].strip().startswith(("Z", "X"))


def own_age_s() -> float:
    """Real seconds since this process was started, so that the interpreter's own start counts as part of a launch."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    started = int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)


def read_clock(root: Path) -> SimClock:
    """The clock of the host whose sandbox is at `root`."""
    data = json.loads((root / "sim.json").read_text(encoding="utf-8"))
    return SimClock(float(data["factor"]), float(data["utc"]), float(data["monotonic"]))


def holders(root: Path) -> list[dict[str, Any]]:
    """What the living engines hold, oldest first."""
    found = []
    for path in sorted((root / "gpu").glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if alive(int(path.stem)):
            found.append(data)
    return found


def free_gpu_mib(root: Path) -> float:
    """Device memory not held by any engine."""
    return story.GPU_MEM_MIB - 640 - sum(float(h["mem_mib"]) for h in holders(root))


def available_bytes(root: Path) -> int:
    """MemAvailable of the host."""
    held = sum(int(h["host_bytes"]) for h in holders(root))
    return story.HOST_MEM_TOTAL_BYTES - story.HOST_MEM_OTHERS_BYTES - held


def hold(root: Path, pid: int, data: dict[str, Any]) -> None:
    """Publish what the engine `pid` holds and does now."""
    replace(root / "gpu" / f"{pid}.json", json.dumps(data))
    write_meminfo(root)


def write_meminfo(root: Path) -> None:
    """Write `proc/meminfo` in the kernel's form."""
    held = sum(int(h["host_bytes"]) for h in holders(root))
    total = story.HOST_MEM_TOTAL_BYTES // 1024
    available = available_bytes(root) // 1024
    rows = {
        "MemTotal": total,
        "MemFree": max(0, available - 21_000_000),
        "MemAvailable": available,
        "Buffers": 1_204_480,
        "Cached": 20_312_064,
        "SwapCached": 0,
        "SwapTotal": 0,
        "SwapFree": 0,
        "Shmem": 52_428 + held // 1024,
    }
    text = "".join(f"{name + ':':<15} {value:>9} kB\n" for name, value in rows.items())
    text += "HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\n"
    replace(root / "proc" / "meminfo", text)


def replace(path: Path, text: str) -> None:
    """Write a file so that readers see the old or the new text, never half of it."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)

"""One look at a host before a start: memory, cgroup limit, shared memory, ports in use, GPUs."""

from __future__ import annotations

import re

from tokpit.domain.hostfacts import HostFacts

_SCRIPT = r"""
echo '@mem'; cat /proc/meminfo 2>/dev/null
echo '@cgroup'
g=$(sed -n 's/^0:://p' /proc/self/cgroup 2>/dev/null)
while :; do
  cat "/sys/fs/cgroup$g/memory.max" 2>/dev/null
  case $g in ''|/) break;; esac
  g=${g%/*}
done
cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null
echo '@shm'; df -kP /dev/shm 2>/dev/null | tail -n 1
echo '@disk'; df -kP "$HOME" 2>/dev/null | tail -n 1
echo '@tcp'; cat /proc/net/tcp /proc/net/tcp6 2>/dev/null
echo '@gpu'
if command -v nvidia-smi >/dev/null 2>&1; then
  nvidia-smi --query-gpu=name,memory.total,memory.free --format=csv,noheader,nounits 2>/dev/null && echo '@gpuok'
elif command -v rocm-smi >/dev/null 2>&1; then echo rocm
else echo none
fi
exit 0
"""


def preflight_script() -> str:
    """POSIX sh that prints what `parse_preflight` reads."""
    return _SCRIPT


def parse_preflight(text: str) -> HostFacts:
    """The facts; None for each that the host did not tell. Sizes are read in the kernel's own units."""
    parts: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("@"):
            name = line[1:]
            parts[name] = []
        elif name:
            parts[name].append(line)
    memory = {m[1]: int(m[2]) * 1024 for line in parts.get("mem", []) if (m := re.match(r"(\w+):\s+(\d+) kB", line))}
    limits = [int(line) for line in parts.get("cgroup", []) if line.strip().isdigit() and int(line) < 1 << 60]
    gpus = [line.rsplit(",", 2) for line in parts.get("gpu", []) if line.count(",") >= 2]
    absent = parts.get("gpu", [])[:1] == ["none"]
    return HostFacts(
        mem_available_bytes=memory.get("MemAvailable"),
        mem_total_bytes=memory.get("MemTotal"),
        cgroup_limit_bytes=min(limits, default=None),
        shm_free_bytes=_free(parts.get("shm", [])),
        disk_free_bytes=_free(parts.get("disk", [])),
        gpu_count=len(gpus) if "gpuok" in parts else 0 if absent else None,
        gpu_names=tuple(row[0].strip() for row in gpus),
        gpu_mem_mib=tuple(value for row in gpus if (value := _number(row[1])) is not None),
        gpu_free_mib=tuple(value for row in gpus if (value := _number(row[2])) is not None),
        ports_in_use=frozenset(_ports(parts.get("tcp", []))),
        platform="cpu" if absent else "rocm" if parts.get("gpu", [])[:1] == ["rocm"] else "cuda",
    )


def _free(lines: list[str]) -> int | None:
    words = lines[-1].split() if lines else []
    return int(words[3]) * 1024 if len(words) >= 4 and words[3].isdigit() else None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _ports(lines: list[str]) -> list[int]:
    """Local ports in state LISTEN (0A) of /proc/net/tcp and tcp6."""
    return [
        int(words[1].rsplit(":", 1)[1], 16)
        for line in lines
        if len(words := line.split()) > 3 and words[3] == "0A" and ":" in words[1]
    ]

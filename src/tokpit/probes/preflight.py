"""One look at a host before a start: memory, cgroup limit, shared memory, ports in use, GPUs."""

from __future__ import annotations

from tokpit.domain.hostfacts import HostFacts
from tokpit.probes.memory import LIMITS, UNLIMITED, parse_cgroup, parse_meminfo, space

_SCRIPT = r"""
echo '@mem'; cat /proc/meminfo 2>/dev/null
echo '@cgroup'
@LIMITS@echo '@shm'; df -kP /dev/shm 2>/dev/null | tail -n 1
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
    return _SCRIPT.replace("@LIMITS@", LIMITS)


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
    memory = parse_meminfo("\n".join(parts.get("mem", [])))
    shm, disk = (space("\n".join(parts.get(name, []))) for name in ("shm", "disk"))
    gpus = [line.rsplit(",", 2) for line in parts.get("gpu", []) if line.count(",") >= 2]
    absent = parts.get("gpu", [])[:1] == ["none"]
    return HostFacts(
        mem_available_bytes=memory.available,
        mem_total_bytes=memory.total,
        cgroup_limit_bytes=parse_cgroup("\n".join(parts.get("cgroup", [])), memory.total or UNLIMITED)[0],
        shm_free_bytes=shm.free if shm is not None else None,
        disk_free_bytes=disk.free if disk is not None else None,
        gpu_count=len(gpus) if "gpuok" in parts else 0 if absent else None,
        gpu_names=tuple(row[0].strip() for row in gpus),
        gpu_mem_mib=tuple(value for row in gpus if (value := _number(row[1])) is not None),
        gpu_free_mib=tuple(value for row in gpus if (value := _number(row[2])) is not None),
        ports_in_use=frozenset(_ports(parts.get("tcp", []))),
        platform="cpu" if absent else "rocm" if parts.get("gpu", [])[:1] == ["rocm"] else "cuda",
    )


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

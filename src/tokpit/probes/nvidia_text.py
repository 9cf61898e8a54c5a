"""Other things NVIDIA's tools and the kernel say: GPU lists, MIG instances, throttle counters, fallen GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from tokpit.domain.records import Problem
from tokpit.domain.text import sanitize
from tokpit.probes.nvidia import pci


class ListedGpu(msgspec.Struct, frozen=True):
    """One GPU of `nvidia-smi -L`, with the profile and uuid of its MIG instances."""

    index: int
    name: str
    uuid: str
    instances: tuple[tuple[str, str], ...] = ()


def parse_list(text: str) -> tuple[ListedGpu, ...]:
    """The GPUs of `nvidia-smi -L`."""
    found: list[ListedGpu] = []
    for line in (sanitize(raw.strip("\r")) for raw in text.split("\n")):
        if gpu := re.match(r"GPU (\d+): (.*) \(UUID: ([^)]+)\)", line):
            found.append(ListedGpu(int(gpu.group(1)), gpu.group(2), gpu.group(3)))
        elif found and (mig := re.match(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: ([^)]+)\)", line)):
            last = found[-1]
            found[-1] = msgspec.structs.replace(last, instances=(*last.instances, (mig.group(1), mig.group(2))))
    return tuple(found)


def order_problem(gpus: tuple[ListedGpu, ...], env: Mapping[str, str]) -> Problem | None:
    """CUDA counts the fastest GPU first unless CUDA_DEVICE_ORDER says otherwise: on mixed hosts the indices differ."""
    if len({gpu.name for gpu in gpus}) < 2 or env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return None
    chosen = [word.strip() for word in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    if chosen and all(word.startswith(("GPU-", "MIG-")) for word in chosen):
        return None
    first = chosen[0] if chosen else "0"
    return Problem(
        "GPU_ORDER",
        f"mixed GPUs and CUDA_DEVICE_ORDER is unset: CUDA's index {first} may not be nvidia-smi's GPU {first}; "
        "start with CUDA_DEVICE_ORDER=PCI_BUS_ID or name GPUs by UUID",
    )


THROTTLE_COUNTERS = {
    "SW Power Capping": "sw-power-cap",
    "SW Thermal Slowdown": "sw-thermal",
    "HW Thermal Slowdown": "hw-thermal",
    "HW Power Braking": "power-brake",
    "HW Power Brake Slowdown": "power-brake",
}


def parse_throttle_counters(text: str) -> tuple[dict[str, float], ...]:
    """Seconds spent in each slowdown since the driver loaded, one dict a GPU, from `nvidia-smi -q -d PERFORMANCE`."""
    gpus: list[dict[str, float]] = []
    inside = False
    for line in text.split("\n"):
        key, _, value = line.partition(" : ")
        key, value = key.strip(), value.strip()
        if re.match(r"GPU [0-9A-Fa-f]+:", line):
            gpus.append({})
        if "Reasons Counters" in line:
            inside = True
            if not gpus:
                gpus.append({})
        elif not value and key:
            inside = False
        if inside and key in THROTTLE_COUNTERS and (count := re.fullmatch(r"(\d+) us", value)):
            gpus[-1][THROTTLE_COUNTERS[key]] = int(count.group(1)) / 1e6
    return tuple(gpus)


VOID_FRACTION = 0.02
"""A measurement with more of its wall time spent in a thermal or power-brake slowdown is void."""


def throttled_between(
    before: tuple[dict[str, float], ...], after: tuple[dict[str, float], ...], wall_s: float
) -> tuple[Problem, ...]:
    """Slowdowns between two readings of the counters: only what was added counts, never what was there before."""
    found = []
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        added = {k: v - old.get(k, 0.0) for k, v in new.items() if k in old and v > old[k]}
        hard = {k: v for k, v in added.items() if k != "sw-power-cap"}
        if not hard or wall_s <= 0:
            continue
        reason, seconds = max(hard.items(), key=lambda item: item[1])
        share = seconds / wall_s
        void = "; this measurement is void" if share > VOID_FRACTION else ""
        found.append(
            Problem(
                "GPU_THROTTLED_PAST",
                f"GPU {index} was slowed down ({reason}) for {seconds:.2f} of {wall_s:.0f} s ({share:.1%}){void}",
                index,
                info=share <= VOID_FRACTION,
            )
        )
    return tuple(found)


class Xid(msgspec.Struct, frozen=True):
    """An NVIDIA kernel error; `code` None: the GPU fell off the bus without a number (the same as 79)."""

    address: str
    code: int | None
    pid: int | None = None
    process: str = ""


# https://docs.nvidia.com/deploy/xid-errors: errors after which the device is gone or must be drained.
_GONE = {79: "has fallen off the bus", 119: "its firmware does not answer", 120: "its firmware failed"}
_ECC = {48, 63, 64, 94, 95}


def parse_kernel_log(text: str) -> tuple[Xid, ...]:
    """NVIDIA errors in kernel log lines; a message split over several lines is joined."""
    said = " ".join(
        re.sub(r"^.*?NVRM:", "NVRM:", sanitize(line)).replace("NVRM:", "\x00", 1) if "NVRM:" in line else sanitize(line)
        for line in text.split("\n")
    )
    found = []
    joined = re.sub(r"\s*\x00\s*", " ", said)
    for match in re.finditer(
        r"The NVIDIA GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)(?:(?!The NVIDIA GPU|Xid).){0,200}?"
        r"fallen off the bus",
        joined,
    ):
        found.append(Xid(pci(match.group(1)), None))
    for match in re.finditer(
        r"Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)(?:, pid='?<?(\d+|unknown)>?'?)?(?:, name=([^,]*))?", joined
    ):
        pid = match.group(3)
        found.append(
            Xid(
                pci(match.group(1)),
                int(match.group(2)),
                int(pid) if pid and pid.isdecimal() else None,
                (match.group(4) or "").strip(),
            )
        )
    return tuple(found)


def xid_problems(xids: tuple[Xid, ...], addresses: Mapping[str, int]) -> tuple[Problem, ...]:
    """Kernel errors as problems; `addresses` maps PCI addresses to GPU indices."""
    found = []
    for xid in dict.fromkeys(xids):
        index = addresses.get(xid.address)
        gpu = f"GPU {index} ({xid.address})" if index is not None else f"GPU {xid.address}"
        whose = f" for pid {xid.pid}" + (f" ({xid.process})" if xid.process else "") if xid.pid else ""
        if xid.code is None or xid.code in _GONE:
            why = (
                "has fallen off the bus (same as Xid 79)" if xid.code is None else f"{_GONE[xid.code]} (Xid {xid.code})"
            )
            found.append(Problem("GPU_LOST", f"{gpu} {why}: drain the host and reboot", index))
        elif xid.code in _ECC:
            found.append(Problem("GPU_ECC", f"{gpu} reported a memory error (Xid {xid.code}){whose}", index))
        else:
            found.append(Problem("GPU_XID", f"{gpu} reported Xid {xid.code}{whose}", index))
    return tuple(found)

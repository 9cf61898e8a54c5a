"""nvidia-smi: the query, and a reader that survives every odd answer field by field.

A cell is a number or a reason in brackets; a lost GPU is a line of text between the rows; one unknown field fails the
whole query, on stdout. Exit statuses are those of NVML (nvmlReturn_t). Field names: `nvidia-smi --help-query-gpu`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from tokpit.domain.records import GpuProcess, GpuSample, Problem
from tokpit.domain.text import sanitize
from tokpit.probes.gpu import fraction, number
from tokpit.probes.memory import MemInfo

FIELDS = (
    "index",
    "uuid",
    "pci.bus_id",
    "mig.mode.current",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "power.draw",
    "enforced.power.limit",
    "temperature.gpu",
    "clocks.current.sm",
    "clocks.max.sm",
    "clocks_event_reasons.active",
    "name",
)
"""`name` comes last: it is the only field that may contain a comma."""

ALIASES: Mapping[str, str] = {
    "clocks_event_reasons.active": "clocks_throttle_reasons.active",
    "enforced.power.limit": "power.limit",
    "power.draw": "power.draw.instant",
    "clocks.current.sm": "clocks.sm",
}
"""Another name of a field, tried once where a driver does not know the first."""

_ATTRIBUTES = {
    "memory.used": "mem_used_mib",
    "memory.total": "mem_total_mib",
    "power.draw": "power_w",
    "power.draw.instant": "power_w",
    "power.draw.average": "power_w",
    "enforced.power.limit": "power_limit_w",
    "power.limit": "power_limit_w",
    "temperature.gpu": "temp_c",
    "clocks.current.sm": "sm_clock_mhz",
    "clocks.sm": "sm_clock_mhz",
    "clocks.max.sm": "sm_clock_max_mhz",
}
_REASONS = {
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "power-brake",
}
_REASON_FIELDS = {
    "sw_power_cap": "sw-power-cap",
    "hw_slowdown": "hw-slowdown",
    "sw_thermal_slowdown": "sw-thermal",
    "hw_thermal_slowdown": "hw-thermal",
    "hw_power_brake_slowdown": "power-brake",
}
# Parts without a framebuffer of their own: Grace-Blackwell desktop, Jetson and its automotive kin. GH200 has HBM.
_UNIFIED = re.compile(r"\b(?:GB10|N1X|Tegra|Orin|Thor|Xavier|Jetson)\b", re.IGNORECASE)
_INVALID = re.compile(r"""Field ["']([^"']+)["'] is not a valid field to query""")
_LOST = re.compile(
    r"(?:Unable to determine the device handle for|Unable to (?:query|read)[^:]*for) "
    r"(?:gpu|GPU)\s*(?:(\d{1,3}(?![0-9A-Fa-f]*:[0-9A-Fa-f]{2}:)):?\s*)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)?"
    r"[:.]?\s*(.*)"
)
_HEADER_CELL = re.compile(r"[a-z][a-z0-9_.]*(?: \[[^\]]*\])?")
_SILENT = {"", "n/a", "not supported", "not active", "active", "none", "-"}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of nvidia-smi. `bad_field`: the field that failed the query; nothing else was answered then."""

    gpus: tuple[GpuSample, ...] = ()
    problems: tuple[Problem, ...] = ()
    bad_field: str | None = None
    absent: bool = False
    addresses: dict[int, str] = {}
    """PCI address by index, in lower case with four digits of domain."""


def pci(address: str) -> str:
    """A PCI address as the kernel prints it: `00000000:5F:00.0` and `5f:00` become `0000:5f:00.0`."""
    address = address.strip().lower()
    if address.count(":") == 1:
        address = f"0000:{address}"
    domain, _, rest = address.partition(":")
    return f"{domain[-4:]}:{rest if '.' in rest else rest + '.0'}"


def parse(
    text: str,
    fields: Sequence[str] | None = None,
    *,
    status: int | None = None,
    memory: MemInfo | None = None,
    kernel_module: str = "",
    mig_instances: Mapping[int, int] | None = None,
) -> Answer:
    """GPUs and problems in the CSV answer to `fields`, with or without header and units; never raises.

    Cells are taken by position, not by header name: drivers rename fields. Without `fields` the header names them.
    `memory` is the host's, for GPUs without a memory of their own; `kernel_module` is /proc/driver/nvidia/version.
    """
    problems: list[Problem] = []
    gpus: list[GpuSample] = []
    addresses: dict[int, str] = {}
    failed = _whole(text, status, kernel_module)
    if failed is not None:
        return failed
    names = list(fields or ())
    for line in (sanitize(raw.strip("\r")) for raw in text.split("\n")):
        if not line.strip():
            continue
        if found := _INVALID.search(line):
            field = found.group(1)
            return Answer(
                problems=(Problem("GPU_QUERY_FIELD", f"this driver does not know the field {field}"),),
                bad_field=field,
            )
        if (lost := _lost(line)) is not None:
            problems.append(lost)
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if all(_HEADER_CELL.fullmatch(cell) for cell in cells) and (not names or len(cells) == len(names)):
            names = names or [cell.split(" ")[0] for cell in cells]
            continue
        row = _row(cells, names)
        if row is None:
            continue
        gpu, said = _sample(row, len(gpus), memory, mig_instances or {})
        gpus.append(gpu)
        problems.extend(said)
        if ":" in row.get("pci.bus_id", ""):
            addresses[gpu.index] = pci(row["pci.bus_id"])
    if not gpus and not problems and status:
        line = next((sanitize(raw) for raw in text.splitlines() if raw.strip()), f"exit status {status}")
        problems.append(Problem("GPU_QUERY_FAILED", f"nvidia-smi failed: {line[:200]}"))
    return Answer(gpus=tuple(gpus), problems=tuple(problems), addresses=addresses)


def parse_apps(text: str) -> tuple[GpuProcess, ...]:
    """Rows of `--query-compute-apps=gpu_uuid,pid,used_memory,process_name`, joined to GPUs by uuid, never by index."""
    found = []
    for line in text.split("\n"):
        cells = [cell.strip() for cell in sanitize(line.strip("\r")).split(",", 3)]
        if len(cells) == 4 and cells[1].isdecimal():
            found.append(GpuProcess(cells[0], int(cells[1]), cells[3], number(cells[2])))
    return tuple(found)


def _whole(text: str, status: int | None, kernel_module: str) -> Answer | None:
    """Answers that are about the driver as a whole."""
    if "Driver/library version mismatch" in text:
        library = re.search(r"NVML library version:\s*([\d.]+)", text)
        module = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", kernel_module)
        versions = f"kernel module {module.group(1) if module else 'unknown'}, library " + (
            library.group(1) if library else "unknown"
        )
        sentence = (
            f"NVIDIA driver and library differ ({versions}): reboot or reload the module; "
            "a server that runs keeps running, do not restart it before"
        )
        return Answer(problems=(Problem("DRIVER_MISMATCH", sentence),))
    if "couldn't communicate with the NVIDIA driver" in text or (status == 9 and "," not in text):
        sentence = "the NVIDIA driver is not running: load the kernel module (modprobe nvidia) or reboot"
        return Answer(problems=(Problem("NO_DRIVER", sentence),))
    if status == 127 or (status == 126 and "," not in text):
        return Answer(problems=(Problem("NO_NVIDIA", "no NVIDIA GPU", info=True),), absent=True)
    if "No devices were found" in text:
        return Answer(problems=(Problem("GPU_NONE", "the NVIDIA driver finds no GPU"),))
    if status == 12 or "couldn't find libnvidia-ml.so" in text:
        return Answer(problems=(Problem("NO_DRIVER", "the NVIDIA library (libnvidia-ml.so) is not installed"),))
    return None


def _lost(line: str) -> Problem | None:
    found = _LOST.search(line)
    if found is None and "GPU is lost" not in line:
        return None
    index, address, why = found.groups() if found else (None, None, line)
    place = f"GPU {index}" if index else "a GPU"
    where = f" at {pci(address)}" if address else ""
    why = (why or "lost").strip().rstrip(".")
    return Problem(
        "GPU_LOST",
        f"{place}{where} is lost ({why}): reboot the host; do not start servers on it",
        int(index) if index else None,
    )


def _row(cells: list[str], names: Sequence[str]) -> dict[str, str] | None:
    """Cells by field name; a name with commas takes the cells in excess. None: this line is no row."""
    if not names or len(cells) < len(names):
        return None
    excess = len(cells) - len(names)
    if excess:
        if "name" not in names:
            return None
        at = list(names).index("name")
        cells = [*cells[:at], ", ".join(cells[at : at + excess + 1]), *cells[at + excess + 1 :]]
    row = dict(zip(names, cells, strict=True))
    if "index" in row and not row["index"].isdecimal():
        return None
    return row


def _sample(
    row: Mapping[str, str], position: int, memory: MemInfo | None, mig_instances: Mapping[int, int]
) -> tuple[GpuSample, list[Problem]]:
    index = int(row["index"]) if row.get("index", "").isdecimal() else position
    problems: list[Problem] = []
    figures: dict[str, float] = {}
    for field, attribute in _ATTRIBUTES.items():
        value = number(row.get(field, ""))
        if value is not None and value >= 0:
            figures.setdefault(attribute, value)
    name = row.get("name", "")
    unified = bool(_UNIFIED.search(name))
    if unified:
        problems += _unified(index, name, figures, memory)
    mig = row.get("mig.mode.current", "").lower() == "enabled"
    if mig:
        count = mig_instances.get(index)
        instances = f" ({count} instances)" if count is not None else ""
        problems.append(
            Problem(
                "GPU_MIG",
                f"GPU {index} is in MIG mode{instances}: utilisation is not available; "
                "CUDA_VISIBLE_DEVICES must name a MIG UUID, and tensor parallelism cannot span instances",
                index,
                info=True,
            )
        )
    errors = unreadable(row)
    metrics = [field for field in row if field not in ("index", "uuid", "name", "pci.bus_id")]
    gone = len(metrics) >= 3 and all("error" in errors.get(field, "").lower() for field in metrics)
    if gone:
        problems.append(Problem("GPU_LOST", f"GPU {index} answers nothing but errors: reboot the host", index))
    else:
        problems += [_unreadable(index, field, reason) for field, reason in errors.items()]
    asked = {"memory.used", "memory.total"} & set(row)
    silent = not asked & set(errors) and not {"mem_used_mib", "mem_total_mib"} & set(figures)
    if asked and silent and not unified and not mig:
        problems.append(
            Problem("GPU_MEM_UNKNOWN", f"GPU {index} does not tell its memory: check `nvidia-smi -q` and driver", index)
        )
    sample = GpuSample(
        index=index,
        uuid=row.get("uuid", ""),
        name=name,
        util=None if mig else fraction(number(row.get("utilization.gpu", ""))),
        throttle=_throttle(row),
        unified=unified,
        mig=mig,
        **figures,
    )
    capped = power_capped(sample)
    return sample, [*problems, capped] if capped else problems


def _unified(index: int, name: str, figures: dict[str, float], memory: MemInfo | None) -> list[Problem]:
    """Put the host's memory in the place of the driver's, which differs between drivers and is often absent."""
    driver = figures.pop("mem_used_mib", None)
    figures.pop("mem_total_mib", None)
    if memory is None or memory.total is None or memory.available is None:
        return [Problem("GPU_UNIFIED", f"{name}: unified memory, and the host's memory is not known", index, info=True)]
    used = (memory.total - memory.available) / 2**20
    figures["mem_used_mib"], figures["mem_total_mib"] = used, memory.total / 2**20
    sentence = f"{name}: unified memory, {used / 1024:.1f} of {memory.total / 2**30:.1f} GiB of the host in use"
    if driver is not None and abs(driver - used) > 0.05 * memory.total / 2**20:
        sentence += f" (the driver says {driver / 1024:.1f} GiB; the host's figure is shown)"
    return [Problem("GPU_UNIFIED", sentence, index, info=True)]


def unreadable(row: Mapping[str, str]) -> dict[str, str]:
    """Field -> reason for cells that hold an error text instead of a value; `[N/A]` and its kin are no errors."""
    errors = {}
    for field, cell in row.items():
        if field in ("index", "uuid", "name", "pci.bus_id"):
            continue
        bare = cell.strip("[]").strip()
        is_text = cell.startswith("[") or bare.upper().startswith(("ERR", "UNKNOWN ERROR", "GPU "))
        if is_text and bare.lower() not in _SILENT:
            errors[field] = bare
    return errors


def _unreadable(index: int, field: str, reason: str) -> Problem:
    low = reason.lower()
    if "requires reset" in low:
        return Problem("GPU_REQUIRES_RESET", f"GPU {index} requires a reset ({field}: {reason})", index)
    if "lost" in low:
        return Problem("GPU_LOST", f"GPU {index} is lost ({field}: {reason}): reboot the host", index)
    if "permission" in low:
        return Problem("GPU_NO_PERMISSION", f"GPU {index}: {field} needs more rights ({reason})", index, info=True)
    return Problem("GPU_TRANSIENT", f"GPU {index}: {field} unreadable ({reason})", index)


def _throttle(row: Mapping[str, str]) -> tuple[str, ...]:
    found: list[str] = []
    for field, cell in row.items():
        family, _, reason = field.rpartition(".")
        if family not in ("clocks_event_reasons", "clocks_throttle_reasons"):
            continue
        if reason == "active" and cell.lower().startswith("0x"):
            try:
                mask = int(cell, 16)
            except ValueError:
                continue
            found += [name for bit, name in _REASONS.items() if mask & bit]
        elif reason in _REASON_FIELDS and cell.lower() == "active":
            found.append(_REASON_FIELDS[reason])
    return tuple(dict.fromkeys(found))


def power_capped(gpu: GpuSample) -> Problem | None:
    """Said for information where the power limit slows the GPU: runs compare only at equal limits."""
    if "sw-power-cap" not in gpu.throttle:
        return None
    figures = ""
    if gpu.power_w is not None and gpu.power_limit_w:
        figures = f" ({gpu.power_w:.1f} of {gpu.power_limit_w:.0f} W)"
    return Problem("GPU_POWER_CAPPED", f"GPU {gpu.index} is at its power limit{figures}", gpu.index, info=True)

"""The simulated host's `nvidia-smi`: what the engines hold and do, in the driver's output forms.

Run as `python -IS smi.py ROOT [options]`. Understands `--query-gpu`, `--query-compute-apps`, `--format`, `-l`, `-lms`,
`-i`, `-L`, `--help-query-gpu` and the plain table; an unknown field fails the whole query, as the driver's tool does.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, TextIO

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tokpit.sim import machine, story

Cell = tuple[str, str]
"""Value and unit."""

_INVALID_ARGUMENT = 2


class Gpu:
    """The one GPU at one moment."""

    def __init__(self, root: Path) -> None:
        self.now = machine.read_clock(root).now()
        self.holders = machine.holders(root)
        self.used_mib = round(640 + sum(float(h["mem_mib"]) for h in self.holders)) if self.holders else 4
        self.util = max((float(h["util"]) for h in self.holders), default=0.0)
        self.busy = self.util > 0
        self.power_w = 24.0 + 0.4 * len(self.holders) + (self.util * 4.6 if self.busy else 0.0)
        self.power_w += max((float(h["running"]) for h in self.holders), default=0.0) * 4.0
        self.temp_c = round(31 + self.power_w / 13)
        self.sm_mhz = 2445 if self.busy else (2295 if self.holders else 180)
        self.mem_mhz = 14001 if self.holders else 405


def _fields(gpu: Gpu) -> dict[str, Cell]:
    stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(gpu.now)) + f".{int(gpu.now * 1000) % 1000:03d}"
    total = story.GPU_MEM_MIB
    power = f"{gpu.power_w:.2f}"
    limit = f"{story.GPU_POWER_LIMIT_W:.2f}"
    mem_util = str(round(gpu.util * 0.9))
    idle = "0x0000000000000000" if gpu.busy else "0x0000000000000001"
    table: dict[str, Cell] = {
        "timestamp": (stamp, ""),
        "driver_version": (story.DRIVER_VERSION, ""),
        "count": ("1", ""),
        "index": ("0", ""),
        "name": (story.GPU_NAME, ""),
        "uuid": (story.GPU_UUID, ""),
        "serial": ("[N/A]", ""),
        "pci.bus_id": (story.GPU_BUS_ID, ""),
        "pci.bus": ("0x41", ""),
        "compute_cap": ("12.0", ""),
        "compute_mode": ("Default", ""),
        "persistence_mode": ("Enabled", ""),
        "display_active": ("Disabled", ""),
        "mig.mode.current": ("Disabled", ""),
        "mig.mode.pending": ("Disabled", ""),
        "fan.speed": (str(30 + round(gpu.util * 0.35)), "%"),
        "pstate": ("P1" if gpu.holders else "P8", ""),
        "utilization.gpu": (str(round(gpu.util)), "%"),
        "utilization.memory": (mem_util, "%"),
        "memory.total": (str(total), "MiB"),
        "memory.reserved": ("640", "MiB"),
        "memory.used": (str(gpu.used_mib), "MiB"),
        "memory.free": (str(total - gpu.used_mib), "MiB"),
        "temperature.gpu": (str(gpu.temp_c), ""),
        "temperature.memory": ("N/A", ""),
        "power.management": ("Enabled", ""),
        "power.draw": (power, "W"),
        "power.draw.instant": (power, "W"),
        "power.draw.average": (power, "W"),
        "power.limit": (limit, "W"),
        "enforced.power.limit": (limit, "W"),
        "power.default_limit": (limit, "W"),
        "power.max_limit": (limit, "W"),
        "power.min_limit": ("150.00", "W"),
        "clocks.sm": (str(gpu.sm_mhz), "MHz"),
        "clocks.gr": (str(gpu.sm_mhz), "MHz"),
        "clocks.mem": (str(gpu.mem_mhz), "MHz"),
        "clocks.max.sm": ("3090", "MHz"),
        "clocks.max.gr": ("3090", "MHz"),
        "clocks.max.mem": ("14001", "MHz"),
        "clocks_event_reasons.active": (idle, ""),
        "clocks_event_reasons.supported": ("0x00000000000001FF", ""),
        "clocks_event_reasons.sw_power_cap": ("Not Active", ""),
        "clocks_event_reasons.hw_slowdown": ("Not Active", ""),
        "clocks_event_reasons.hw_thermal_slowdown": ("Not Active", ""),
        "clocks_event_reasons.sw_thermal_slowdown": ("Not Active", ""),
        "clocks_event_reasons.hw_power_brake_slowdown": ("Not Active", ""),
        "clocks_event_reasons.gpu_idle": ("Not Active" if gpu.busy else "Active", ""),
        "pcie.link.gen.current": ("5" if gpu.holders else "1", ""),
        "pcie.link.gen.gpucurrent": ("5" if gpu.holders else "1", ""),
        "pcie.link.gen.max": ("5", ""),
        "pcie.link.width.current": ("16", ""),
        "pcie.link.width.max": ("16", ""),
        "ecc.mode.current": ("Disabled", ""),
        "ecc.errors.uncorrected.volatile.total": ("[N/A]", ""),
        "ecc.errors.corrected.volatile.total": ("[N/A]", ""),
    }
    for name in ("sm", "gr", "mem", "memory", "graphics"):
        short = {"memory": "mem", "graphics": "gr"}.get(name, name)
        table[f"clocks.current.{name}"] = table[f"clocks.{short}"]
    for alias, name in (("gpu_name", "name"), ("gpu_uuid", "uuid"), ("gpu_bus_id", "pci.bus_id")):
        table[alias] = table[name]
    return table


def _apps(gpu: Gpu) -> list[dict[str, Cell]]:
    return [
        {
            "timestamp": _fields(gpu)["timestamp"],
            "gpu_name": (story.GPU_NAME, ""),
            "gpu_bus_id": (story.GPU_BUS_ID, ""),
            "gpu_uuid": (story.GPU_UUID, ""),
            "pid": (str(h["worker_pid"]), ""),
            "process_name": ("sglang::scheduler", ""),
            "name": ("sglang::scheduler", ""),
            "used_gpu_memory": (str(round(float(h["mem_mib"]))), "MiB"),
            "used_memory": (str(round(float(h["mem_mib"]))), "MiB"),
        }
        for h in gpu.holders
    ]


_APP_FIELDS = frozenset(
    ("timestamp", "gpu_name", "gpu_bus_id", "gpu_uuid", "pid", "process_name", "name", "used_gpu_memory", "used_memory")
)


def _csv(names: list[str], rows: list[dict[str, Cell]], options: set[str], units: dict[str, str]) -> str:
    lines = []
    if "noheader" not in options:
        lines.append(", ".join(n + (f" [{units[n]}]" if units.get(n) else "") for n in names))
    for row in rows:
        cells = []
        for name in names:
            value, unit = row[name]
            cells.append(f"{value} {unit}" if unit and "nounits" not in options and "N/A" not in value else value)
        lines.append(", ".join(cells))
    return "\n".join(lines)


def _query(root: Path, kind: str, names: list[str], options: set[str], out: TextIO) -> int:
    gpu = Gpu(root)
    fields = _fields(gpu)
    known: Any = fields if kind == "gpu" else _APP_FIELDS
    for name in names:
        if name not in known:
            print(f'Field "{name}" is not a valid field to query.\n', file=out)
            return _INVALID_ARGUMENT
    if kind == "gpu":
        units = {name: unit for name, (_, unit) in fields.items()}
        text = _csv(names, [fields], options, units)
    else:
        text = _csv(names, _apps(gpu), options, {"used_gpu_memory": "MiB", "used_memory": "MiB"})
    if text:
        print(text, file=out, flush=True)
    return 0


def _table(gpu: Gpu) -> str:
    bar = "+" + "-" * 89 + "+"
    state = "P1" if gpu.holders else "P8"
    rows = [
        f"NVIDIA-SMI {story.DRIVER_VERSION}   Driver Version: {story.DRIVER_VERSION}   CUDA Version: 13.0",
        f"  0  {story.GPU_NAME:<52}  On  | {story.GPU_BUS_ID}",
        f"30%  {gpu.temp_c:>3}C  {state}  {gpu.power_w:>6.0f}W / {story.GPU_POWER_LIMIT_W:.0f}W | "
        f"{gpu.used_mib:>6}MiB / {story.GPU_MEM_MIB}MiB | {gpu.util:>5.0f}%  Default",
        "Processes:" if gpu.holders else "No running processes found",
    ]
    rows += [
        f"  0   N/A  N/A  {h['worker_pid']:>9}      C   sglang::scheduler  {h['mem_mib']:>10.0f}MiB"
        for h in gpu.holders
    ]
    head = time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime(gpu.now))
    return "\n".join([head, bar, *(f"| {row:<88}|" for row in rows), bar])


def _log(gpu: Gpu) -> str:
    """The performance part of the long report, which is the only one that tools ask for here."""
    reasons = {"Idle": not gpu.busy, "SW Power Cap": False, "HW Slowdown": False, "SW Thermal Slowdown": False}
    counters = ("SW Power Capping", "Sync Boost", "SW Thermal Slowdown", "HW Thermal Slowdown", "HW Power Braking")
    rows = [
        "==============NVSMI LOG==============\n",
        f"{'Timestamp':<47} : {time.strftime('%a %b %e %H:%M:%S %Y', time.gmtime(gpu.now))}",
        f"{'Driver Version':<47} : {story.DRIVER_VERSION}",
        f"{'Attached GPUs':<47} : 1",
        f"GPU {story.GPU_BUS_ID}",
        f"    {'Performance State':<43} : {'P1' if gpu.holders else 'P8'}",
        "    Clocks Event Reasons",
        *(f"        {name:<39} : {'Active' if on else 'Not Active'}" for name, on in reasons.items()),
        "    Clocks Event Reasons Counters",
        *(f"        {name:<39} : 0 us" for name in counters),
    ]
    return "\n".join(rows)


def main(argv: list[str], out: TextIO = sys.stdout) -> int:
    """Answer one command line; `argv[0]` is the sandbox root. Returns the exit status."""
    root = Path(argv[0])
    query: tuple[str, list[str]] | None = None
    options: set[str] = set()
    every: float | None = None
    detailed = False
    words = iter(argv[1:])
    for word in words:
        name, _, value = word.partition("=")
        if name in {"--query-gpu", "--query-compute-apps", "--query-accounted-apps"}:
            query = ("gpu" if name == "--query-gpu" else "apps", [f.strip() for f in value.split(",") if f.strip()])
        elif name == "--format":
            options = set(value.replace(" ", "").split(","))
        elif name in {"-l", "--loop"}:
            every = float(value or next(words, "5"))
        elif name in {"-lms", "--loop-ms"}:
            every = float(value or next(words, "1000")) / 1000
        elif name in {"-i", "--id"}:
            if (value or next(words, "0")) not in {"0", story.GPU_UUID, story.GPU_BUS_ID}:
                print("No devices were found", file=out)
                return 6
        elif name in {"-L", "--list-gpus"}:
            print(f"GPU 0: {story.GPU_NAME} (UUID: {story.GPU_UUID})", file=out)
            return 0
        elif name == "--help-query-gpu":
            print('List of valid properties to query for the switch "--query-gpu=":\n', file=out)
            for field in _fields(Gpu(root)):
                print(f'"{field}"\n', file=out)
            return 0
        elif name in {"-q", "--query"}:
            detailed = True
        elif name in {"-d", "--display"}:
            value = value or next(words, "")
        else:
            print(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n{word}", file=out)
            return _INVALID_ARGUMENT
    if detailed:
        print(_log(Gpu(root)), file=out)
        return 0
    status = _answer(root, query, options, out)
    while every is not None and status == 0:
        time.sleep(every)
        status = _answer(root, query, options, out)
    return status


def _answer(root: Path, query: tuple[str, list[str]] | None, options: set[str], out: TextIO) -> int:
    if query is not None:
        return _query(root, *query, options, out)
    print(_table(Gpu(root)), file=out, flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(1)

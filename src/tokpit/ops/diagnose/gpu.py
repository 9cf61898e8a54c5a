"""What GPU tools and the kernel log printed, as evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tokpit.domain.records import GpuSample, Problem
from tokpit.probes import amd, nvidia, nvidia_text
from tokpit.probes.memory import MemInfo, parse_meminfo
from tokpit.probes.nvidia_reader import dead_sensor


class GpuTexts:
    """Texts in the order they were read; `result` is what they say together."""

    def __init__(self, env: Mapping[str, str], window_s: float | None) -> None:
        self._env, self._window_s = env, window_s
        self._gpus: list[GpuSample] = []
        self._problems: list[Problem] = []
        self._listed: str = ""
        self._csv: list[str] = []
        self._counters: list[str] = []
        self._amd: list[tuple[GpuSample, ...]] = []
        self._memory: MemInfo | None = None
        self._module = ""

    def add(self, text: str) -> None:
        """One text: nvidia-smi (CSV, -L, -q), rocm-smi, amd-smi, or lines of the kernel log."""
        if ("NVRM" in text and "Xid" in text) or "fallen off the bus" in text:
            self._problems += nvidia_text.xid_problems(nvidia_text.parse_kernel_log(text), {})
        elif "Clocks Event Reasons Counters" in text or "Clocks Throttle Reasons Counters" in text:
            self._counters.append(text)
        elif "MemAvailable:" in text:
            self._memory = parse_meminfo(text)
        elif "NVRM version" in text:
            self._module = text
        elif re.match(r"\s*GPU \d+: .*UUID", text):
            self._listed = text
        elif "gfx_activity" in text or "socket_power" in text:
            read = amd.parse_amd_smi if text.lstrip().startswith(("{", "[")) else amd.parse_amd_csv
            self._take(*read(text), first=True)
        elif "ROCm" in text or "card0" in text or "No JSON data" in text:
            self._take(*amd.parse_rocm_smi(text))
        else:
            self._csv.append(text)

    @property
    def aside(self) -> bool:
        """Whether something was read that says nothing by itself: a list of GPUs, counters, the host's memory."""
        return bool(self._listed or self._counters or self._memory or self._module)

    def _take(self, gpus: tuple[GpuSample, ...], problems: tuple[Problem, ...], *, first: bool = False) -> None:
        """`first`: the better tool of two goes first, in whichever order they were read."""
        self._amd.insert(0 if first else len(self._amd), tuple(gpus))
        self._problems += problems

    def result(self) -> tuple[tuple[GpuSample, ...], tuple[Problem, ...]]:
        """GPUs of the last table, and every problem."""
        listed = nvidia_text.parse_list(self._listed) if self._listed else ()
        polls: dict[int, list[GpuSample]] = {}
        for text in self._csv:
            answer = nvidia.parse(
                text,
                _fields(text, self._csv),
                memory=self._memory,
                kernel_module=self._module,
                mig_instances={gpu.index: len(gpu.instances) for gpu in listed} or None,
            )
            self._gpus = list({gpu.index: gpu for gpu in answer.gpus}.values()) or self._gpus
            self._problems += answer.problems
            for gpu in answer.gpus:
                polls.setdefault(gpu.index, []).append(gpu)
        self._problems += [problem for history in polls.values() if (problem := dead_sensor(history)) is not None]
        if listed and (problem := nvidia_text.order_problem(listed, self._env)) is not None:
            self._problems.append(problem)
        if self._amd:
            best = self._amd[0]
            for other in self._amd[1:]:
                merged, problems = amd.merge(best, other)
                best = tuple(merged)
                self._problems += problems
            self._gpus += best
        self._throttle()
        return tuple(self._gpus), tuple(self._problems)

    def _throttle(self) -> None:
        if not self._counters:
            return
        readings = [nvidia_text.parse_throttle_counters(text) for text in self._counters]
        if len(readings) > 1 and self._window_s:
            self._problems += nvidia_text.throttled_between(readings[0], readings[-1], self._window_s)
            return
        for index, counters in enumerate(readings[-1]):
            told = [f"{name} {value:.3g} s" for name, value in counters.items() if value > 0 and "power" not in name]
            if told:
                text = f"GPU {index} was slowed down since its driver was loaded ({', '.join(told)}): take differences"
                self._problems.append(Problem("GPU_THROTTLED_PAST", f"{text} over each measurement", index, info=True))


_ROW = re.compile(r"^\s*\d+\s*,", re.M)
_BY_UNIT = {
    "W": ("power.draw", "power.limit"),
    "%": ("utilization.gpu", "utilization.memory"),
    "MiB": ("memory.used", "memory.total"),
    "MHz": ("clocks.sm", "clocks.max.sm"),
}


def _fields(text: str, texts: Sequence[str]) -> tuple[str, ...] | None:
    """Fields of a table without a header, by the units of its cells and of those in like tables; None: it has one."""
    if not _ROW.match(text):
        return None
    rows = [line.split(",") for other in texts if _ROW.match(other) for line in other.splitlines() if _ROW.match(line)]
    width = len(text.splitlines()[0].split(","))
    names = ["index"]
    for column in range(1, width):
        cells = [row[column].strip() for row in rows if len(row) == width]
        unit = next((words[1] for cell in cells if len(words := cell.split()) == 2 and words[1] in _BY_UNIT), "")
        left = [name for name in _BY_UNIT.get(unit, ()) if name not in names]
        names.append(left[0] if left else f"column.{column}")
    return tuple(names)

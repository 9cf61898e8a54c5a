"""The state of polling one host's NVIDIA GPUs: fields this driver knows, what was seen before, what errs repeatedly."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from tokpit.domain.records import GpuProcess, GpuSample, Problem
from tokpit.probes import nvidia
from tokpit.probes.gpu import GpuPoll
from tokpit.probes.memory import parse_meminfo
from tokpit.probes.nvidia_text import parse_list, parse_throttle_counters, throttled_between
from tokpit.probes.sections import mark, sections, status_mark, status_of

ALERT_AFTER = 3
"""Reads of a sensor that must fail in a row before anybody is told: single failures are normal."""
_APPS_EVERY = 3
_THROTTLE_EVERY = 15
"""Polls between the questions that change slowly: each is one more start of nvidia-smi, up to a second without
persistence mode."""

_FIND = 'export LC_ALL=C; PATH="$PATH:/usr/bin:/usr/local/nvidia/bin:/usr/lib/wsl/lib:/opt/bin"'


class NvidiaReader:
    """A `GpuReader` for nvidia-smi."""

    def __init__(self) -> None:
        self.fields: tuple[str, ...] = nvidia.FIELDS
        self._tried: set[str] = set(nvidia.FIELDS)
        self._known: dict[int, str] = {}
        self._failures: dict[tuple[int | None, str], int] = {}
        self._history: dict[int, deque[GpuSample]] = {}
        self._mig: dict[int, int] = {}
        self._polls = 0
        self._throttle: tuple[tuple[dict[str, float], ...], float] | None = None
        self._past: tuple[Problem, ...] = ()
        self._apps: tuple[GpuProcess, ...] = ()

    def script(self) -> str:
        """One query of the GPUs and of the processes on them; at times also the slow ones."""
        query = ",".join(self.fields)
        lines = [
            _FIND,
            mark("meminfo"),
            "cat /proc/meminfo",
            mark("gpus"),
            f"nvidia-smi --query-gpu={query} --format=csv,noheader,nounits 2>&1",
            status_mark("status"),
            "if command -v nvidia-smi >/dev/null 2>&1; then",
            mark("module"),
            "cat /proc/driver/nvidia/version 2>/dev/null",
        ]
        if self._polls % _APPS_EVERY == 0:
            lines += [
                mark("apps"),
                "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,process_name"
                " --format=csv,noheader,nounits 2>&1",
            ]
        if self._polls % _THROTTLE_EVERY == 0:
            lines += [mark("list"), "nvidia-smi -L 2>&1"]
            lines += [mark("throttle"), "nvidia-smi -q -d PERFORMANCE 2>&1", mark("uptime"), "cat /proc/uptime"]
        return "\n".join([*lines, mark("end"), "fi", ""])

    def read(self, output: str, took_s: float) -> GpuPoll:
        """GPUs, processes and problems; `again` once for each field that this driver does not know."""
        found = sections(output)
        if "list" in found:
            self._mig = {gpu.index: len(gpu.instances) for gpu in parse_list(found["list"])}
        answer = nvidia.parse(
            found.get("gpus", ""),
            self.fields,
            status=status_of(found, "status"),
            memory=parse_meminfo(found.get("meminfo", "")),
            kernel_module=found.get("module", ""),
            mig_instances=self._mig,
        )
        if answer.bad_field is not None and answer.bad_field in self.fields:
            self.fields = without(self.fields, answer.bad_field, self._tried)
            return GpuPoll(again=True)
        self._polls += 1
        dead = self._dead(answer.gpus)
        problems = [*self._settle(answer.problems), *self._gone(answer), *dead]
        stuck = {problem.index for problem in dead}
        if "apps" in found:
            self._apps = nvidia.parse_apps(found["apps"])
        if "throttle" in found:
            self._past = self._throttled(found["throttle"], found.get("uptime", ""))
        return GpuPoll(
            gpus=tuple(msgspec.structs.replace(g, util=None) if g.index in stuck else g for g in answer.gpus),
            processes=self._apps,
            problems=(*problems, *self._past),
            absent=answer.absent,
        )

    def _settle(self, problems: Sequence[Problem]) -> list[Problem]:
        """Unreadable sensors only after several failures in a row; everything else at once."""
        failures: dict[tuple[int | None, str], int] = {}
        told = []
        for problem in problems:
            if problem.code != "GPU_TRANSIENT":
                told.append(problem)
                continue
            key = (problem.index, problem.text)
            failures[key] = self._failures.get(key, 0) + 1
            if failures[key] >= ALERT_AFTER:
                told.append(Problem("GPU_UNREADABLE", f"{problem.text}, {failures[key]} times in a row", problem.index))
        self._failures = failures
        return told

    def _gone(self, answer: nvidia.Answer) -> list[Problem]:
        """GPUs that answered before and are not in this answer. Their indices stay free: the others keep theirs."""
        if answer.gpus:
            self._known.update({gpu.index: answer.addresses.get(gpu.index, "") for gpu in answer.gpus})
        elif not any(problem.code in ("GPU_LOST", "GPU_NONE") for problem in answer.problems):
            return []
        here = {gpu.index for gpu in answer.gpus}
        said = {problem.index for problem in answer.problems if problem.code == "GPU_LOST"}
        named = " ".join(problem.text for problem in answer.problems if problem.code == "GPU_LOST")
        return [
            Problem("GPU_LOST", f"GPU {index}{f' at {address}' if address else ''} answered before and is gone", index)
            for index, address in self._known.items()
            if index not in here and index not in said and not (address and address in named)
        ]

    def _dead(self, gpus: Sequence[GpuSample]) -> list[Problem]:
        found = []
        for gpu in gpus:
            history = self._history.setdefault(gpu.index, deque(maxlen=8))
            history.append(gpu)
            if problem := dead_sensor(history):
                found.append(problem)
        return found

    def _throttled(self, text: str, uptime: str) -> tuple[Problem, ...]:
        word = uptime.split(" ", 1)[0].strip()
        now = float(word) if word.replace(".", "", 1).isdecimal() else None
        counters = parse_throttle_counters(text)
        earlier, self._throttle = self._throttle, (counters, now) if now is not None and counters else None
        if earlier is None or self._throttle is None:
            return ()
        return throttled_between(earlier[0], counters, self._throttle[1] - earlier[1])


def without(fields: Sequence[str], bad: str, tried: set[str]) -> tuple[str, ...]:
    """The fields with `bad` replaced by its alias where that was not tried yet, else dropped. `tried` is updated."""
    alias = nvidia.ALIASES.get(bad)
    swap = alias is not None and alias not in tried
    if alias is not None:
        tried.add(alias)
    replaced = [(alias if swap and alias else "") if field == bad else field for field in fields]
    return tuple(field for field in replaced if field)


def dead_sensor(history: Sequence[GpuSample]) -> Problem | None:
    """Utilisation that stays 0 while power (and the clock, where known) rises is a dead sensor, not an idle GPU."""
    if len(history) < 4 or any(gpu.util != 0 for gpu in history):
        return None
    power = [gpu.power_w for gpu in history if gpu.power_w is not None]
    clock = [gpu.sm_clock_mhz for gpu in history if gpu.sm_clock_mhz is not None]
    if len(power) < 4 or min(power) <= 0 or sum(p >= 2.5 * min(power) for p in power) < 3:
        return None
    if clock and max(clock) < 2 * min(clock):
        return None
    gpu = history[-1]
    return Problem(
        "GPU_SENSOR_DEAD",
        f"GPU {gpu.index}: utilisation stays 0 while power rose {max(power) / min(power):.0f}x: the sensor is dead; "
        "go by power and clock",
        gpu.index,
    )

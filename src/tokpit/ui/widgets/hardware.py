"""GPUs and host memory."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.records import GpuSample
from tokpit.ui import figures
from tokpit.ui.text import Row, Span, fit, fitting, safe, two_sided, wrap
from tokpit.ui.view import View
from tokpit.ui.widgets.panel import Panel
from tokpit.ui.widgets.tree import short_gpu

_FULL_ROWS = 4
_SHORT_ROWS = 2


class GpuPanel(Panel):
    """Each GPU: name, utilisation, memory, power, temperature, throttling; and what could not be read."""

    def __init__(self, view: View) -> None:
        super().__init__(id="gpus")
        self.view = view

    def topics(self) -> Sequence[str]:
        """The host, and a server that has its GPUs elsewhere."""
        return self.view.topics("host", "server")

    def wanted_rows(self) -> int:
        """Rows of the body that would show everything."""
        record = self.view.gpus
        if record is None:
            return 1
        return max(1, len(record.gpus) * _FULL_ROWS + len(record.problems) * 2)

    def used_rows(self, room: int) -> int:
        """Rows of the body that are used where there are `room` of them: each GPU has four, two or one."""
        record = self.view.gpus
        if record is None or not record.gpus:
            return min(room, self.wanted_rows())
        return min(
            room, len(record.gpus) * _each(len(record.gpus), room, len(record.problems)) + len(record.problems) * 2
        )

    def heading(self, width: int) -> tuple[Row, Row]:
        """Whose they are where that is not the host, and how old the figures are, once they are old."""
        title: list[Span] = [("GPU", "title")]
        if (job := self.view.job) is not None and job.nodes:
            more = f" of {len(job.nodes)}" if len(job.nodes) > 1 else ""
            title.append((f" {safe(job.nodes[0])}{more}", "dim"))
        record = self.view.gpus
        return title, age_spans(self.view, record.t) if record is not None and record.gpus else []

    def body(self, width: int, height: int) -> Sequence[Row]:
        """As much of each GPU as fits: four rows, two, or one."""
        record = self.view.gpus
        if record is None:
            job = self.view.job
            looking = (
                "looking …"
                if job is None
                else "asking the node …"
                if job.alive
                else "the job waits"
                if job.waiting
                else "no job"
            )
            return [[(unknown(self.view, looking), "dim")]]
        rows: list[Row] = []
        if not record.gpus and not record.problems:
            return [[("no NVIDIA GPU", "dim")]]
        each = _each(len(record.gpus), height, len(record.problems))
        stale = self.view.stale(record.t)
        for gpu in record.gpus:
            rows += self._gpu(gpu, each, width, stale)
        for problem in record.problems:
            said = safe(problem.text)
            where = f"GPU {problem.index}: " if problem.index is not None and f"GPU {problem.index}" not in said else ""
            lines = wrap(where + said, width - 2)
            rows += [[("! " if n == 0 else "  ", "warn"), (line, "warn")] for n, line in enumerate(lines)]
        return rows

    def _gpu(self, gpu: GpuSample, rows: int, width: int, stale: bool) -> list[Row]:
        style = "stale" if stale else "fg"
        memory = gpu.mem_used_mib / gpu.mem_total_mib if gpu.mem_used_mib is not None and gpu.mem_total_mib else None
        throttle: list[Span] = [("⚠ " + ", ".join(gpu.throttle), "bad")] if gpu.throttle else []
        temp, power = figures.number(gpu.temp_c, 0), figures.number(gpu.power_w, 0)
        if rows == 1:
            left: list[Span] = [(f"{gpu.index} ", "dim"), (figures.percent(gpu.util).rjust(4), style)]
            left += [(f" {_gib(gpu.mem_used_mib)}G {temp}° {power}W", style)]
            return [two_sided(left, [("⚠", "bad")] if gpu.throttle else [], width)]
        util = gauge_row("util", gpu.util, figures.percent(gpu.util), width, stale)
        if rows == _SHORT_ROWS:
            facts: list[Span] = [("  ", "dim"), (f"{_gib(gpu.mem_used_mib)}/{_gib(gpu.mem_total_mib)}G ", style)]
            facts += throttle or [(f"{power}W {temp}°C", "dim")]
            return [
                [(f"{gpu.index} ", "dim"), *gauge_row("", gpu.util, figures.percent(gpu.util), width - 2, stale)],
                facts,
            ]
        mem_text = f"{_gib(gpu.mem_used_mib)}/{_gib(gpu.mem_total_mib)}G"
        limit = f"/{gpu.power_limit_w:.0f}" if gpu.power_limit_w is not None else ""
        last: list[Span] = [
            (f"{power}{limit} W", style),
            (f"  {temp} °C", heat_style(gpu.temp_c) if not stale else style),
        ]
        if gpu.sm_clock_mhz is not None:
            last = fitting((last, [(f"{gpu.sm_clock_mhz:.0f} MHz", "dim")]), width)[0]
        name: list[Span] = [(f"{gpu.index} ", "dim"), (short_gpu(gpu.name), "fg")]
        return [
            two_sided(name, [("MIG", "dim")] if gpu.mig else [], width),
            util,
            gauge_row("host" if gpu.unified else "mem", memory, mem_text, width, stale),
            throttle or last,
        ]


class MemoryPanel(Panel):
    """Host memory, shared memory, load."""

    def __init__(self, view: View) -> None:
        super().__init__(id="memory")
        self.view = view

    def topics(self) -> Sequence[str]:
        """The host, and what is selected on it."""
        return self.view.topics("host", "server")

    def heading(self, width: int) -> tuple[Row, Row]:
        """How old the figures are, once they are old."""
        memory = self.view.host_state.memory if self.view.host_state else None
        name = "host" if self.view.job is None else "login host"
        return [(name, "title")], age_spans(self.view, memory.t) if memory else []

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Memory first, then processor, then the rest."""
        memory = self.view.host_state.memory if self.view.host_state else None
        if memory is None:
            return [[(unknown(self.view), "dim")]]
        stale = self.view.stale(memory.t)
        total, available = memory.mem_total_bytes, memory.mem_available_bytes
        used = total - available if total is not None and available is not None else None
        share = used / total if used is not None and total else None
        text = f"{_g(used)}/{_g(total)}G"
        cpu = f"{figures.percent(memory.cpu_util)}" + (f" of {memory.cores}" if memory.cores else "")
        rows: list[Row] = [
            gauge_row("mem", share, text, width, stale, alarm=True),
            gauge_row("cpu", memory.cpu_util, cpu, width, stale),
        ]
        extra: list[Span] = []
        if memory.swap_used_bytes:
            extra.append((f"swap {_g(memory.swap_used_bytes)}G  ", "warn"))
        if memory.shm_bytes is not None:
            extra.append((f"shm {_g(memory.shm_bytes)}G  ", "dim"))
        if memory.load1 is not None:
            extra.append((f"load {memory.load1:.1f}", "dim"))
        return [*rows, extra] if extra else rows


def _each(gpus: int, height: int, problems: int) -> int:
    """Rows for one GPU."""
    room = max(1, height - problems)
    return next((n for n in (_FULL_ROWS, _SHORT_ROWS) if gpus * n <= room), 1)


def gauge_row(
    label: str, fraction: float | None, text: str, width: int, stale: bool, *, alarm: bool = False
) -> list[Span]:
    """`util ████████──── 97%`: label, bar, figure at the right; `alarm`: the fuller, the warmer."""
    head = fit(label, 5) if label else ""
    room = width - len(head) - len(text) - 1
    if room < 4:
        return two_sided([(head, "dim")], [(text, "stale" if stale else "fg")], width)
    filled, rest = figures.bar(fraction, room)
    return [
        (head, "dim"),
        (filled, "stale" if stale else figures.heat(fraction) if alarm else "gauge-low"),
        (rest, "track"),
        (" " + text, "stale" if stale else "fg"),
    ]


def unknown(view: View, looking: str = "looking …") -> str:
    """Why there is no figure of a machine."""
    if view.host is None:
        return "no host"
    if view.past is not None:
        return "not known then"
    return looking if view.linked() else "not known: no link"


def heat_style(temp_c: float | None) -> str:
    """Style of a GPU temperature."""
    return "dim" if temp_c is None else "bad" if temp_c >= 88 else "warn" if temp_c >= 80 else "fg"


def age_spans(view: View, t: float | None) -> Row:
    """`12s old` once a figure is not fresh; nothing while it is."""
    age = view.age(t)
    if age is None:
        return []
    if view.stale(t):
        return [(f"stale, {figures.duration(age)} old", "warn")]
    return [(f"{figures.duration(age)} old", "dim")] if age > 6 else []


def _gib(mib: float | None) -> str:
    return figures.NA if mib is None else f"{mib / 1024:.0f}"


def _g(count: float | None) -> str:
    return figures.NA if count is None else f"{count / figures.GIB:.0f}"

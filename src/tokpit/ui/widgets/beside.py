"""What the server and its GPUs do while a sweep runs, in two rows: the same figures that the charts draw."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.store.live import ServerState
from tokpit.ui import figures
from tokpit.ui.text import Row, Span, fitting
from tokpit.ui.view import View
from tokpit.ui.widgets.panel import Panel

_SHARES = (("kv_usage", "KV"), ("state_usage", "state"), ("swa_usage", "SWA"), ("host_cache_usage", "host"))


class BesidePanel(Panel):
    """Running, queued and cap, rate, acceptance, caches; then each GPU as far as it fits."""

    def __init__(self, view: View) -> None:
        super().__init__(id="beside")
        self.view = view

    def topics(self) -> Sequence[str]:
        """The server and its host."""
        return (*self.view.topics("server"), *self.view.topics("host"))

    def heading(self, width: int) -> tuple[Row, Row]:
        """Whose figures they are."""
        return [("server and GPU now", "title")], []

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Two rows."""
        server = self.view.server
        rows = (
            [fitting(_server_parts(self.view, server), width, gap=3)[0]]
            if server is not None
            else [[("not known yet", "dim")]]
        )
        rows.append(fitting(self._gpus(), width, gap=3)[0])
        return rows

    def _gpus(self) -> list[list[Span]]:
        record = self.view.gpus
        if record is None or not record.gpus:
            return [[("no GPU figures", "dim")]]
        style = "stale" if self.view.stale(record.t) else "fg"
        parts = []
        for gpu in record.gpus:
            used, total = gpu.mem_used_mib, gpu.mem_total_mib
            memory = f" {used / 1024:.0f}/{total / 1024:.0f}G" if used is not None and total else ""
            part: list[Span] = [(f"GPU{gpu.index} ", "dim"), (f"{figures.percent(gpu.util)}{memory}", style)]
            part.append((f" {figures.number(gpu.power_w, 0)}W {figures.number(gpu.temp_c, 0)}°", style))
            if gpu.throttle:
                part.append((f" ⚠ {gpu.throttle[0]}", "bad"))
            parts.append(part)
        return parts


def _server_parts(view: View, server: ServerState) -> list[list[Span]]:
    def last(tag: str) -> float | None:
        return server.series[tag].last if tag in server.series else None

    def style(tag: str, usual: str = "fg") -> str:
        at = server.series[tag].last_t if tag in server.series else None
        return "stale" if at is not None and view.stale_here(at) else usual

    running, queued, cap = last("running_reqs"), last("queue_reqs"), last("max_running_reqs")
    of = f"/{cap:.0f}" if cap else ""
    full = cap is not None and running is not None and running >= cap
    parts: list[list[Span]] = [
        [
            ("running ", "dim"),
            (figures.number(running, 0) + of, style("running_reqs", "warn-bold" if full and queued else "fg")),
        ],
        [("queued ", "dim"), (figures.number(queued, 0), style("queue_reqs", "warn-bold" if queued else "fg"))],
        [("gen ", "dim"), (f"{figures.fixed(last('gen_tps'))} tok/s", style("gen_tps"))],
    ]
    for tag, name in _SHARES:
        if (value := last(tag)) is not None:
            parts.append([(f"{name} ", "dim"), (figures.percent(value), style(tag))])
    if (length := last("accept_len")) is not None:
        parts.append([("accept ", "dim"), (f"{length:.2f}", style("accept_len"))])
    return parts

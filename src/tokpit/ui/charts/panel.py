"""A live chart of one or more metrics of the selected server: axes, current values, their age, marks of events."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from textual import events

from tokpit.domain.metrics import metric
from tokpit.store.live import Series, ServerState
from tokpit.ui import figures
from tokpit.ui.charts.braille import BrailleCanvas, gutter_width
from tokpit.ui.charts.model import Chart, ChartCanvas, Curve, nice_top, time_ticks, with_gaps, y_ticks
from tokpit.ui.charts.plotext_canvas import PlotextCanvas
from tokpit.ui.palette import SERIES
from tokpit.ui.text import Row, Span, fitting, row_width, safe, wrap
from tokpit.ui.view import View
from tokpit.ui.widgets.panel import Panel

PLOTEXT_MIN = (36, 8)
"""Width and height of a body from which the larger engine is worth its cost."""
NARROW = 30
NO_FIGURES = "no figures yet: neither its log nor its metrics page gave one"


@dataclass(frozen=True)
class ChartSpec:
    """What a chart shows: metric tags with one unit; `caps` are drawn as level lines where known; `always` keeps it."""

    id: str
    title: str
    tags: tuple[str, ...]
    floor: float = 1.0
    always: bool = False
    short: str = ""
    """Title where there is little room."""
    low: float = 0.0


LIVE_CHARTS = (
    ChartSpec("chart-gen", "generation", ("gen_tps",), floor=10.0, always=True, short="gen"),
    ChartSpec(
        "chart-batch",
        "requests",
        ("running_reqs", "queue_reqs", "max_running_reqs"),
        floor=4.0,
        always=True,
        short="reqs",
    ),
    ChartSpec("chart-accept", "acceptance", ("accept_len",), floor=2.0, low=1.0, short="accept"),
    ChartSpec(
        "chart-cache",
        "cache use",
        ("kv_usage", "state_usage", "swa_usage", "host_cache_usage", "host_state_usage"),
        floor=1.0,
        short="cache",
    ),
    ChartSpec("chart-prefill", "prefill", ("prompt_tps",), floor=100.0),
    ChartSpec("chart-latency", "TTFT", ("ttft_p50_s", "ttft_p99_s"), floor=0.1),
    ChartSpec("chart-prefix", "prefix hits", ("prefix_hit_rate",), floor=1.0, short="prefix"),
    ChartSpec("chart-itl", "ITL", ("itl_p50_s", "itl_p99_s"), floor=0.05),
)
_SHORT = {
    "running_reqs": "run",
    "queue_reqs": "queue",
    "max_running_reqs": "cap",
    "kv_usage": "KV",
    "state_usage": "state",
    "swa_usage": "SWA",
    "host_cache_usage": "host",
    "host_state_usage": "host states",
    "ttft_p50_s": "p50",
    "ttft_p99_s": "p99",
    "itl_p50_s": "p50",
    "itl_p99_s": "p99",
}


class ChartPanel(Panel):
    """See the module docstring. `engine`: `auto`, `plotext` or `braille`."""

    DEFAULT_CSS = "ChartPanel { min-width: 10; min-height: 3; }"

    def __init__(self, view: View, spec: ChartSpec, *, engine: str = "auto") -> None:
        super().__init__(id=spec.id)
        self.view = view
        self.spec = spec
        self._engine = engine
        self._braille: ChartCanvas = BrailleCanvas()
        self._plotext: ChartCanvas = PlotextCanvas()
        self.min_interval_s = 0.45
        self._plot = (0, 0, 0.0, 0.0)
        """Cells left of the plot, its cells, its range of time."""

    def topics(self) -> Sequence[str]:
        """The server."""
        return self.view.topics("server")

    def canvas(self, width: int, height: int) -> ChartCanvas:
        """The engine for this size; the larger one at most once a second."""
        ready = getattr(self.app, "plotext_ready", False) and self.view.past is None
        large = width >= PLOTEXT_MIN[0] and height >= PLOTEXT_MIN[1]
        if ready and (self._engine == "plotext" or (self._engine == "auto" and large)):
            self.min_interval_s = 0.95
            return self._plotext
        self.min_interval_s = 0.45
        return self._braille

    def has_data(self, server: ServerState | None) -> bool:
        """Whether any of the metrics has ever had a value."""
        return server is not None and any(
            t in server.series and server.series[t].last is not None for t in self.spec.tags
        )

    def heading(self, width: int) -> tuple[Row, Row]:
        """Title, then each current value in its curve's colour, and the age once it is not fresh."""
        server = self.view.server
        name = self.spec.short if self.spec.short and width < NARROW else self.spec.title
        title: Row = [(name, "title")]
        if not self.has_data(server) or server is None:
            return title, []
        parts: list[list[Span]] = []
        newest: float | None = None
        for tag, style in zip(self.spec.tags, SERIES, strict=False):
            series = server.series.get(tag)
            if series is None or series.last is None:
                continue
            newest = max(newest or 0.0, series.last_t or 0.0)
            value = figures.quantity(series.last, metric(tag).unit)
            stale = self.view.stale_here(series.last_t)
            part: list[Span] = []
            if tag in _SHORT:
                part.append((_SHORT[tag] + " ", "dim"))
                value = value.removesuffix(" req")
            if stale and width < NARROW:
                value = value.partition(" ")[0]
            parts.append([*part, (value, "stale" if stale else style)])
        gap = 2 if width >= NARROW else 1
        if (cap := self._told_cap(server)) is not None:
            told: list[Span] = [("cap ", "dim"), (f"{cap:g}", SERIES[2])]
            if row_width(title) + sum(row_width(part) + gap for part in [*parts, told]) + 2 <= width:
                parts.append(told)
        age = self.view.age(newest)
        last: list[Span] = []
        if age is not None and self.view.stale_here(newest):
            last = [(" " + figures.duration(age) + (" old" if width >= NARROW else ""), "warn")]
        whole = sum(row_width(part) + gap for part in parts) - gap + row_width(last)
        if self.spec.short and row_width(title) + whole + 2 > width:
            title = [(self.spec.short, "title")]
        # An age is never cut: figures give way to it, and how many did is told.
        room = width - row_width(title) - 1 - row_width(last)
        spans, left_out = fitting(parts, room, gap=gap)
        if left_out:
            if metric(self.spec.tags[0]).unit == "fraction":  # of shares the fullest is the one to know
                parts.sort(key=lambda part: -float(part[-1][0].rstrip("%")))
            spans, left_out = fitting(parts, room - 3, gap=gap)
            spans.append((f" +{left_out}", "dim"))
        return title, [*spans, *last]

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The chart, or the sentence that says why there is none."""
        server = self.view.server
        if server is None:
            return []
        if not self.has_data(server):
            note = server.facts.get("metrics_note") if self.spec.always else None
            said = safe(note) if note else NO_FIGURES if self.spec.always else "no figures yet"
            return [[(line, "dim")] for line in wrap(said, width)]
        whole = self.view.live_server or server
        chart = self.chart(whole, width, height)
        gutter = gutter_width(chart.y_ticks) + 1
        self._plot = (gutter, max(1, width - gutter), *chart.x_range)
        return self.canvas(width, height).draw(chart, width, height)

    def on_click(self, event: events.Click) -> None:
        """Read everything at the moment that was pointed at."""
        gutter, cells, start, end = self._plot
        x = event.x - (self.size.width - self.inner_size().width) // 2 - gutter
        if self.view.host is None or not 0 <= x < cells or cells < 2:
            return
        from tokpit.ui.screens.timekeys import TimedScreen

        wall = self.view.clock.wall_of(self.view.host, start + (end - start) * x / (cells - 1))
        self.post_message(TimedScreen.TimeChosen(wall))

    def chart(self, server: ServerState, width: int, height: int) -> Chart:
        """The chart as data, for a body of that size."""
        now = self._end(server)
        start = now - self.view.window_s
        unit = metric(self.spec.tags[0]).unit
        curves = []
        top = self.spec.floor
        for tag, style in zip(self.spec.tags, SERIES, strict=False):
            series = server.series.get(tag)
            if series is None or series.last is None:
                continue
            xs, ys = series.since(start)
            if self.view.past is not None:
                kept = bisect_right(xs, now)
                xs, ys = xs[:kept], ys[:kept]
            gap = _gap(series, self.view)
            curves.append(Curve(tag, style, *with_gaps(xs, ys, gap)))
            top = max(top, max(ys, default=0.0))
        if (cap := self._told_cap(server)) is not None:
            curves.append(Curve("cap", SERIES[2], [start, now], [cap] * 2))
            top = max(top, cap)
        high = 1.0 if unit == "fraction" else nice_top(top * 1.02, floor=self.spec.floor)
        ticks = y_ticks(self.spec.low, high, height - 1, lambda v: figures.tick(v, unit))
        marks = apart([(m.kind, m.t) for m in server.marks if m.t >= start], self.view.window_s / max(1, width) * 3)
        return Chart(
            tuple(reversed(curves)),
            (start, now),
            (self.spec.low, high),
            time_ticks(now, self.view.window_s, width - 6, self._end_label(now)) if height >= 4 else (),
            ticks,
            marks,
            self.view.now() if self.view.past is not None else None,
        )

    def _end_label(self, end: float) -> str:
        """What stands at the right edge: `now`, or the time of day (UTC, on the host's clock)."""
        if self.view.past is None and self.view.player is None:
            return "now"
        return time.strftime("%H:%M:%S", time.gmtime(end))

    def _told_cap(self, server: ServerState) -> float | None:
        """The cap of running requests for the chart of them, where only the log has told it once."""
        series = server.series.get("max_running_reqs")
        cap = server.facts.get("max_running_reqs")
        sampled = series is not None and series.last is not None
        return float(cap) if self.spec.id == "chart-batch" and isinstance(cap, (int, float)) and not sampled else None

    def _end(self, server: ServerState) -> float:
        """The right edge: now; the newest figure of a server that has gone, so that its last minutes stay in view."""
        if server.alive or self.view.past is not None:
            return self.view.edge_now()
        return max((s.last_t or 0.0 for s in server.series.values()), default=self.view.now())


def apart(marks: Sequence[tuple[str, float]], least_s: float) -> tuple[float, ...]:
    """Times of marks (kind, time); of several of one kind within `least_s` of the one drawn only that one."""
    drawn: dict[str, float] = {}
    times: list[float] = []
    for kind, t in sorted(marks, key=lambda mark: mark[1]):
        if kind not in drawn or t - drawn[kind] >= least_s:
            drawn[kind] = t
            times.append(t)
    return tuple(times)


def _gap(series: Series, view: View) -> float:
    """Silence longer than this is a gap: eight usual steps, and at least five seconds of real time."""
    times = list(series.times)[-60:]
    steps = sorted(b - a for a, b in pairwise(times))
    usual = steps[len(steps) // 2] if steps else 1.0
    return max(usual * 8, 5.0 * (view.clock.factor(view.host) if view.host else 1.0))

"""Fleet: every host in one row, drawn by one widget, so that 64 of them cost what the rows in view cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.app import ComposeResult

from tokpit.domain.records import LinkState
from tokpit.store.live import HostState, ServerState
from tokpit.ui import figures
from tokpit.ui.actions import bindings_for
from tokpit.ui.screens.timekeys import TimedScreen
from tokpit.ui.text import Row, Span, crop, fit, safe
from tokpit.ui.view import View, engine_title, model_name, phase_of, simulated_label
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.header import LINKS, PHASES, link_trouble
from tokpit.ui.widgets.panel import Panel
from tokpit.ui.widgets.scrolled import ScrolledPanel
from tokpit.ui.widgets.timebar import TimeBar
from tokpit.ui.widgets.tree import short_gpu

WIDE, MIDDLE = 150, 110
_COLUMNS = {
    WIDE: {"host": 20, "link": 10, "GPUs": 26, "util": 5, "mem": 5, "power": 7, "temp": 5, "tok/s": 8, "run": 5,
           "queue": 6},
    MIDDLE: {"host": 14, "link": 8, "GPUs": 14, "util": 5, "mem": 5, "power": 7, "temp": 5, "tok/s": 8, "run": 4,
             "queue": 6},
    0: {"host": 12, "link": 8, "GPUs": 10, "util": 5, "mem": 5, "tok/s": 8, "run": 4, "queue": 6},
}  # fmt: skip
_LEFT = frozenset({"host", "link", "GPUs"})


def columns_for(width: int) -> dict[str, int]:
    """Width of each column in a panel of that width; `servers` takes what is left."""
    return next(columns for least, columns in _COLUMNS.items() if width >= least)


class FleetPanel(ScrolledPanel):
    """See the module docstring."""

    min_interval_s = 0.45

    def __init__(self, view: View) -> None:
        super().__init__(id="fleet")
        self.view = view
        self.cursor = max(0, self.names().index(view.host)) if view.host in self.names() else 0

    def names(self) -> list[str]:
        """Every host, in the order of the tree."""
        return list(dict.fromkeys([*self.view.session.host_specs, *self.view.store.hosts]))

    def topics(self) -> Sequence[str]:
        """Everything."""
        store = self.view.store
        servers = (f"server:{i}" for state in store.hosts.values() for i in state.server_ids)
        return ("hosts", *(f"host:{name}" for name in store.hosts), *servers)

    def heading(self, width: int) -> tuple[Row, Row]:
        """How many, and how many are not reached."""
        names = self.names()
        down = sum(1 for name in names if not self.view.linked(name))
        right: list[Span] = [(f"{down} not reached  ", "bad")] if down else []
        return [("fleet", "title"), (f"  {len(names)} host{'s' if len(names) != 1 else ''}", "dim")], [
            *right,
            *self.place(),
        ]

    def place(self) -> Row:
        """Which rows are in view, where not all are."""
        height, count = self.inner_size().height - 1, len(self.names())
        return [(f"↑↓ {self.top + 1}-{min(count, self.top + height)} of {count}", "dim")] if count > height else []

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Column names and the hosts in view."""
        names = self.names()
        if not names:
            return [[("no hosts yet: give them on the command line, or in the inventory", "dim")]]
        room = max(1, height - 1)
        self._count = len(names)
        self.top = max(0, min(self.top, len(names) - room))
        shown = names[self.top : self.top + room]
        columns = columns_for(width)
        head = [(fit(name, w, right=name not in _LEFT) + " ", "dim") for name, w in columns.items()]
        made = (self._row(name, self.top + n, columns) for n, name in enumerate(shown))
        return [[*head, ("servers", "dim")], *made]

    def _row(self, name: str, index: int, columns: Mapping[str, int]) -> Row:
        state = self.view.store.hosts.get(name)
        glyph, word, style = LINKS[state.link.state if state is not None and state.link is not None else LinkState.NEW]
        label = " ✧" if simulated_label(self.view.session, name) else ""
        title = fit(crop(safe(name), columns["host"] - len(label)) + label, columns["host"]) + " "
        row: list[Span] = [(title, "cursor" if index == self.cursor else "bold")]
        up = state is not None and state.link is not None and state.link.state is LinkState.UP
        rtt = state.link.rtt_s if up and state is not None and state.link is not None else None
        row.append(
            (fit(f"{glyph} {figures.number(rtt * 1000, 0)} ms" if rtt is not None else f"{glyph} {word}", 10), style)
        )
        row.append((" ", "fg"))
        if state is None:
            return row
        trouble = link_trouble(state.link)
        if trouble and state.gpus is None and not state.server_ids:
            return [*row, (trouble, "bad")]
        return [*row, *self._gpus(state, columns), *self._load(state, columns), *self._servers(state, trouble)]

    def _gpus(self, state: HostState, columns: Mapping[str, int]) -> list[Span]:
        record = state.gpus
        if record is None or not record.gpus:
            said = "" if record is None else "no GPU" if not record.problems else "see the cockpit"
            rest = sum(columns[name] + 1 for name in ("util", "mem", "power", "temp") if name in columns)
            return [(fit(said, columns["GPUs"]) + " " + " " * rest, "dim")]
        gpus = record.gpus
        stale = self.view.stale_on(state.name, record.t)
        style = "stale" if stale else "fg"
        names = ", ".join(dict.fromkeys(short_gpu(g.name) for g in gpus))
        utils = [g.util for g in gpus if g.util is not None]
        used = [(g.mem_used_mib, g.mem_total_mib) for g in gpus if g.mem_used_mib is not None and g.mem_total_mib]
        powers = [g.power_w for g in gpus if g.power_w is not None]
        temps = [g.temp_c for g in gpus if g.temp_c is not None]
        memory = sum(u for u, _ in used) / sum(t or 0 for _, t in used) if used else None
        cells = {
            "util": figures.percent(sum(utils) / len(utils) if utils else None),
            "mem": figures.percent(memory),
            "power": f"{figures.number(sum(powers) if powers else None, 0)} W",
            "temp": f"{figures.number(max(temps) if temps else None, 0)}°",
        }
        spans: list[Span] = [(fit(f"{len(gpus)}× {names}", columns["GPUs"]) + " ", style)]
        spans += [(fit(cell, columns[key], right=True) + " ", style) for key, cell in cells.items() if key in columns]
        if any(g.throttle for g in gpus):
            spans[-1] = (spans[-1][0], "bad")
        return spans

    def _load(self, state: HostState, columns: Mapping[str, int]) -> list[Span]:
        sums = [self._sum(state, tag) for tag in ("gen_tps", "running_reqs", "queue_reqs")]
        cells = (figures.fixed(sums[0]), figures.number(sums[1], 0), figures.number(sums[2], 0))
        spans: list[Span] = []
        for cell, name, value in zip(cells, ("tok/s", "run", "queue"), sums, strict=True):
            spans.append((fit(cell, columns[name], right=True) + " ", "dim" if value is None else "fg"))
        if sums[2]:
            spans[-1] = (spans[-1][0], "warn")
        return spans

    def _sum(self, state: HostState, tag: str) -> float | None:
        """Of all live servers of the host whose figure is fresh; None where there is none."""
        values = []
        for server_id in state.server_ids:
            server = self.view.store.servers[server_id]
            series = server.series.get(tag)
            fresh = series is not None and not self.view.stale_on(state.name, series.last_t)
            if server.alive and series is not None and series.last is not None and fresh:
                values.append(series.last)
        return sum(values) if values else None

    def _servers(self, state: HostState, trouble: str) -> list[Span]:
        if trouble:
            return [(trouble, "bad")]
        if not state.server_ids:
            return [("no server" if state.memory is not None else "looking …", "dim")]
        spans: list[Span] = []
        for server_id in state.server_ids:
            spans += [*(((" ", "fg"),) if spans else ()), *self._server(self.view.store.servers[server_id])]
        return spans

    def _server(self, server: ServerState) -> list[Span]:
        glyph, style = PHASES.get(phase_of(self.view, server), ("?", "dim"))
        port = f":{server.info.port}" if server.info.port else f"pid {server.info.pid}"
        model = safe(server.info.served_name) if server.info.served_name else model_name(server.info.model)
        spans: list[Span] = [
            (glyph, style),
            (f" {port} ", "fg"),
            (f"{engine_title(server.info.engine)} {model}", "dim"),
        ]
        diagnosed = self.view.diagnosed.get(server.info.id)
        grave = sum(f.severity != "info" for f in diagnosed.findings) if diagnosed is not None else 0
        return [*spans, (f" {grave} findings", "warn")] if grave else spans

    def chosen(self) -> str | None:
        """The host under the cursor."""
        names = self.names()
        return names[min(self.cursor, len(names) - 1)] if names else None

    def action_scroll(self, step: int) -> None:
        """The cursor moves from host to host and stays in view."""
        count = len(self.names())
        room = max(1, self.inner_size().height - 1)
        self.cursor = max(0, min(count - 1, self.cursor + step))
        self.top = max(0, min(max(self.top, self.cursor - room + 1), self.cursor))
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """The row clicked; a second click opens it."""
        index = self.top + event.y - 2
        if 0 <= index < len(self.names()):
            if index == self.cursor and isinstance(self.screen, FleetScreen):
                self.screen.action_choose()
            else:
                self.action_scroll(index - self.cursor)


class Title(Panel):
    """The line on top."""

    framed = False
    ages = False
    DEFAULT_CSS = "Title { height: 1; }"

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Who we are."""
        return [[(" tokpit ", "brand")]]


class FleetScreen(TimedScreen):
    """See the module docstring."""

    BINDINGS = bindings_for("fleet")
    AUTO_FOCUS = "#fleet"

    def compose(self) -> ComposeResult:
        """Title, hosts, keys."""
        yield Title()
        yield FleetPanel(self.view)
        yield TimeBar(self.view)
        yield Footer("fleet")

    def before_pump(self) -> None:
        """Servers found meanwhile are watched as well."""
        super().before_pump()
        self.console.watch_all()

    def action_choose(self) -> None:
        """The cockpit on the host under the cursor, and on its first live server."""
        name = self.query_one(FleetPanel).chosen()
        if name is None:
            return
        state = self.view.store.hosts.get(name)
        alive = [i for i in state.server_ids if self.view.store.servers[i].alive] if state is not None else []
        self.app.pop_screen()
        self.console.select(name, alive[0] if alive else None)

    def action_refresh_host(self) -> None:
        """Look at the host under the cursor again."""
        if (name := self.query_one(FleetPanel).chosen()) is not None:
            self.console.refresh_host(name)

    def action_leave(self) -> None:
        """Back to the cockpit as it was."""
        self.app.pop_screen()

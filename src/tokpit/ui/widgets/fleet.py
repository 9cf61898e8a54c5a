"""Fleet: every host in one row, drawn by one widget, so that 64 of them cost what the rows in view cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.message import Message

from tokpit.domain.records import LinkState
from tokpit.store.live import HostState, ServerState
from tokpit.ui import figures
from tokpit.ui.fleet_rows import SORTS, Heading, HostRow, arrange, hosts_of
from tokpit.ui.text import Row, Span, crop, fit, safe
from tokpit.ui.view import View, engine_title, model_name, phase_of, simulated_label
from tokpit.ui.widgets.header import LINKS, PHASES, link_trouble
from tokpit.ui.widgets.scrolled import ScrolledPanel
from tokpit.ui.widgets.tree import short_gpu

WIDE, MIDDLE = 150, 110
_COLUMNS = {
    WIDE: {"host": 20, "link": 10, "GPUs": 26, "util": 5, "mem": 5, "power": 7, "temp": 5, "tok/s": 8, "run": 5,
           "queue": 6},
    MIDDLE: {"host": 14, "link": 8, "GPUs": 14, "util": 5, "mem": 5, "power": 7, "temp": 5, "tok/s": 8, "run": 4,
             "queue": 6},
    0: {"host": 12, "link": 8, "GPUs": 10, "util": 5, "mem": 5, "tok/s": 8, "run": 4, "queue": 6},
}  # fmt: skip
ORDERS = {"host": "as listed", "link": "link", "util": "GPU use", "tok/s": "tok/s", "queue": "queue"}
"""What a click on a column's name orders by."""
LONGEST_FILTER = 200
_LEFT = frozenset({"host", "link", "GPUs"})


def columns_for(width: int) -> dict[str, int]:
    """Width of each column in a panel of that width; `servers` takes what is left."""
    return next(columns for least, columns in _COLUMNS.items() if width >= least)


class FleetPanel(ScrolledPanel):
    """See the module docstring."""

    class Opened(Message):
        """The host under the cursor was clicked."""

    min_interval_s = 0.45

    def __init__(self, view: View) -> None:
        super().__init__(id="fleet")
        self.view = view
        self.picked: dict[str, None] = {}
        self._host = ""
        self.sort, self.wanted, self.grouped, self.typing = SORTS[0], "", False, False
        self.cursor = max(0, self.names().index(view.host)) if view.host in self.names() else 0

    def all_names(self) -> list[str]:
        """Every host, in the order of the tree."""
        return list(dict.fromkeys([*self.view.session.host_specs, *self.view.store.hosts]))

    def lines(self) -> list[HostRow | Heading]:
        """What is to be seen, in order: filtered, sorted, grouped."""
        if not (self.wanted or self.grouped or self.sort != SORTS[0]):
            return [HostRow(name) for name in self.all_names()]
        rows = [self._facts(name) for name in self.all_names()]
        return arrange(rows, sort=self.sort, wanted=self.wanted, grouped=self.grouped)

    def names(self) -> list[str]:
        """The hosts that are to be seen, in order."""
        return hosts_of(self.lines())

    def _facts(self, name: str) -> HostRow:
        state, spec = self.view.store.hosts.get(name), self.view.session.host_specs.get(name)
        group = spec.group if spec is not None else ""
        if state is None:
            return HostRow(name, group, f"{name} {group}", linked=False)
        servers = [self.view.store.servers[i].info for i in state.server_ids]
        gpus = state.gpus.gpus if state.gpus is not None else ()
        utils = [gpu.util for gpu in gpus if gpu.util is not None]
        words = [name, group, *(gpu.name for gpu in gpus)]
        words += [word for info in servers for word in (info.engine, info.served_name or "", info.model or "")]
        return HostRow(
            name,
            group,
            " ".join(words),
            tps=self._sum(state, "gen_tps"),
            queue=self._sum(state, "queue_reqs"),
            util=sum(utils) / len(utils) if utils else None,
            rtt_s=state.link.rtt_s if state.link is not None else None,
            linked=self.view.linked(name),
        )

    def topics(self) -> Sequence[str]:
        """Everything."""
        store = self.view.store
        servers = (f"server:{i}" for state in store.hosts.values() for i in state.server_ids)
        return ("hosts", *(f"host:{name}" for name in store.hosts), *servers)

    def heading(self, width: int) -> tuple[Row, Row]:
        """How many, how many are not reached, what is picked, and how they are ordered."""
        names, count = self.names(), len(self.all_names())
        down = sum(1 for name in names if not self.view.linked(name))
        right: list[Span] = [(f"{down} not reached  ", "bad")] if down else []
        shown = f"{len(names)} of {count}" if len(names) != count else str(count)
        left: list[Span] = [("fleet", "title"), (f"  {shown} host{'s' if count != 1 else ''}", "dim")]
        if self.picked:
            left.append((f"  {len(self.picked)} picked", "accent"))
        if self.sort != SORTS[0]:
            left.append((f"  by {self.sort}", "dim"))
        if self.wanted or self.typing:
            left += [("  /", "accent"), (safe(self.wanted), "fg"), ("▏" if self.typing else "", "accent")]
        return left, [*right, *self.place()]

    def place(self) -> Row:
        """Which rows are in view, where not all are."""
        height, count = self.inner_size().height - 1, len(self.lines())
        return [(f"↑↓ {self.top + 1}-{min(count, self.top + height)} of {count}", "dim")] if count > height else []

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Column names and the hosts in view."""
        lines = self.lines()
        if not lines:
            said = "no host has these words" if self.wanted else "no hosts yet: give them on the command line, or in"
            return [[(said if self.wanted else f"{said} the inventory", "dim")]]
        room = max(1, height - 1)
        self._count = len(lines)
        names = hosts_of(lines)
        # Rows change places while they are looked at: the cursor stays on its host.
        if self._host in names:
            self.cursor = names.index(self._host)
        self.cursor = max(0, min(self.cursor, len(names) - 1))
        self.top = max(0, min(self.top, len(lines) - room))
        columns = columns_for(width)
        head = [(fit(name, w, right=name not in _LEFT) + " ", "dim") for name, w in columns.items()]
        before = sum(isinstance(line, HostRow) for line in lines[: self.top])
        made: list[Row] = []
        for line in lines[self.top : self.top + room]:
            if isinstance(line, Heading):
                made.append([(f"{safe(line.group) or 'no group'}", "title"), (f"  {line.count}", "dim")])
            else:
                made.append(self._row(line.name, before, columns))
                before += 1
        return [[*head, ("servers", "dim")], *made]

    def _row(self, name: str, index: int, columns: Mapping[str, int]) -> Row:
        state = self.view.store.hosts.get(name)
        glyph, word, style = LINKS[state.link.state if state is not None and state.link is not None else LinkState.NEW]
        label = " ✧" if simulated_label(self.view.session, name) else ""
        mark = "● " if name in self.picked else ""
        title = fit(mark + crop(safe(name), columns["host"] - len(label) - len(mark)) + label, columns["host"]) + " "
        row: list[Span] = [(title, "cursor" if index == self.cursor else "bold")]
        up = state is not None and state.link is not None and state.link.state is LinkState.UP
        rtt = state.link.rtt_s if up and state is not None and state.link is not None else None
        row.append(
            (
                fit(
                    f"{glyph} {figures.number(rtt * 1000, 0)} ms" if rtt is not None else f"{glyph} {word}",
                    columns["link"],
                ),
                style,
            )
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
        alarms = self.view.alarms(state.name, *state.server_ids)
        new = any(not alarm.acknowledged for alarm in alarms)
        spans: list[Span] = [(f"{'▲' if new else '△'}{len(alarms)}", "bad-bold" if new else "dim")] if alarms else []
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

    def selection(self) -> list[str]:
        """The picked hosts that are still there, in the order of picking; else the one under the cursor."""
        known = set(self.all_names())
        picked = [name for name in self.picked if name in known]
        here = self.chosen()
        return picked or ([here] if here is not None else [])

    def pick(self) -> None:
        """Pick the host under the cursor, or let it go; the cursor moves on."""
        name = self.chosen()
        if name is None:
            return
        if name in self.picked:
            del self.picked[name]
        else:
            self.picked[name] = None
        self.action_scroll(1)

    def pick_all(self) -> None:
        """Pick all that is shown; let all go where all are picked."""
        names = self.names()
        if names and all(name in self.picked for name in names):
            self.picked.clear()
        else:
            self.picked.update(dict.fromkeys(names))
        self.redraw()

    def on_key(self, event: events.Key) -> None:
        """While a filter is typed, keys are letters of it."""
        if not self.typing:
            return
        if event.key in ("enter", "escape"):
            self.typing = False
            self.wanted = "" if event.key == "escape" else self.wanted.strip()
        elif event.key == "backspace":
            self.wanted = self.wanted[:-1]
        elif event.is_printable and event.character:
            self.wanted += event.character
        else:
            return
        event.stop()
        event.prevent_default()
        self.cursor = self.top = 0
        self._host = ""
        self.redraw()

    def chosen(self) -> str | None:
        """The host under the cursor."""
        names = self.names()
        if self._host in names:
            return self._host
        return names[min(self.cursor, len(names) - 1)] if names else None

    def action_scroll(self, step: int) -> None:
        """The cursor moves from host to host and stays in view."""
        lines = self.lines()
        places = [at for at, line in enumerate(lines) if isinstance(line, HostRow)]
        if not places:
            return
        room = max(1, self.inner_size().height - 1)
        self.cursor = max(0, min(len(places) - 1, self.cursor + step))
        at = places[self.cursor]
        self._host = hosts_of(lines)[self.cursor]
        # A heading right above the cursor is kept in view.
        self.top = max(0, min(max(self.top, at - room + 1), at if at not in (1,) else 0))
        self.redraw()

    def on_paste(self, event: events.Paste) -> None:
        """Into the filter, while one is typed."""
        if self.typing:
            event.stop()
            self.wanted += safe(event.text)[:LONGEST_FILTER]
            self.cursor = self.top = 0
            self._host = ""
            self.redraw()

    def _column_at(self, x: int) -> str | None:
        start = 0
        for name, cells in columns_for(self.inner_size().width).items():
            if start <= x < start + cells:
                return name
            start += cells + 1
        return None

    def on_click(self, event: events.Click) -> None:
        """The row clicked; a second click opens it. A column's name orders by it."""
        if event.y == 1 and (name := self._column_at(event.x - (self.size.width - self.inner_size().width) // 2)):
            self.sort = ORDERS.get(name, self.sort)
            self.redraw()
            return
        lines, at = self.lines(), self.top + event.y - 2
        if 0 <= at < len(lines) and isinstance(lines[at], HostRow):
            index = sum(isinstance(line, HostRow) for line in lines[:at])
            if index == self.cursor:
                self.post_message(self.Opened())
            else:
                self.action_scroll(index - self.cursor)

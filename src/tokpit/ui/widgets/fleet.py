"""Fleet: every host in one row, drawn by one widget, so that 64 of them cost what the rows in view cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.message import Message

from tokpit.ui.actions import keycap
from tokpit.ui.fleet_rows import SORTS, Heading, HostRow, arrange, hosts_of
from tokpit.ui.text import PICKED, Row, Span, crop, fit, row_width, safe, under_cursor, wrap_row
from tokpit.ui.view import View, simulated_label
from tokpit.ui.widgets.fleet_cells import (
    LEFT,
    columns_for,
    fresh,
    gpu_cells,
    link_cell,
    load_cells,
    server_cells,
    total,
)
from tokpit.ui.widgets.header import link_trouble
from tokpit.ui.widgets.scrolled import ScrolledPanel

ORDERS = {"host": "as listed", "link": "link", "util": "GPU use", "tok/s": "tok/s", "queue": "queue"}
"""What a click on a column's name orders by."""
LONGEST_FILTER = 200


def all_topics(view: View) -> Sequence[str]:
    """Topics of every host and server."""
    store = view.store
    servers = (f"server:{i}" for state in store.hosts.values() for i in state.server_ids)
    return ("hosts", *(f"host:{name}" for name in store.hosts), *servers)


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
            tps=total(fresh(self.view, state, "gen_tps")),
            queue=total(fresh(self.view, state, "queue_reqs")),
            util=sum(utils) / len(utils) if utils else None,
            rtt_s=state.link.rtt_s if state.link is not None else None,
            linked=self.view.linked(name),
        )

    def topics(self) -> Sequence[str]:
        """Everything."""
        return all_topics(self.view)

    def heading(self, width: int) -> tuple[Row, Row]:
        """How many, how many are not reached, what is picked, and how they are ordered."""
        names, count = self.names(), len(self.all_names())
        down = sum(1 for name in names if not self.view.linked(name))
        right: list[Span] = [(f"{down} not reached", "bad")] if down else []
        shown = f"{len(names)} of {count}" if len(names) != count else str(count)
        left: list[Span] = [("fleet", "title"), (f"  {shown} host{'s' if count != 1 else ''}", "dim")]
        if self.picked:
            left.append((f"  {len(self.picked)} picked", "accent"))
        if self.sort != SORTS[0]:
            left.append((f"  by {self.sort}", "dim"))
        if self.wanted or self.typing:
            left += [("  /", "accent"), (safe(self.wanted), "fg"), ("▏" if self.typing else "", "accent")]
        place = self.place()
        return left, [*right, ("  " if right and place else "", "fg"), *place]

    def place(self) -> Row:
        """Which rows are in view, where not all are."""
        height, count = self.inner_size().height - 1, len(self.lines())
        return [(f"↑↓ {self.top + 1}-{min(count, self.top + height)} of {count}", "dim")] if count > height else []

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Column names and the hosts in view."""
        lines = self.lines()
        if not lines:
            return self._nothing(width)
        room = max(1, height - 1)
        self._count = len(lines)
        names = hosts_of(lines)
        # Rows change places while they are looked at: the cursor stays on its host.
        if self._host in names:
            self.cursor = names.index(self._host)
        self.cursor = max(0, min(self.cursor, len(names) - 1))
        self.top = max(0, min(self.top, len(lines) - room))
        columns = columns_for(width)
        head = [(fit(name, w, right=name not in LEFT) + " ", "dim") for name, w in columns.items()]
        before = sum(isinstance(line, HostRow) for line in lines[: self.top])
        made: list[Row] = []
        for line in lines[self.top : self.top + room]:
            if isinstance(line, Heading):
                made.append([(f"{safe(line.group) or 'no group'}", "title"), (f"  {line.count}", "dim")])
            else:
                made.append(self._row(line.name, before, columns, width))
                before += 1
        return [[*head, (" servers", "dim")], *made]

    def _nothing(self, width: int) -> list[Row]:
        if self.wanted:
            said: list[Row] = [
                [("no host has these words; ", "dim"), keycap(self.app, "fleet.filter"), (" changes them", "dim")]
            ]
        else:
            said = [[("no hosts yet", "fg")], [],
                    [("tokpit HOST", "bold"), (" opens one: any name that ssh knows", "dim")],
                    [("tokpit hosts", "bold"), (" says where the file is that names more", "dim")]]  # fmt: skip
        return [line for row in said for line in wrap_row(row, width)]

    def _row(self, name: str, index: int, columns: Mapping[str, int], width: int) -> Row:
        state = self.view.store.hosts.get(name)
        here = index == self.cursor
        label = " ✧" if simulated_label(self.view.session, name) else ""
        mark = f"{PICKED} " if name in self.picked else ""
        title = fit(mark + crop(safe(name), columns["host"] - len(label) - len(mark)) + label, columns["host"]) + " "
        cell, style = link_cell(state, columns["link"])
        row: list[Span] = [(title, "cursor" if here else "bold"), (cell + " ", style)]
        if state is not None:
            trouble = link_trouble(state.link)
            if trouble and state.gpus is None and not state.server_ids:
                row.append((trouble, "bad"))
            else:
                row += [*gpu_cells(self.view, state, columns), *load_cells(self.view, state, columns)]
                row += [(" ", "fg"), *server_cells(self.view, state, width - row_width(row) - 1)]
        return under_cursor(row, width) if here else row

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
            self.wanted += safe(next(iter(event.text.splitlines()), ""))[:LONGEST_FILTER]
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

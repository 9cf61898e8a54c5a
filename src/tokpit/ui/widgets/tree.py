"""The tree on the left: hosts with their links and GPUs, and the servers found on each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from tokpit.domain.records import LinkState
from tokpit.store.live import HostState, ServerState
from tokpit.ui.text import Row, Span, crop, row_width, safe, two_sided, wrap
from tokpit.ui.view import View, engine_title, model_name, simulated_label
from tokpit.ui.widgets.header import link_spans, phase_sign
from tokpit.ui.widgets.panel import Panel

Node = tuple[str, str | None]
"""Host name and server id (None: the host itself)."""


class HostTree(Panel, can_focus=True):
    """Moves with the arrows; the selection follows."""

    DEFAULT_CSS = "HostTree { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
    ]

    class Chosen(Message):
        """A host or server was chosen."""

        def __init__(self, host: str, server_id: str | None) -> None:
            super().__init__()
            self.host = host
            self.server_id = server_id

    def __init__(self, view: View) -> None:
        super().__init__(id="tree")
        self.view = view
        self._targets: list[Node | None] = []
        self._top = 0

    def topics(self) -> Sequence[str]:
        """The list of hosts and every host."""
        servers = (f"server:{i}" for state in self.view.store.hosts.values() for i in state.server_ids)
        return ("hosts", *(f"host:{name}" for name in self.view.store.hosts), *servers)

    def nodes(self) -> list[Node]:
        """All hosts and servers in the order in which they are drawn."""
        store = self.view.store
        names = dict.fromkeys([*self.view.session.host_specs, *store.hosts])
        found: list[Node] = []
        for name in names:
            found.append((name, None))
            state = store.hosts.get(name)
            found += [(name, server_id) for server_id in (state.server_ids if state else ())]
        return found

    def heading(self, width: int) -> tuple[Row, Row]:
        """How many hosts."""
        count = len({host for host, _ in self.nodes()})
        return [("hosts", "title")], [(str(count), "dim")] if count > 1 else []

    def wanted_rows(self) -> int:
        """Rows that would show every node."""
        return max(3, sum(len(self._lines(node, 24)) for node in self.nodes()))

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Every node, scrolled so that the selection is seen."""
        rows: list[Row] = []
        self._targets = []
        chosen = 0
        for node in self.nodes():
            if node == (self.view.host, self.view.server_id):
                chosen = len(rows)
            lines = self._lines(node, width)
            rows += lines
            self._targets += [node] * len(lines)
        if not rows:
            said = wrap("no hosts yet: give one on the command line", width)
            return [*([(line, "dim")] for line in said), [("tokpit HOST", "fg")]]
        self._top = max(0, min(chosen - height // 2, len(rows) - height))
        return rows[self._top : self._top + height]

    def _lines(self, node: Node, width: int) -> list[Row]:
        host, server_id = node
        return self._server(server_id, width) if server_id else self._host(host, width)

    def _host(self, name: str, width: int) -> list[Row]:
        state = self.view.store.hosts.get(name)
        selected = name == self.view.host and self.view.server_id is None
        watched = state is not None
        link = link_spans(state.link if state else None, short=width < 26) if watched else [("○ not watched", "dim")]
        name_row = two_sided([(safe(name), "cursor" if selected else "bold")], link, width)
        rows: list[Row] = [name_row]
        label = simulated_label(self.view.session, name)
        if label:
            rows.append([(crop(label, width), "accent")])
        if state is None:
            return rows
        gpus = self._gpus(state)
        if gpus:
            rows.append([(gpus, "dim")])
        if not state.server_ids:
            rows.append([(self._no_server(state), "dim")])
        return rows

    def _gpus(self, state: HostState) -> str:
        if state.gpus is None:
            return ""
        if not state.gpus.gpus:
            return "" if state.gpus.problems else "no NVIDIA GPU"
        names = dict.fromkeys(short_gpu(g.name) for g in state.gpus.gpus)
        return f"{len(state.gpus.gpus)}× {', '.join(names)}"

    def _no_server(self, state: HostState) -> str:
        if state.link is not None and state.link.state is LinkState.UP:
            return "  no server found" if self._listed(state) else "  looking …"
        return ""

    def _listed(self, state: HostState) -> bool:
        return state.memory is not None or state.gpus is not None

    def _server(self, server_id: str, width: int) -> list[Row]:
        server: ServerState = self.view.store.servers[server_id]
        selected = server_id == self.view.server_id
        glyph, style = phase_sign(self.view, server)
        port = f":{server.info.port}" if server.info.port else f"pid {server.info.pid}"
        if server.info.rank:
            port = f"rank {server.info.rank} of {server.info.ranks[0]}"
        head: list[Span] = [(glyph + " ", style)]
        name = f"{port} {engine_title(server.info.engine)}"
        head.append((crop(name, width - 2), "cursor" if selected else "fg"))
        tps = server.get("gen_tps").last
        right: list[Span] = []
        if tps is not None and server.alive and not self.view.stale(server.get("gen_tps").last_t):
            right = [(f"{tps:.0f} tok/s", "dim")]
        model = safe(server.info.served_name) if server.info.served_name else model_name(server.info.model)
        below: list[Span] = [("  ", "fg"), (model, "dim")]
        # The rate stands behind what leaves it room: a name that is cut for it would be no name.
        if row_width(head) + 1 + row_width(right) <= width:
            return [two_sided(head, right, width), two_sided(below, [], width)]
        fits = row_width(below) + 1 + row_width(right) <= width
        return [two_sided(head, [], width), two_sided(below, right if fits else [], width)]

    def action_move(self, step: int) -> None:
        """Select the node above or below."""
        nodes = self.nodes()
        if not nodes:
            return
        here = (self.view.host or "", self.view.server_id)
        index = nodes.index(here) if here in nodes else 0
        self._choose(nodes[max(0, min(len(nodes) - 1, index + step))])

    def on_click(self, event: events.Click) -> None:
        """Select what was clicked."""
        row = self._top + event.y - 1
        if 0 <= row < len(self._targets) and (node := self._targets[row]) is not None:
            self._choose(node)

    def _choose(self, node: Node) -> None:
        self.post_message(self.Chosen(*node))


def short_gpu(name: str) -> str:
    """A GPU's name without the words that all of them have."""
    words = [w for w in safe(name).split() if w.upper() not in {"NVIDIA", "GEFORCE", "GENERATION", "EDITION", "SERVER"}]
    return " ".join(words) or safe(name)

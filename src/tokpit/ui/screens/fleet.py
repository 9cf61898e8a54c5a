"""Fleet: every host at a glance, and things done to several of them at once."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult

from tokpit.ui.actions import bindings_for
from tokpit.ui.fleet_rows import SORTS
from tokpit.ui.screens.base import attempt, tell
from tokpit.ui.screens.timekeys import TimedScreen
from tokpit.ui.text import Row
from tokpit.ui.view import View
from tokpit.ui.widgets.fleet import FleetPanel, all_topics
from tokpit.ui.widgets.fleet_cells import all_together
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.panel import Panel
from tokpit.ui.widgets.timebar import TimeBar

__all__ = ["FleetPanel", "FleetScreen"]


class Title(Panel):
    """The line on top: all hosts together."""

    framed = False
    min_interval_s = 0.45
    DEFAULT_CSS = "Title { height: 1; }"

    def __init__(self, view: View) -> None:
        super().__init__(id="title")
        self.view = view

    def topics(self) -> Sequence[str]:
        """Everything."""
        return all_topics(self.view)

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Who we are, and the sums."""
        return [[(" tokpit ", "brand"), ("  ", "fg"), *all_together(self.view, width - 11)]]


class FleetScreen(TimedScreen):
    """See the module docstring."""

    BINDINGS = bindings_for("fleet")
    AUTO_FOCUS = "#fleet"

    def compose(self) -> ComposeResult:
        """Title, hosts, keys."""
        yield Title(self.view)
        yield FleetPanel(self.view)
        yield TimeBar(self.view)
        yield Footer("fleet")

    def before_pump(self) -> None:
        """Servers found meanwhile are watched as well."""
        super().before_pump()
        self.console.watch_all()

    @property
    def typing(self) -> bool:
        """Whether a filter is typed."""
        return self.query_one(FleetPanel).typing

    def now_keys(self) -> Sequence[tuple[str, str, str]]:
        """While a filter is typed: what enter and escape do."""
        if self.typing:
            return ("enter", "enter", "keep"), ("escape", "esc", "all hosts")
        return ()

    def action_choose(self) -> None:
        """The cockpit on the host under the cursor, and on its first live server."""
        name = self.query_one(FleetPanel).chosen()
        if name is None:
            return
        state = self.view.store.hosts.get(name)
        alive = [i for i in state.server_ids if self.view.store.servers[i].alive] if state is not None else []
        self.app.pop_screen()
        self.console.select(name, alive[0] if alive else None)

    def on_fleet_panel_opened(self) -> None:
        """A second click is like enter."""
        self.action_choose()

    def action_refresh_host(self) -> None:
        """Look at the host under the cursor again."""
        if (name := self.query_one(FleetPanel).chosen()) is not None:
            self.console.refresh_host(name)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """No key of the screen while a filter is typed."""
        return not self.query_one(FleetPanel).typing if self.query(FleetPanel) else True

    def action_pick(self) -> None:
        """See FleetPanel.pick."""
        self.query_one(FleetPanel).pick()

    def action_pick_all(self) -> None:
        """See FleetPanel.pick_all."""
        self.query_one(FleetPanel).pick_all()

    def action_sort(self) -> None:
        """By the next figure."""
        panel = self.query_one(FleetPanel)
        panel.sort = SORTS[(SORTS.index(panel.sort) + 1) % len(SORTS)]
        panel.redraw()

    def action_group(self) -> None:
        """Under the inventory's groups, or not."""
        panel = self.query_one(FleetPanel)
        panel.grouped = not panel.grouped
        panel.redraw()

    def action_filter(self) -> None:
        """Type words that a host must have; enter keeps them, escape lets them go."""
        panel = self.query_one(FleetPanel)
        panel.typing = True
        panel.focus()
        panel.redraw()

    def action_selected(self, what: str) -> None:
        """Check, sweep or stop every server on the selection, after one question."""
        store = self.view.store
        states = [store.hosts.get(name) for name in self.query_one(FleetPanel).selection()]
        targets = [i for state in states if state is not None for i in state.server_ids if store.servers[i].alive]
        if not targets:
            tell(self.console, "no server runs on what is selected", bad=True)
            return
        self.run_worker(self._selected(what, targets), group="fleet", exclusive=True, exit_on_error=False)

    async def _selected(self, what: str, targets: list[str]) -> None:
        done = await attempt(self.console, f"fleet.{what}", targets=targets)
        if done is None:
            return
        failed = [one for one in done.results if not one.ok]
        said = f"{what}: {len(done.results) - len(failed)} of {len(done.results)} went well"
        tell(
            self.console, said, hint="\n".join(f"{one.target}: {one.sentence}" for one in failed[:6]), bad=bool(failed)
        )

    def action_leave(self) -> None:
        """Back to the cockpit as it was."""
        self.app.pop_screen()

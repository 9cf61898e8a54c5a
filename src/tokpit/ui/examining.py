"""Live checks of a launch form: once typing pauses, the newest spec is shown to the host; one question at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tokpit.domain.settings import LaunchSpec
from tokpit.errors import TokpitError
from tokpit.ui.widgets.checks import ASKING, FAILED, SAID, WAITING, ChecksPanel

if TYPE_CHECKING:
    from textual.timer import Timer

    from tokpit.ops.lifecycle.launch import Plan
    from tokpit.ui.screens.launch import LaunchScreen

PAUSE_S = 0.6


class Examiner:
    """Asks about a screen's spec and fills its ChecksPanel."""

    def __init__(self, screen: LaunchScreen) -> None:
        self.screen = screen
        self.command = ""
        """The command line with the program that the host offers, for the spec that was asked about last."""
        self._wanted: LaunchSpec | None = None
        self._asked: LaunchSpec | None = None
        self._timer: Timer | None = None
        self._busy = False

    def ask(self, spec: LaunchSpec | None) -> None:
        """Ask about this spec after a pause; None: the form stands for no launch."""
        if spec is not None and spec == self._wanted:
            return
        self._wanted, self.command = spec, ""
        panel = self.screen.query_one(ChecksPanel)
        if self._timer is not None:
            self._timer.stop()
        if spec is None:
            panel.state = WAITING
            panel.errors = panel.warnings = panel.expected = panel.differs = ()
        elif getattr(self.screen.view.session, "connected", None) is not None:
            panel.state = ASKING
            self._timer = self.screen.set_timer(PAUSE_S, self._start)
        panel.redraw()

    def _start(self) -> None:
        if not self._busy:
            self._busy = True
            self.screen.run_worker(self._examine(), exit_on_error=False)

    async def _examine(self) -> None:
        from tokpit.ops.lifecycle.launch import assess

        panel = self.screen.query_one(ChecksPanel)
        try:
            while (spec := self._wanted) is not None and spec != self._asked:
                self._asked = spec
                try:
                    made = await assess(self.screen.view.session, spec)  # type: ignore[arg-type]  # a session of ops
                except TokpitError as error:
                    if spec == self._wanted:
                        panel.state, panel.problem = FAILED, error.message + (f" ({error.hint})" if error.hint else "")
                        panel.errors = panel.warnings = panel.expected = panel.differs = ()
                    continue
                if spec == self._wanted:
                    self.command = made.command
                    self.screen.show_command(made.command)
                    panel.state, panel.top = SAID, 0
                    panel.errors, panel.warnings, panel.expected = made.errors, made.warnings, made.expected
                    panel.differs = self._differences(made)
        finally:
            self._busy, self._asked = False, None
            panel.redraw()

    def _differences(self, made: Plan) -> Sequence[tuple[str, Sequence[str]]]:
        """Against what the form came from, and against a server of this engine that runs there."""
        from tokpit.ops.difference import differences, launch_differences

        rows: list[tuple[str, Sequence[str]]] = []
        base, view = self.screen.base, self.screen.view
        if base is not None:
            found = launch_differences(base, made.spec)
            # What the engine is told besides, and was told then as well, is no change.
            engine_adds = {"spec_topk", "spec_draft_tokens", "hicache"}
            rows.append((f"changed from {self.screen.origin}",
                         [c.text for c in found if not (c.name in engine_adds and c.before is None)]))  # fmt: skip
        state = view.store.hosts.get(self.screen.host)
        running = [view.store.servers[i] for i in state.server_ids] if state is not None else []
        for server in running:
            if server.alive and server.info.engine == made.spec.engine:
                before = msgspec.structs.replace(server.info.settings, port=made.spec.settings.port)
                changes = differences(before, made.spec.settings)
                rows.append((f"against {server.info.label}, which runs", [c.text for c in changes]))
        return rows

"""The palette of commands."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from textual import on
from textual.command import CommandList, CommandPalette
from textual.widgets import Input
from textual.worker import Worker, WorkerCancelled, WorkerFailed


class Commands(CommandPalette):
    """Textual's own, safe for quick hands.

    An enter behind a word takes what is found for that word, and not what stood there before it was looked for. Keys
    that page go nowhere while the list has no rows yet, where they would end the console.
    """

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).scrollable_content_region.height > 0:
            super()._action_command_list(action)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        searching = [w for w in self.workers if w.group == self._GATHER_COMMANDS_GROUP and not w.is_finished]
        if searching or event.value.strip():
            event.stop()
            event.prevent_default()  # what Textual does with it
            self.run_worker(self._select_found(searching), exit_on_error=False)

    async def _select_found(self, searching: Sequence[Worker[Any]]) -> None:
        for search in searching:
            with contextlib.suppress(WorkerCancelled, WorkerFailed):
                await search.wait()
        found = self.query_one(CommandList)
        if found.option_count and self.is_current:
            if searching or found.highlighted is None:
                found.highlighted = 0
            found.action_select()

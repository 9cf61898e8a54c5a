"""The palette of commands."""

from __future__ import annotations

from textual.command import CommandList, CommandPalette


class Commands(CommandPalette):
    """Textual's own; but keys that page go nowhere while its list has no rows yet, where they would end the console."""

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).scrollable_content_region.height > 0:
            super()._action_command_list(action)

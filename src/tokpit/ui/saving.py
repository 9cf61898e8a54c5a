"""Saving the selected server as a launch profile, under a name that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokpit.errors import TokpitError
from tokpit.ui.screens.base import tell

if TYPE_CHECKING:
    from tokpit.ui.app import TokpitApp


async def save_profile(console: TokpitApp) -> None:
    """Ask for a name, save, and say where; what could not be saved is a notice."""
    from tokpit.ops.lifecycle.profiles import save_from

    server = console.view.server
    if server is None or not server.alive:
        tell(console, "no running server is selected", hint="choose one in the tree")
        return
    label = server.info.label
    name = await console.ask_text("Launch profile", f"Name of a profile for what {label} was started with:")
    if not name or not name.strip():
        return
    try:
        saved = await save_from(console.session, server.info.id, name.strip())  # type: ignore[arg-type]  # a session of ops
    except TokpitError as error:
        tell(console, error.message, hint=error.hint, bad=True)
        return
    hidden = f"; left out, because it is plain text: {', '.join(saved.left_out)}" if saved.left_out else ""
    tell(console, f"saved {saved.path}{hidden}", hint="the launch screen offers it")

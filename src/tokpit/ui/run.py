"""Opening the console on a session, with the user's preferences."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tokpit.config.settings import Preferences, load_preferences
from tokpit.errors import ConfigError, StoreError, TokpitError
from tokpit.ops.records.left import news
from tokpit.ui.app import TokpitApp
from tokpit.ui.app_actions import new_here
from tokpit.ui.ending import leaving
from tokpit.ui.escape import part_escapes


async def run_app(
    session: Any,
    *,
    host: str | None = None,
    theme: str | None = None,
    theme_folders: Sequence[Path] = (),
    chart_engine: str = "auto",
) -> None:
    """Open the console on a session until the user leaves, with the user's preferences; the caller closes the session.

    What is asked for here goes before the preferences; preferences that cannot be read are said and left out.
    """
    for name in ("COLUMNS", "LINES"):
        # Exported by a shell, they would hold against the terminal itself, at the start and at every later size.
        os.environ.pop(name, None)
    problem = ""
    preferences = Preferences()
    try:
        preferences = await asyncio.to_thread(load_preferences)
    except ConfigError as error:
        problem = f"{error.message} {error.hint}".strip() + " The preferences are left out."
    if preferences.read_only:
        session.read_only = True
    folders = [*theme_folders, *([Path(preferences.theme_dir).expanduser()] if preferences.theme_dir else [])]
    keep = getattr(session, "keep_ring", None)
    if keep is not None and preferences.recording.ring_minutes > 0:
        ring = preferences.recording
        try:
            keep(minutes=ring.ring_minutes, max_bytes=ring.ring_mb * 1_000_000)
        except StoreError as error:
            problem = problem or error.message
    app = TokpitApp(
        session,
        host=host,
        theme=theme or preferences.theme or None,
        theme_folders=folders,
        chart_engine=chart_engine,
        keys=preferences.keys,
        tour=new_here(),
    )
    part_escapes(app.own_keys)
    if problem:
        app.report(problem)
    mine: Path | None = getattr(session, "ring", None)
    if mine is not None and (left := await asyncio.to_thread(news, mine.parent)):
        app.report(
            "tokpit was ended here without leaving; its last minutes are kept", hint=f"tokpit record save {left}"
        )
    watch = getattr(session, "watch_alarms", None)
    if watch is not None and preferences.alarms.enabled:
        watch(preferences.alarms, partial(app.tell_alarm, preferences.alarms), app.report)
    # Threads that write recordings and judge findings give way to the screen after a millisecond instead of five.
    sys.setswitchinterval(0.001)
    app.loaded = _settle
    with leaving(app):
        await app.run_async()
    if app.return_code:
        raise TokpitError(
            "the console itself failed, with the trace above; servers and launches live on",
            hint="its last minutes are kept: tokpit record save",
        )


def _settle() -> None:
    """Modules stay for good: else each full collection looks at 300,000 of their objects, for 70 to 95 ms, once a
    second while a log floods. What is left for it then are strips that Textual makes, seventeen objects in a ring each
    (a panel's own hold none); freeing those of 20 s took 110 ms, so it comes more often and frees few.
    """
    gc.freeze()
    gc.set_threshold(2_000, 10, 5)

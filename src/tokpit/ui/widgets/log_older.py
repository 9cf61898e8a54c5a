"""Rows above the oldest one in memory, from the file on the host: read as somebody scrolls there, or searched."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from textual.worker import Worker

from tokpit.errors import TokpitError
from tokpit.ui.actions import key_of
from tokpit.ui.text import safe

if TYPE_CHECKING:
    from tokpit.ui.widgets.log_view import LogView

SEARCH_BYTES = (512 << 10, 2 << 20)
"""Read at once: at first, and at most where that took less than a second."""
SEARCH_MOST = 64 << 20
"""Searched until the user says again that it shall go on."""


class OlderReader:
    """One thing at a time. While it reads, new lines are only counted (see `LogModel.before`)."""

    def __init__(self, log: LogView) -> None:
        self._log = log
        self._worker: Worker[None] | None = None

    @property
    def possible(self) -> bool:
        """Whether there is a host to ask; a recording has none."""
        return callable(getattr(self._log.view.session, "older_log", None))

    @property
    def busy(self) -> bool:
        """Whether it reads now."""
        return self._worker is not None and self._worker.is_running

    def read(self, step: int) -> None:
        """The next older rows; the view then moves by `step`."""
        if self.possible and self._log.view.server_id and not self.busy and self._log.model.before() is not None:
            self._begin(self._read(step))

    def search(self) -> None:
        """On upwards in the file, until a row matches, its begin is reached or SEARCH_MOST has been read."""
        log = self._log
        if not self.possible:
            log.note = "a recording has nothing older than what it shows"
        elif log.view.server_id is None or not log.model.rows or self.busy:
            return
        elif log.model.before() is None:
            log.note = "the log's first line is in memory already"
        else:
            self._begin(self._search())
        log.redraw()

    def cancel(self) -> bool:
        """End what is under way; whether something was."""
        if not self.busy or self._worker is None:
            return False
        self._worker.cancel()
        self._log.note = f"stopped: {key_of(self._log.app, 'cockpit.older')} goes on from here"
        self._log.redraw()
        return True

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._worker = self._log.run_worker(work, exit_on_error=False)

    async def _read(self, step: int) -> None:
        log = self._log
        log.note = "reading older lines …"
        log.redraw()
        try:
            if await self._prepend() is None:
                return
            log.model.scroll(step, log.height)
            log.note = "the log's first line" if log.model.older_start == 0 and log.model.top == 0 else ""
        except TokpitError as error:
            log.note = safe(error.message)
        log.redraw()

    async def _search(self) -> None:
        log, model, searched, size = self._log, self._log.model, 0, SEARCH_BYTES[0]
        log.note = "looking in the file on the host …  esc stops"
        log.redraw()
        try:
            while (place := model.before()) is not None and searched < SEARCH_MOST:
                began = time.monotonic()
                count = await self._prepend(size=size)
                if count is None:
                    return
                size = min(2 * size, SEARCH_BYTES[1]) if time.monotonic() - began < 1.0 else SEARCH_BYTES[0]
                if model.match_above(count, log.height):
                    log.note = f"found {_mb(searched)} MB further up" if searched else ""
                    break
                model.top, left = 0, model.older_start or 0
                searched += place[0] - left
                log.note = f"searched {_mb(searched)} MB, {_mb(left)} MB above; esc stops"
                log.redraw()
            else:
                what = "no match" if model.pattern is not None else "no error"
                end = (
                    "up to the log's first line"
                    if not model.more_above
                    else f"in {_mb(searched)} MB; {key_of(log.app, 'cockpit.older')} goes on"
                )
                log.note = f"{what} {end}"
        except TokpitError as error:
            log.note = safe(error.message)
        log.redraw()

    async def _prepend(self, **size: int) -> int | None:
        """Rows that came into view's reach; None where the view has turned to something else meanwhile."""
        log = self._log
        server_id, place = log.view.server_id, log.model.before()
        if place is None:
            return None
        found = await log.view.session.older_log(server_id, *place, **size)  # type: ignore[attr-defined]  # see `possible`
        if server_id != log.view.server_id or log.model.before() != place:
            return None
        return log.model.prepend(found.records, found.lines, found.start)


def _mb(count: int) -> str:
    return f"{count / 1e6:.1f}" if count < 10e6 else f"{count / 1e6:.0f}"

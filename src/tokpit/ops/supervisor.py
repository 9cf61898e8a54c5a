"""The one owner of long tasks: started by key, awaited when replaced or ended, none left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Supervisor:
    """Tasks by key. A task that fails is logged and forgotten; it never takes another one down."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    def running(self, key: str) -> bool:
        """Whether a task of that key is alive."""
        task = self._tasks.get(key)
        return task is not None and not task.done()

    def start(self, key: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start `work` under `key`; a task already running under that key is kept and `work` is closed unrun."""
        if self.running(key):
            work.close()
            return self._tasks[key]
        task = asyncio.create_task(work, name=key)
        self._tasks[key] = task
        task.add_done_callback(self._done)
        return task

    async def stop(self, prefix: str) -> None:
        """Cancel and await every task whose key starts with `prefix`."""
        tasks = [task for key, task in self._tasks.items() if key.startswith(prefix) and not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """End everything, newest first, so that readers end before what they read from."""
        # One that puts something in order as it ends may start others.
        while alive := [task for task in self._tasks.values() if not task.done()]:
            alive[-1].cancel()
            await asyncio.gather(alive[-1], return_exceptions=True)
        self._tasks.clear()

    def _done(self, task: asyncio.Task[Any]) -> None:
        key = task.get_name()
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", key, exc_info=error)

"""Replay: a recording fed back into a live store, at a speed, from any moment; a session for the same front ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokpit.domain.hostspec import HostSpec
from tokpit.domain.records import Operation, Record
from tokpit.domain.run import Run
from tokpit.errors import StoreError, UsageError
from tokpit.ops.supervisor import Supervisor
from tokpit.store.live import LiveStore
from tokpit.store.recording.reader import Clocks, Recording, Summary

TICK_S = 0.1
SLICE_S = 0.05
"""Longest time that one tick feeds: the screen must be able to answer keys."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class Player:
    """Position, speed and pause. `store` is another one after each seek backwards; position is UTC seconds."""

    def __init__(self, recording: Recording, summary: Summary) -> None:
        self.summary = summary
        self.position = summary.start
        self.speed = 1.0
        self.playing = True
        self.seeking = False
        self._wanted = summary.start
        self.store = LiveStore()
        self.changed: Callable[[], None] = lambda: None
        """Called when the store is another one."""
        self._recording = recording
        self._source = self._open(summary.start)
        self._next: tuple[float, Record] | None = None

    @property
    def ended(self) -> bool:
        """Whether everything has been shown."""
        return self.position >= self.summary.end

    async def run(self) -> None:
        """Play until cancelled."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            if self.playing and not self.seeking and not self.ended:
                self.advance((now - last) * self.speed)
            last = now

    def advance(self, seconds: float) -> None:
        """Feed the records of the next seconds of the recording; as many as fit into a slice of real time."""
        until = min(self.summary.end, self.position + seconds)
        started = time.monotonic()
        for at, record in iter(self._peek, None):
            if at > until:
                break
            self._next = None
            self.store.apply(record)
            if time.monotonic() - started > SLICE_S:
                # It comes faster than it can be shown: the clock waits for it.
                self.position = max(self.position, at)
                return
        self.position = until

    @property
    def heading(self) -> float:
        """Where it goes: the position, or the one sought just now. Steps are taken from here, so that none is lost."""
        return self._wanted if self.seeking else self.position

    async def seek(self, position: float) -> None:
        """Go to a moment. The store is built anew from the begin, in a thread, so that nothing of later is left.

        Asked for another moment meanwhile, it goes there instead.
        """
        self._wanted = min(self.summary.end, max(self.summary.start, position))
        if self.seeking:
            return
        self.seeking = True
        try:
            target = None
            while target != self._wanted:
                target = self._wanted
                store, source, pending = await asyncio.to_thread(self._build, target)
        finally:
            self.seeking = False
        self.store, self._source, self._next, self.position = store, source, pending, target
        self.changed()

    def faster(self, steps: int) -> None:
        """Next (1) or previous (-1) of SPEEDS."""
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, SPEEDS.index(self.speed) + steps))]

    def toggle(self) -> None:
        """Play or pause."""
        self.playing = not self.playing

    def _build(self, target: float) -> tuple[LiveStore, Iterator[tuple[float, Record]], tuple[float, Record] | None]:
        store, source = LiveStore(), self._open(self.summary.start)
        for at, record in source:
            if at > target:
                return store, source, (at, record)
            store.apply(record)
        return store, source, None

    def _open(self, start: float) -> Iterator[tuple[float, Record]]:
        return self._recording.records()

    def _peek(self) -> tuple[float, Record] | None:
        if self._next is None:
            self._next = next(self._source, None)
        return self._next


class ReplayHistory:
    """The runs that a recording holds: finished ones, and sweeps that were under way."""

    def __init__(self, store: Callable[[], LiveStore]) -> None:
        self._store = store

    async def runs(self, *, limit: int = 20) -> tuple[Run, ...]:
        """The newest first."""
        store = self._store()
        found = dict(store.runs)
        for operation in store.operations.values():
            run = operation.result.get("run", operation.id)
            if operation.kind == "sweep" and operation.levels and run not in found:
                found[run] = _run_of(operation, run, store)
        return tuple(sorted(found.values(), key=lambda run: -run.started_at)[:limit])

    async def run(self, run_id: str) -> Run:
        """One run. Raises StoreError."""
        for run in await self.runs(limit=1000):
            if run.id == run_id:
                return run
        raise StoreError(f"the recording holds no run {run_id}")


def _run_of(operation: Operation, run_id: str, store: LiveStore) -> Run:
    server = store.servers.get(operation.target)
    return Run(
        id=run_id,
        kind="sweep",
        target=operation.title.removeprefix("sweep "),
        host=server.info.host if server is not None else "",
        model=(server.info.model or "") if server is not None else "",
        engine=server.info.engine if server is not None else "",
        started_at=operation.started_t,
        ended_at=None if operation.status == "running" else operation.t,
        status=operation.status,
        levels=operation.levels,
    )


class ReplaySession:
    """What front ends hold of a session, for a recording: everything is read, nothing can be changed."""

    read_only = True

    def __init__(self, path: Path, recording: Recording, summary: Summary) -> None:
        self.path = path
        self.player = Player(recording, summary)
        self.supervisor = Supervisor()
        self.confirm: Any = None
        self.prompt: Any = None
        self.host_specs: Mapping[str, HostSpec] = {spec.name: spec for spec in summary.hosts}
        self._clocks = Clocks(summary)

    @classmethod
    async def open(cls, path: Path) -> ReplaySession:
        """Read the file once, and stand at its begin. Raises StoreError."""
        recording = Recording(path)
        summary = await asyncio.to_thread(recording.summary)
        session = cls(path, Recording(path), summary)
        session.player.advance(0.0)
        return session

    async def __aenter__(self) -> ReplaySession:
        self.supervisor.start("player", self.player.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.supervisor.close()

    @property
    def store(self) -> LiveStore:
        """What was known at the player's position."""
        return self.player.store

    def host_now(self, host: str) -> float:
        """UTC seconds on the host's clock at the player's position."""
        return self._clocks.now(host, self.player.position)

    async def history(self) -> ReplayHistory:
        """The runs of the recording."""
        return ReplayHistory(lambda: self.player.store)

    def watch_host(self, name: str) -> None:
        """The recording watched it."""

    def watch_server(self, server_id: str) -> None:
        """The recording watched it."""

    async def execute(self, command_id: str, **args: Any) -> Any:
        """Nothing can be done in the past. Raises UsageError."""
        raise UsageError(
            "this is a recording: nothing runs here", hint="open the host itself to do something: tokpit HOST"
        )

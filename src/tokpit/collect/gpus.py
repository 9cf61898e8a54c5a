"""Poll a host's GPUs: one poll at a time, slower where the driver is slow, old figures never shown as new ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from tokpit.collect.link import LinkGate, real_interval
from tokpit.domain.records import GpuRecord, Problem, Record
from tokpit.errors import HostError, RemoteFailed
from tokpit.probes import registry
from tokpit.probes.gpu import SLOW_S, GpuPoll, GpuReader, slow
from tokpit.transport.base import Completed, HostSpec

PATIENCE_S = 3600.0
"""A driver that hangs cannot be killed, so its poll is waited for: a second one would only hang beside it."""
SHARE = 2.0
"""The pause is at least this many times the last poll's duration, so that polling never loads a busy driver."""
LONGEST_S = 60.0
_MOST_REASKS = 20


class Runner(Protocol):
    """What a poll needs of a host."""

    spec: HostSpec

    @property
    def name(self) -> str:
        """See Host."""
        ...

    def now(self) -> float:
        """See Host."""
        ...

    async def run(self, script: str, *, timeout_s: float = 30.0) -> Completed:
        """See Host."""
        ...


class GpuWatch:
    """The loop. `run` goes on until cancelled; records go to `sink`."""

    def __init__(self, host: Runner, sink: Callable[[Record], None], gate: LinkGate, interval_s: float) -> None:
        self._host, self._sink, self._gate, self._interval_s = host, sink, gate, interval_s
        self._readers = [make() for make in registry.READERS]
        self._chosen: GpuReader | None = None
        self._last: GpuRecord | None = None

    async def run(self) -> None:
        """Poll for ever."""
        while True:
            started = time.monotonic()
            try:
                answered = await self._round()
            except RemoteFailed as error:
                self._stale(Problem("GPU_QUERY_FAILED", error.message))
                answered = False
            except HostError:
                self._chosen = None  # the host may come back with another driver
                await self._gate.wait()
                continue
            took_s = time.monotonic() - started
            pause_s = max(real_interval(self._host.spec, self._interval_s), min(LONGEST_S, SHARE * took_s))
            await asyncio.sleep(pause_s if answered else LONGEST_S)

    async def _round(self) -> bool:
        """One record; False where no reader finds its kind of GPU here."""
        for reader in [self._chosen] if self._chosen is not None else self._readers:
            poll, took_s = await self._poll(reader)
            if poll.absent:
                continue
            self._chosen = reader
            late = slow(took_s)
            problems = (*poll.problems, late) if late is not None else poll.problems
            self._emit(GpuRecord(self._host.name, self._host.now(), poll.gpus, problems, poll.processes))
            return True
        self._chosen = None
        nothing = Problem("NO_NVIDIA", "no NVIDIA GPU", info=True)
        self._emit(GpuRecord(self._host.name, self._host.now(), problems=(nothing,)))
        return False

    async def _poll(self, reader: GpuReader) -> tuple[GpuPoll, float]:
        for _ in range(_MOST_REASKS):
            started = time.monotonic()
            output = await self._ask(reader.script(), started)
            took_s = time.monotonic() - started
            poll = reader.read(output, took_s)
            if not poll.again:
                break
        return poll, took_s

    async def _ask(self, script: str, started: float) -> str:
        """The output of the only poll under way; while it is late, old figures are told to be old."""
        task = asyncio.ensure_future(self._host.run(script, timeout_s=PATIENCE_S))
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=SLOW_S)
                if done:
                    return task.result().out
                if (late := slow(time.monotonic() - started)) is not None:
                    self._stale(late)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _emit(self, record: GpuRecord) -> None:
        self._last = record
        self._sink(record)

    def _stale(self, problem: Problem) -> None:
        """The last figures again, with their own time and the reason why there are no newer ones."""
        last = self._last or GpuRecord(self._host.name, self._host.now())
        self._sink(GpuRecord(last.host, last.t, last.gpus, (problem,), last.processes))

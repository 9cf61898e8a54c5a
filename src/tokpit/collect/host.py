"""Watch a host: its servers, GPUs and memory, each in a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tokpit.collect.find import Finder
from tokpit.collect.gpus import GpuWatch
from tokpit.collect.link import LinkGate, repeat
from tokpit.domain.records import Record, ServersRecord
from tokpit.probes import memory
from tokpit.transport.base import Host

PROCESSES_EVERY_S = 5.0
GPUS_EVERY_S = 2.0
MEMORY_EVERY_S = 2.0

Sink = Callable[[Record], None]


async def watch_host(
    host: Host,
    sink: Sink,
    *,
    processes_every_s: float = PROCESSES_EVERY_S,
    gpus_every_s: float = GPUS_EVERY_S,
    memory_every_s: float = MEMORY_EVERY_S,
) -> None:
    """Feed ServersRecord, GpuRecord and HostRecord until cancelled; intervals are seconds on the host's clock.

    Raises nothing for a host that is down or lacks a tool: the loops wait for the link and go on. State changes of
    the link are not fed; subscribe to `host.on_link` for them.
    """
    gate = LinkGate(host)
    finder = Finder(host)
    earlier: memory.MemoryReading | None = None

    async def processes() -> None:
        found = await finder.find()
        sink(ServersRecord(host.name, host.now(), found.servers, found.orphans))

    async def memory_once() -> None:
        nonlocal earlier
        done = await host.run(memory.script(), timeout_s=30.0)
        try:
            reading = memory.parse(done.out)
        except ValueError:
            return  # not a Linux host: nothing to show, and the next reading will say the same
        sink(reading.record(host.name, host.now(), earlier))
        earlier = reading

    async with asyncio.TaskGroup() as group:
        group.create_task(repeat(host, gate, processes_every_s, processes), name=f"{host.name} processes")
        group.create_task(repeat(host, gate, memory_every_s, memory_once), name=f"{host.name} memory")
        group.create_task(GpuWatch(host, sink, gate, gpus_every_s).run(), name=f"{host.name} gpus")

"""The live store at another moment: what it holds now as records, and what it held a while ago."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tokpit.domain.records import Facts, Record, ServerSeen, ServersRecord
from tokpit.store.live import HostState, LiveStore, Series, ServerState


def state(store: LiveStore) -> Iterator[Record]:
    """Records that bring an empty store to what this one says now; figures over time and logs are not among them."""
    for host in store.hosts.values():
        if host.link is not None:
            yield host.link
        newest = 0.0
        for record in (host.gpus, host.memory):
            if record is not None:
                newest = max(newest, record.t)
                yield record
        listed = [store.servers[server_id] for server_id in host.server_ids]
        for server in listed:
            yield ServerSeen(newest, server.info)
        if listed or host.orphans:
            alive = tuple(server.info for server in listed if server.alive)
            yield ServersRecord(host.name, newest, alive, host.orphans)
        for server in listed:
            if server.gpus is not None:
                yield server.gpus
            if server.phase is not None:
                yield server.phase
            if server.facts:
                yield Facts(server.info.id, newest, dict(server.facts))
            yield from server.marks
    yield from store.operations.values()
    yield from store.runs.values()


def at_moment(store: LiveStore, moment: Callable[[str], float]) -> LiveStore:
    """What the store held at `moment(host)`: figures, GPUs and memory up to then; logs, facts and phases as they are.

    Shares what does not change with `store`; is not fed any further.
    """
    past = LiveStore()
    for name, host in store.hosts.items():
        t = moment(name)
        then = past.hosts[name] = HostState(name, 1)
        then.link, then.server_ids, then.orphans = host.link, host.server_ids, host.orphans
        then.gpus, then.memory = host.past_gpus.at(t), host.past_memory.at(t)
        for server_id in host.server_ids:
            past.servers[server_id] = _server(store.servers[server_id], t)
    past.operations, past.runs = store.operations, store.runs
    return past


def _server(server: ServerState, t: float) -> ServerState:
    then = ServerState(server.info, points=1, lines=1)
    then.alive, then.log, then.facts, then.phase = server.alive, server.log, server.facts, server.phase
    then.gpus = server.past_gpus.at(t)
    then.marks.extend(mark for mark in server.marks if mark.t <= t)
    for tag, series in server.series.items():
        cut = then.series[tag] = Series(series.times.maxlen or 1)
        cut.source = series.source
        for when, value in zip(series.times, series.values, strict=True):
            if when > t:
                break
            cut.times.append(when)
            cut.values.append(value)
    return then

"""A diagnosis from what the live store holds: nothing is asked of the host, so it serves alarms and recordings."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import msgspec

from tokpit.domain.records import GpuSample, LogRecord, Problem
from tokpit.domain.server import ServerInfo
from tokpit.engines.logkit.clock import Clock
from tokpit.engines.registry import engine as engine_of
from tokpit.insight.counters import counted_facts
from tokpit.insight.digest import Digest, Reader
from tokpit.insight.facts import Facts, merged
from tokpit.ops.diagnose.live import settings_facts
from tokpit.ops.diagnose.run import Diagnosis, Gathered, judge
from tokpit.store.live import LiveStore

MOST_RECORDS = 6000
"""Log records looked at, the newest: a diagnosis of them takes well under a second."""


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds of a server at one moment, taken at once, so that a thread can judge it."""

    info: ServerInfo
    records: tuple[LogRecord, ...]
    facts: Facts
    gpus: tuple[GpuSample, ...] = ()
    problems: tuple[Problem, ...] = ()


def sight(store: LiveStore, server_id: str, *, most: int = MOST_RECORDS) -> Sight:
    """A server's newest log lines, its settings, and its host's GPUs and memory."""
    state = store.servers[server_id]
    host = store.host(state.info.host)
    gpus = store.gpus_of(state.info)
    facts = settings_facts(state.info)
    if gpus is not None and gpus.gpus:
        facts = merged(Facts(gpu=gpus.gpus[0].name, gpus=len(gpus.gpus)), facts)
    if (memory := host.memory) is not None and state.info.job is None:  # a login host's memory is not its node's
        seen = Facts(
            mem_total_gb=None if memory.mem_total_bytes is None else memory.mem_total_bytes / 1e9,
            swap_used_gb=None if memory.swap_used_bytes is None else memory.swap_used_bytes / 1e9,
            orphans=len(host.orphans) or None,
        )
        facts = merged(seen, facts)
    latest = {tag: series.last for tag, series in state.series.items() if series.last is not None}
    facts = merged(counted_facts(latest), facts)
    cap = state.facts.get("max_running_reqs")
    if isinstance(cap, (int, float)) and not isinstance(cap, bool):
        facts = merged(facts, Facts(max_running_requests=int(cap)))
    return Sight(
        info=state.info,
        records=tuple(islice(state.log.records, max(0, len(state.log.records) - most), None)),
        facts=facts,
        gpus=gpus.gpus if gpus is not None else (),
        problems=gpus.problems if gpus is not None else (),
    )


def judge_sight(seen: Sight) -> Diagnosis:
    """What the rules say of it."""
    got = Gathered()
    got.facts = seen.facts
    if seen.records:
        got.logs.append(_digest(seen.records, seen.info.label, seen.info.engine))
        if (verdict := engine_of(seen.info.engine).verdict(seen.records)) is not None:
            got.verdicts.append(verdict)
    got.gpus += seen.gpus
    got.problems += seen.problems
    return judge(got)


def diagnose_store(store: LiveStore, server_id: str) -> Diagnosis:
    """What the rules say of what the store holds of a server."""
    return judge_sight(sight(store, server_id))


def _digest(records: Iterable[LogRecord], name: str, engine: str) -> Digest:
    reader, clock, sampler = Reader(name, engine), Clock(), engine_of(engine).grammar()
    for record in records:
        reader.take(record, clock.seconds(record.fields.get("ts", record.fields.get("t"))), sampler.sample(record))
    return reader.digest()

"""A diagnosis from what the live store holds: nothing is asked of the host, so it serves alarms and recordings."""

from __future__ import annotations

from collections.abc import Iterable

from tokpit.domain.records import LogRecord
from tokpit.engines.logkit.clock import Clock
from tokpit.engines.registry import engine as engine_of
from tokpit.insight.digest import Digest, Reader
from tokpit.insight.facts import Facts, merged
from tokpit.ops.diagnose import Diagnosis, Gathered, judge
from tokpit.ops.diagnose_live import settings_facts
from tokpit.store.live import LiveStore

MOST_RECORDS = 6000
"""Log records looked at, the newest: a diagnosis of them takes well under a second."""


def diagnose_store(store: LiveStore, server_id: str, *, most: int = MOST_RECORDS) -> Diagnosis:
    """What the rules say of a server's newest log lines, its settings, and its host's GPUs and memory."""
    state = store.servers[server_id]
    host = store.host(state.info.host)
    got = Gathered()
    got.facts = settings_facts(state.info)
    records = list(state.log.records)[-most:]
    if records:
        got.logs.append(_digest(records, state.info.label, state.info.engine))
        if (verdict := engine_of(state.info.engine).verdict(records)) is not None:
            got.verdicts.append(verdict)
    if host.gpus is not None:
        got.gpus += host.gpus.gpus
        got.problems += host.gpus.problems
        if host.gpus.gpus:
            got.facts = merged(Facts(gpu=host.gpus.gpus[0].name, gpus=len(host.gpus.gpus)), got.facts)
    if (memory := host.memory) is not None:
        seen = Facts(
            mem_total_gb=None if memory.mem_total_bytes is None else memory.mem_total_bytes / 1e9,
            swap_used_gb=None if memory.swap_used_bytes is None else memory.swap_used_bytes / 1e9,
            orphans=len(host.orphans) or None,
        )
        got.facts = merged(seen, got.facts)
    cap = state.facts.get("max_running_reqs")
    if isinstance(cap, (int, float)) and not isinstance(cap, bool):
        got.facts = merged(got.facts, Facts(max_running_requests=int(cap)))
    return judge(got)


def _digest(records: Iterable[LogRecord], name: str, engine: str) -> Digest:
    reader, clock, sampler = Reader(name, engine), Clock(), engine_of(engine).grammar()
    for record in records:
        reader.take(record, clock.seconds(record.fields.get("ts", record.fields.get("t"))), sampler.sample(record))
    return reader.digest()

"""A live server as evidence: its log, settings, GPUs, the host's memory and what runs there without a server."""

from __future__ import annotations

import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from tokpit.collect.backlog import read_age, read_head
from tokpit.collect.find import orphans_of, read_table
from tokpit.collect.gpus import Runner
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec
from tokpit.domain.text import LineSplitter, decode_line
from tokpit.errors import RemoteFailed
from tokpit.insight.counters import counted_facts
from tokpit.insight.facts import Facts, merged
from tokpit.insight.prediction import kv_bytes_per_token
from tokpit.ops.diagnose.files import digest_lines
from tokpit.ops.diagnose.past import newest_sweep, read_past
from tokpit.ops.host.environment import model_facts
from tokpit.ops.targets import resolve_server
from tokpit.probes import memory, registry, stalls
from tokpit.transport.base import Host, quote

if TYPE_CHECKING:
    from tokpit.ops.diagnose.run import Gathered
    from tokpit.ops.session import Session

_HEAD_BYTES = 512 << 10
"""The begin of a log holds the facts of the start."""
_TAIL_BYTES = 4 << 20
_REASKS = 10


async def read_live(session: Session, target: str, got: Gathered) -> None:
    """Add what a server and its host say to `got`. Raises TargetError, HostError."""
    server = await resolve_server(session, target)
    host = await session.connected(server.host)
    if not got.sweeps and (run := await newest_sweep(session, server, got)) is not None:
        got.add_run(run)
        got.notes.append(f"with the levels of run {run.id}, the newest sweep of this process")
    got.facts = merged(settings_facts(server), got.facts)
    if server.log_path is not None:
        digest, verdict = digest_lines(
            await _log_lines(host, server.log_path), name=PurePosixPath(server.log_path).name, engine=server.engine
        )
        # Echoed arguments go by the engine's own names; the settings of the process are told by `read_past`.
        got.logs.append(msgspec.structs.replace(digest, settings={}))
        if verdict is not None:
            got.verdicts.append(verdict)
    else:
        got.notes.append(f"{server.label} writes no log file that can be read")
    model = await model_facts(
        host, LaunchSpec(host=host.name, engine=server.engine, program=(), settings=server.settings)
    )
    # What the log says was loaded goes before the files: weights may be quantized while they are loaded.
    loaded = any(log.facts.weights_each_gb for log in got.logs)
    weights = None if loaded or model.weight_bytes is None else model.weight_bytes / 1e9
    got.facts = merged(Facts(weights_gb=weights, hybrid=model.hybrid, experts=model.experts), got.facts)
    pool = next((log.facts.kv_tokens for log in got.logs if log.facts.kv_tokens), None)
    token = kv_bytes_per_token(server.settings, model)
    if pool and token:
        got.facts = merged(Facts(kv_pool_gb=pool * token / 1e9), got.facts)
    await read_past(session, server, got)
    await _counters(session, host, server, got)
    if server.job is not None:
        await _job_gpus(session, host, server, got)
        return
    await _gpus(host, got)
    got.facts = merged(await _host(host), got.facts)


def settings_facts(server: ServerInfo) -> Facts:
    """What a server's command line says."""
    s = server.settings
    return Facts(
        engine=server.engine,
        engine_version=server.version,
        model=s.model,
        tp=s.tp,
        dp=s.dp,
        configured_max_running=s.max_running,
        state_slots=s.state_slots,
        hicache_gb=s.hicache_gb,
        draft_tokens=s.spec_steps,
        prefix_cache=s.prefix_cache,
    )


async def _log_lines(host: Host, path: str) -> list[str]:
    """The begin and the end of a log; in between nothing is read."""
    age = await read_age(host, path)
    size = age.size if age is not None else 0
    if size <= _HEAD_BYTES + _TAIL_BYTES:
        parts = [await read_head(host, path, _HEAD_BYTES + _TAIL_BYTES)]
    else:
        done = await host.run(f"tail -c {_TAIL_BYTES} {quote([path])}", timeout_s=60.0)
        parts = [await read_head(host, path, _HEAD_BYTES), done.stdout.partition(b"\n")[2]]
    lines = []
    for part in parts:
        splitter = LineSplitter()
        lines += [decode_line(raw) for raw in splitter.feed(part)]
        if (rest := splitter.flush()) is not None and part is parts[-1]:
            lines.append(decode_line(rest))
    return lines


async def _counters(session: Session, host: Host, server: ServerInfo, got: Gathered) -> None:
    """What the server's metrics page counts of its cache tiers since it started; without a page nothing."""
    if server.url is None:
        return
    from tokpit.ops.sweep.server import ServerSide

    side = ServerSide(session, host, server, server.url, {})
    await side.open(watch=False)
    try:
        page = await side.page()
    finally:
        await side.close()
    if page is not None:
        got.facts = merged(counted_facts(page.values), got.facts)


async def _job_gpus(session: Session, host: Host, server: ServerInfo, got: Gathered) -> None:
    """Those of its node; its memory and processors are not asked for, and the login host's are not its own."""
    from tokpit.collect.job_gpus import JobOver, Node

    node = Node(host, lambda: session.store.servers[server.id].info)
    try:
        await _gpus(node, got)
    except RemoteFailed as error:
        got.notes.append(error.message)
    except JobOver:
        got.notes.append(f"{server.label} does not run yet: nothing is known of its GPUs")


async def _gpus(host: Runner, got: Gathered) -> None:
    """One poll of the GPUs by the first reader that finds its kind."""
    for make in registry.READERS:
        reader = make()
        for _ in range(_REASKS):
            started = time.monotonic()
            output = (await host.run(reader.script(), timeout_s=60.0)).out
            poll = reader.read(output, time.monotonic() - started)
            if not poll.again:
                break
        if not poll.absent:
            got.gpus += poll.gpus
            got.problems += poll.problems
            if poll.gpus:
                got.facts = merged(Facts(gpu=poll.gpus[0].name, gpus=len(poll.gpus)), got.facts)
            return


async def _host(host: Host) -> Facts:
    reading = memory.parse((await host.run(memory.script(), timeout_s=30.0)).out)
    # A simulated host borrows this machine's processors, whose troubles are not its own.
    real = host.spec.clock_factor == 1
    waits = stalls.parse((await host.run(stalls.SCRIPT, timeout_s=30.0)).out) if real else stalls.Stalls()
    orphans = orphans_of(await read_table(host))
    info = reading.memory
    return Facts(
        mem_total_gb=None if info.total is None else info.total / 1e9,
        swap_used_gb=None if info.swap_used is None else info.swap_used / 1e9,
        orphans=len(orphans) or None,
        cpu_steal=waits.steal,
        mem_pressure=waits.memory,
    )

"""`tokpit ps`: the servers that run, whoever started them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from tokpit.cli.context import Options
from tokpit.cli.errors import report
from tokpit.cli.output import age, table, to_json
from tokpit.domain.server import ServerInfo
from tokpit.domain.text import mask_secrets, sanitize
from tokpit.errors import TokpitError, UsageError

if TYPE_CHECKING:
    from tokpit.domain.job import BatchJob
    from tokpit.domain.records import Orphan
    from tokpit.ops.session import Session


@click.command()
@click.argument("hosts", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def ps(options: Options, hosts: tuple[str, ...], as_json: bool) -> int:
    """Find running SGLang, vLLM and llama.cpp servers on HOSTS (default: the inventory's; `local` is this machine).

    Read from each host's process table: command line, port, pid, start time, user, engine version, model.
    Workers whose server is gone are listed as orphans. Exit code 3 if a host could not be asked.
    """
    return options.run(lambda session: show_found(session, hosts, as_json))


async def show_found(session: Session, hosts: tuple[str, ...], as_json: bool) -> int:
    """Print what runs on the hosts; the exit code."""
    names = hosts or tuple(session.inventory.hosts)
    if not names:
        raise UsageError("no host named, and the inventory is empty", hint="try: tokpit ps local")
    found = await asyncio.gather(*(session.find(name) for name in names), return_exceptions=True)
    servers: list[ServerInfo] = []
    errors: dict[str, TokpitError] = {}
    for name, answer in zip(names, found, strict=True):
        if isinstance(answer, TokpitError):
            errors[name] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            servers += answer
    orphans = [
        (session.host(name).name, orphan)
        for name in names
        if name not in errors
        for orphan in orphans_of(session, name)
    ]
    held = await _gpu_memory(session, orphans)
    if as_json:
        to_json(
            {
                "servers": [as_row(s) for s in servers],
                "orphans": [
                    {"host": host, **msgspec.to_builtins(orphan), "gpu_mib": held.get((host, orphan.pid))}
                    for host, orphan in orphans
                ],
                "errors": {n: e.message for n, e in errors.items()},
            }
        )
    elif servers:
        rows = [
            (
                s.label,
                s.engine,
                s.version,
                s.served_name or s.model,
                process_of(s),
                s.user,
                age(time.time() - s.started_at) if s.started_at else None,
                s.log_path,
            )
            for s in servers
        ]
        table(("SERVER", "ENGINE", "VERSION", "MODEL", "PID", "USER", "UP", "LOG"), rows, right=frozenset({4}))
        for s in servers:
            if s.job is not None:
                click.echo(sanitize(job_line(s.label, s.job)))
    elif not errors and not orphans:
        from tokpit.engines.registry import listed

        click.echo(f"no {listed()} server runs on {', '.join(names)}", err=True)
    if orphans and not as_json:
        click.echo(f"{len(orphans)} orphan workers, whose server is gone; they may hold GPU memory:")
        lost = [
            (
                f"{host}/{o.pid}",
                o.title,
                o.user,
                age(time.time() - o.started_at) if o.started_at else None,
                None if (mib := held.get((host, o.pid))) is None else f"{mib:,.0f}",
            )
            for host, o in orphans
        ]
        table(("ORPHAN", "TITLE", "USER", "UP", "GPU MiB"), lost, right=frozenset({4}))
        click.echo(f"end one with: tokpit stop {lost[0][0]}", err=True)
    for error in errors.values():
        report(error)
    return max((error.exit_code for error in errors.values()), default=0)


def orphans_of(session: Session, name: str) -> tuple[Orphan, ...]:
    """The workers without a server on the host called `name`."""
    return session.store.host(session.host(name).name).orphans


async def _gpu_memory(session: Session, orphans: Sequence[tuple[str, Orphan]]) -> dict[tuple[str, int], float | None]:
    """GPU memory of orphans in MiB by host and pid; without an entry where no driver answers or it holds none."""
    from tokpit.ops.lifecycle.footprint import gpu_hold

    held: dict[tuple[str, int], float | None] = {}
    for name in dict.fromkeys(host for host, _ in orphans):
        answer = await gpu_hold(session.host(name), [orphan.pid for host, orphan in orphans if host == name])
        held.update({(name, pid): mib for pid, mib in (answer.by_pid if answer is not None else {}).items()})
    return held


def process_of(server: ServerInfo) -> str:
    """Its process, job or rank, for a list."""
    if server.job is not None:
        return f"job {server.job.id}"
    return f"{server.pid} rank {server.rank}/{len(server.ranks)}" if server.ranks else str(server.pid)


def job_line(label: str, job: BatchJob) -> str:
    """Where a job is: waiting and why, or on which nodes and for how long still."""
    from tokpit.ops.lifecycle.slurm import left_sentence, waits

    if job.waiting:
        return f"{label}: {waits(job, time.time())}"
    return ", ".join(filter(None, (f"{label}: job {job.id} {job.state} on {', '.join(job.nodes)}", left_sentence(job))))


def as_row(server: ServerInfo) -> dict[str, object]:
    """A server as JSON: settings by canonical name, command line with secrets masked."""
    return {
        "host": server.host,
        "engine": server.engine,
        "version": server.version,
        "model": server.model,
        "served_name": server.served_name,
        "port": server.port,
        "pid": server.pid,
        "pgid": server.pgid,
        "start_ticks": server.start_ticks,
        "started_at": server.started_at,
        "user": server.user,
        "log_path": server.log_path,
        "settings": server.settings.given(),
        "command": mask_secrets(" ".join(server.argv)),
        "children": server.children,
        "launched_by_tokpit": server.launched_by_tokpit,
        "job": server.job,
        "rank": server.rank if server.ranks else None,
        "ranks": server.ranks,
    }

"""`tokpit watch`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.cli.output import to_json
from tokpit.domain.metrics import REGISTRY
from tokpit.errors import TargetError

if TYPE_CHECKING:
    from tokpit.ops.session import Session

FRESH_S = 60.0
"""Figures older than this are not shown."""
_LASTING = frozenset({"max_running_reqs"})
_SHOWN = ("gen_tps", "running_reqs", "queue_reqs", "accept_len", "kv_usage", "state_usage", "ttft_p50_s")


@click.command()
@click.argument("target")
@click.option("-i", "--interval", type=float, default=2.0, show_default=True, help="Seconds between lines.")
@click.option("-n", "--count", type=int, help="Stop after so many lines.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_obj
def watch(options: Options, target: str, interval: float, count: int | None, as_json: bool) -> None:
    """Print the figures of the server TARGET as they come, from its log, its metrics and the host's GPUs.

    Ends with exit code 4 and the reason that its log gives when the server goes.

    \b
    tokpit watch gpu1:30000 -i 5
    tokpit watch gpu1 --json -n 60 > figures.jsonl
    """
    options.run(lambda session: _watch(session, target, interval, count, as_json))


async def _watch(session: Session, target: str, interval: float, count: int | None, as_json: bool) -> None:
    from tokpit.engines.registry import engine
    from tokpit.ops.targets import resolve_server

    server = await resolve_server(session, target)
    session.watch_host(server.host)
    session.watch_server(server.id)
    state = session.store.servers[server.id]
    host = session.host(server.host)
    shown, looked = 0, 0.0
    while count is None or shown < count:
        await asyncio.sleep(interval)
        now = host.now()
        figures = {
            tag: round(series.last, 4)
            for tag, series in state.series.items()
            if tag in REGISTRY
            and series.last is not None
            and series.last_t is not None
            and (now - series.last_t < FRESH_S or tag in _LASTING)
        }
        gpus = session.store.gpus_of(server)
        if as_json:
            to_json(
                {
                    "t": now,
                    "server": server.label,
                    "alive": state.alive,
                    "figures": figures,
                    "gpus": gpus.gpus if gpus is not None else None,
                    "problems": gpus.problems if gpus is not None else None,
                    "late_s": max((stall.late_s for stall in session.store.stalls if stall.t > looked), default=0.0),
                }
            )
        else:
            words = [
                f"{REGISTRY[tag].label} {figures[tag]:.2f} {REGISTRY[tag].unit}" for tag in _SHOWN if tag in figures
            ]
            if gpus is not None and gpus.gpus:
                words += [f"GPU{g.index} {g.util:.0%}" for g in gpus.gpus if g.util is not None]
            elif gpus is not None and gpus.problems:
                words.append(gpus.problems[0].text)
            click.echo(f"{time.strftime('%H:%M:%S')}  {'  '.join(words) or 'no figures yet'}")
        shown += 1
        looked = time.time()
        if not state.alive:
            verdict = engine(server.engine).verdict(list(state.log.records))
            why = ""
            if server.job is not None:
                from tokpit.ops.lifecycle.slurm import how_it_ended

                why = await how_it_ended(host, server.job.id)
            said = f"{server.label} is gone" + (f": {why}" if why else "")
            raise TargetError(said, hint=verdict.sentence if verdict is not None else "")

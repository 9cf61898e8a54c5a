"""`tokpit sweep`."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import click

from tokpit.cli.context import Options
from tokpit.cli.output import to_json
from tokpit.cli.progress import show_operations

if TYPE_CHECKING:
    from tokpit.domain.run import Run
    from tokpit.ops.session import Session


@click.command()
@click.argument("target")
@click.option(
    "-c", "--concurrency", "levels", default="1,4,8,16,32,48", show_default=True, help="Levels: 1,4,8 or 1-4."
)
@click.option("-n", "--requests", type=int, help="Requests a level (default: max(2C, 8)).")
@click.option("--max-tokens", type=int, default=1024, show_default=True, help="Output tokens a request.")
@click.option("--temperature", type=float, default=0.6, show_default=True)
@click.option("--top-p", type=float, default=0.95, show_default=True)
@click.option("--model", help="Model name to ask for (default: the first that the server lists).")
@click.option("--api", type=click.Choice(["chat", "completions"]), default="chat", show_default=True)
@click.option("--warmup", type=int, default=1, show_default=True, help="Requests before the first level.")
@click.option("--note", default="", help="A word for the record.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def sweep(options: Options, /, **values: Any) -> int:
    """Measure TARGET (HOST, HOST:PORT, HOST/PID or a URL) at several concurrency levels.

    Ctrl-C stops at once and keeps what was measured. Each finished level is stored before the next begins.
    """
    return options.run(lambda session: _sweep(session, values))


async def _sweep(session: Session, values: dict[str, Any]) -> int:
    as_json = values.pop("as_json")
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    try:
        async with show_operations(session):
            run: Run = await session.execute("sweep.start", stop=stop, **values)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
    if as_json:
        to_json(run)
    else:
        click.echo(f"run {run.id}: {run.status}, {len(run.levels)} levels kept; show it with: tokpit runs {run.id}")
    if run.status == "stopped":
        return 130
    return 0 if any(level.ok for level in run.levels) else 7

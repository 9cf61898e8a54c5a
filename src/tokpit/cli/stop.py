"""`tokpit stop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.cli.output import to_json
from tokpit.cli.progress import show_operations

if TYPE_CHECKING:
    from tokpit.ops.lifecycle.stop import Stopped
    from tokpit.ops.session import Session


@click.command()
@click.argument("target")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--term-wait", type=float, default=90.0, show_default=True, help="Seconds to wait after TERM before KILL."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def stop(options: Options, target: str, yes: bool, term_wait: float, as_json: bool) -> None:
    """End exactly the server TARGET (HOST, HOST:PORT or HOST/PID), or the orphan workers of HOST/PID.

    Every signal follows a check of pid and start time. A server that systemd or docker keeps is stopped through it, a
    batch job by scancel.
    Afterwards tells whether GPU memory came back, the port is free, and what is left in /dev/shm.
    """

    async def work(session: Session) -> Stopped:
        async with show_operations(session):
            done: Stopped = await session.execute("server.stop", target=target, term_wait_s=term_wait)
        return done

    done = options.run(work, yes=yes)
    to_json(as_json_row(done)) if as_json else show_stopped(done)


def as_json_row(done: Stopped) -> dict[str, object]:
    """A stop as JSON; memory in MiB, null where the driver does not say."""
    return {
        "host": done.server.host,
        "pid": done.server.pid,
        "signal": done.signal,
        "elapsed_s": round(done.elapsed_s, 1),
        "processes": len(done.members),
        "left_group": done.left_group,
        "gpu_before_mib": done.gpu_before_mib,
        "gpu_after_mib": done.gpu_after_mib,
        "port_free": done.port_free,
        "shm_left": [{"path": file.path, "size_bytes": file.size_bytes} for file in done.shm_left],
    }


def show_stopped(done: Stopped) -> None:
    """Print how a server ended and what it left."""
    from tokpit.ops.lifecycle.stop import counted

    if done.server.job is not None:
        click.echo(f"job {done.server.job.id} is over: {done.signal}, after {done.elapsed_s:.1f} s")
        return
    click.echo(
        f"{done.server.label} is gone: {counted(len(done.members))}, {done.signal}, after {done.elapsed_s:.1f} s"
    )
    if done.gpu_before_mib is not None and done.gpu_after_mib is not None:
        word = "given back" if not done.gpu_after_mib else "STILL HELD in part"
        click.echo(f"GPU memory {word}: {done.gpu_before_mib:,.0f} MiB before, {done.gpu_after_mib:,.0f} MiB after")
    if done.port_free is False:
        click.echo(f"port {done.server.port} is in use by another process")
    for file in done.shm_left:
        size = "" if file.size_bytes is None else f" ({file.size_bytes / 2**20:,.0f} MiB)"
        click.echo(f"left behind: {file.path}{size}; remove it if no other server uses it")

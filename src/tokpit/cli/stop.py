"""`tokpit stop`."""

from __future__ import annotations

import click

from tokpit.cli.context import Options
from tokpit.cli.output import to_json


@click.command()
@click.argument("target")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--term-wait", type=float, default=90.0, show_default=True, help="Seconds to wait after TERM before KILL."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def stop(options: Options, target: str, yes: bool, term_wait: float, as_json: bool) -> None:
    """End exactly the server TARGET (HOST, HOST:PORT or HOST/PID).

    Its process group is signalled only after pid and start time agree with what was found.
    """
    done = options.run(lambda session: session.execute("server.stop", target=target, term_wait_s=term_wait), yes=yes)
    if as_json:
        to_json(
            {
                "host": done.server.host,
                "pid": done.server.pid,
                "signal": done.signal,
                "elapsed_s": round(done.elapsed_s, 1),
                "processes": len(done.members),
            }
        )
    else:
        click.echo(
            f"{done.server.label} is gone: {len(done.members)} processes, {done.signal}, after {done.elapsed_s:.1f} s"
        )

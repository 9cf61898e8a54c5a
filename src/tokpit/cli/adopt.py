"""`tokpit adopt`."""

from __future__ import annotations

import click
import msgspec

from tokpit.cli.context import Options
from tokpit.cli.output import to_json


@click.command()
@click.argument("target")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def adopt(options: Options, target: str, yes: bool, as_json: bool) -> None:
    """Record the server TARGET (HOST, HOST:PORT or HOST/PID) that somebody else started, so that tokpit keeps it.

    Nothing of the server is changed: a file on the host names its pid, start time, group, port and log.
    """
    done = options.run(lambda session: session.execute("server.adopt", target=target), yes=yes)
    if as_json:
        to_json({"host": done.server.host, "keeper": done.keeper, **msgspec.to_builtins(done.state)})
    else:
        kept = f", kept by {done.keeper}" if done.keeper else ""
        click.echo(f"adopted {done.server.label}: pid {done.state.pid}, log {done.state.log_path or 'none'}{kept}")

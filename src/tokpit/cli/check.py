"""`tokpit check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.cli.output import to_json
from tokpit.domain.text import sanitize

if TYPE_CHECKING:
    from tokpit.ops.check.run import Checked

_MARKS = {True: "ok  ", False: "FAIL", None: "-   "}


@click.command()
@click.argument("target")
@click.option("--min-tps", type=float, metavar="X", help="Least tok/s of one stream, instead of the stored baseline.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'",
              help="Sent with each request. An API key is taken from TOKPIT_API_KEY, never from here.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def check(options: Options, target: str, min_tps: float | None, headers: tuple[str, ...], as_json: bool) -> int:
    """Look whether TARGET (HOST, HOST:PORT, HOST/PID or a URL) is sane, in under 20 s.

    Does it generate, do its answers make sense, is it as configured, as fast as the last stored sweep of this model,
    and is its log free of errors? Exit status 0 if nothing failed, else 1.
    """
    done: Checked = options.run(
        lambda session: session.execute("server.check", target=target, min_tps=min_tps, headers=headers)
    )
    if as_json:
        to_json(done)
    else:
        width = max(len(item.name) for item in done.items)
        for item in done.items:
            click.echo(f"{_MARKS[item.ok]}  {item.name:{width}}  {sanitize(item.sentence)}")
        failed = sum(item.ok is False for item in done.items)
        verdict = "nothing failed" if done.ok else f"{failed} of {len(done.items)} failed"
        click.echo(f"{done.target}: {verdict}, after {done.elapsed_s:.1f} s (run {done.run})")
    return 0 if done.ok else 1

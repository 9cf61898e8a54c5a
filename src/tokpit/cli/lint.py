"""`tokpit lint`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.cli.output import to_json

if TYPE_CHECKING:
    from tokpit.ops.session import Session


@click.command()
@click.option("--engine", help="Engine (default: found from the command line).")
@click.option("--engine-version", "version", help="Engine version (default: the host's, else the newest known).")
@click.option("--host", help="Check against this host: its version, memory, GPUs and ports.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def lint(
    options: Options, engine: str | None, version: str | None, host: str | None, as_json: bool, command: tuple[str, ...]
) -> int:
    """Check a server COMMAND line (after `--`) without starting it. Exit code 1 on an error."""
    return options.run(lambda session: _lint(session, engine, version, host, as_json, command))


async def _lint(
    session: Session, engine: str | None, version: str | None, host: str | None, as_json: bool, command: tuple[str, ...]
) -> int:
    from tokpit.ops.lint import lint_command

    issues = await lint_command(session, command, engine=engine, version=version, host=host)
    if as_json:
        to_json({"issues": issues})
    else:
        for issue in issues:
            click.echo(f"{issue.severity}: {issue.sentence}" + (f" ({issue.arithmetic})" if issue.arithmetic else ""))
        if not issues:
            click.echo("no issue found")
    return 1 if any(issue.severity == "error" for issue in issues) else 0

"""`tokpit audit`: what was done, by whom, and how it ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.cli.output import table, to_json
from tokpit.domain.text import sanitize

if TYPE_CHECKING:
    from tokpit.ops.session import Session


@click.command()
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Newest entries to list."
)
@click.option("--host", help="The audit that is kept on this host, of everybody who used tokpit there.")
@click.option("--lines", is_flag=True, help="Show the command lines too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def audit(options: Options, limit: int, host: str | None, lines: bool, as_json: bool) -> None:
    """List what tokpit did that changed a host, newest first; entries are only ever added, secrets are masked."""
    options.run(lambda session: _audit(session, limit, host, lines, as_json))


async def _audit(session: Session, limit: int, host: str | None, lines: bool, as_json: bool) -> None:
    if host is not None:
        from tokpit.transport.records import read_audit

        kept = await read_audit(await session.connected(host), limit)
        if as_json:
            to_json({"host": host, "lines": kept})
        else:
            for line in reversed(kept):
                click.echo(sanitize(line))
            if not kept:
                click.echo(f"nothing was changed on {host} by tokpit yet", err=True)
        return
    entries = await (await session.history()).audit(limit)
    if as_json:
        to_json(entries)
        return
    if not entries:
        click.echo("nothing was changed by tokpit yet", err=True)
        return
    rows = [
        (
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.t)),
            entry.user,
            entry.host,
            entry.outcome or "not over",
            f"{entry.duration_s:.0f} s" if entry.duration_s is not None else None,
            entry.title + (f": {entry.detail}" if entry.detail else ""),
        )
        for entry in entries
    ]
    if not lines:
        table(("TIME", "USER", "HOST", "OUTCOME", "TOOK", "WHAT"), rows)
        return
    for row, entry in zip(rows, entries, strict=True):
        click.echo(sanitize("  ".join("-" if cell is None else cell for cell in row)))
        for line in entry.lines:
            click.echo(sanitize(f"    {line}"))

"""`tokpit logs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.errors import TargetError

if TYPE_CHECKING:
    from tokpit.ops.session import Session


@click.command()
@click.argument("target")
@click.option(
    "-f/-F", "--follow/--no-follow", default=True, help="Go on as the log grows (default), or stop at its end."
)
@click.option("-n", "--bytes", "backlog", type=int, default=65536, show_default=True, help="Bytes of backlog first.")
@click.option("--file", "path", help="Log file on the host, instead of the one the server writes.")
@click.pass_obj
def logs(options: Options, target: str, follow: bool, backlog: int, path: str | None) -> None:
    """Print the log of the server TARGET; a lost link is waited out and the log resumes at the next byte."""
    options.run(lambda session: _logs(session, target, follow, backlog, path))


async def _logs(session: Session, target: str, follow: bool, backlog: int, path: str | None) -> None:
    from tokpit.domain.text import LineSplitter, decode_line, decode_lines
    from tokpit.ops.targets import resolve_server
    from tokpit.transport.base import quote

    server = await resolve_server(session, target)
    path = path or server.log_path
    if path is None:
        raise TargetError(
            f"{server.label}: its output goes to no file that can be followed", hint="name the file with --file PATH"
        )
    host = await session.connected(server.host)
    if not follow:
        for line in decode_lines((await host.run(f"tail -c {backlog} -- {quote([path])}", check=True)).stdout):
            click.echo(line)
        return
    splitter = LineSplitter()
    async for _, data in host.follow(path, offset=-backlog):
        for raw in splitter.feed(data):
            click.echo(decode_line(raw))
    if (rest := splitter.flush()) is not None:
        click.echo(decode_line(rest))

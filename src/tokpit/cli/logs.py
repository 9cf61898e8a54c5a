"""`tokpit logs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.errors import TargetError

if TYPE_CHECKING:
    from tokpit.domain.server import ServerInfo
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
    """Print the log of the server TARGET; a lost link is waited out and the log resumes at the next byte.

    Of a server over several hosts the logs of all ranks come together, each line with its rank in front: what is there
    in the order of its time stamps, then every line as it is written.
    """
    options.run(lambda session: _logs(session, target, follow, backlog, path))


async def _logs(session: Session, target: str, follow: bool, backlog: int, path: str | None) -> None:
    from tokpit.domain.text import LineSplitter, decode_line, decode_lines
    from tokpit.ops.targets import resolve_server
    from tokpit.transport.base import quote

    server = await resolve_server(session, target)
    if server.ranks and path is None:
        await _ranks(session, server, follow, backlog)
        return
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


async def _ranks(session: Session, server: ServerInfo, follow: bool, backlog: int) -> None:
    from tokpit.ops.lifecycle.rank_logs import follow_all, read_all

    if not follow:
        for line in await read_all(session, server, backlog):
            click.echo(line)
        return
    async for line in follow_all(session, server, backlog):
        click.echo(line)

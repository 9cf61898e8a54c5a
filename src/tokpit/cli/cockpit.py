"""`tokpit` and `tokpit HOST...`: the cockpit."""

from __future__ import annotations

import asyncio
import sys

import click

from tokpit.cli.context import Options
from tokpit.errors import UsageError


@click.command(hidden=True)
@click.argument("hosts", nargs=-1)
@click.pass_obj
def cockpit(options: Options, hosts: tuple[str, ...]) -> None:
    """Open the cockpit on the hosts named, or on those of the inventory."""
    if options.open_app is None or not sys.stdout.isatty():
        raise UsageError("the cockpit needs a terminal", hint="from a script use: tokpit ps, sweep, runs ... --json")

    async def main() -> None:
        async with options.session() as session:
            names = hosts or tuple(session.inventory.hosts)
            if not names:
                raise UsageError(
                    "no host named, and the inventory is empty",
                    hint="try: tokpit HOST (a name from ~/.ssh/config, user@host, or local), or: tokpit demo",
                )
            for name in names:
                session.add_host(name)
            await options.open_app(session, theme=options.theme)  # type: ignore[misc]  # checked above

    asyncio.run(main())

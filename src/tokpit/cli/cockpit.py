"""`tokpit` and `tokpit HOST...`: the cockpit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.cli.terminal import need_terminal
from tokpit.errors import UsageError

if TYPE_CHECKING:
    from tokpit.ops.session import Session


@click.command(hidden=True)
@click.argument("hosts", nargs=-1)
@click.pass_obj
def cockpit(options: Options, hosts: tuple[str, ...]) -> None:
    """Open the cockpit on the hosts named, or on those of the inventory."""
    need_terminal("the cockpit", "without one use: tokpit ps, watch, logs, sweep, runs ... (--json)")

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
            await options.open_app(session, theme=options.theme)  # type: ignore[misc]  # `main` gives it
            tell_of_experiments(session)

    asyncio.run(main())


def tell_of_experiments(session: Session) -> None:
    """Why it takes a while to leave: an experiment under way puts its first server back before the links are closed."""
    for tuning in session.store.tunings.values():
        if tuning.phase not in {"done", "stopped", "failed"}:
            click.echo(
                f"tokpit: the experiment on {tuning.target} ends, its first server is put back; Ctrl-C leaves that to: "
                f"tokpit tune --restore {tuning.id}",
                err=True,
            )

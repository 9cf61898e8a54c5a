"""`tokpit hosts`: the inventory."""

from __future__ import annotations

import click

from tokpit.cli.context import Options
from tokpit.cli.output import table, to_json


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def hosts(options: Options, as_json: bool) -> None:
    """List the hosts of the inventory; any name of ~/.ssh/config works too, without being listed."""
    session = options.session()
    specs = list(session.inventory.hosts.values())
    if as_json:
        to_json(
            [{"name": s.name, "address": s.address, "user": s.user, "port": s.port, "group": s.group} for s in specs]
        )
    elif specs:
        table(
            ("HOST", "ADDRESS", "USER", "PORT", "GROUP"), [(s.name, s.address, s.user, s.port, s.group) for s in specs]
        )
    else:
        click.echo("the inventory is empty; any name of ~/.ssh/config works: tokpit ps NAME", err=True)

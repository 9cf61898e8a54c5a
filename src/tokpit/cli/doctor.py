"""`tokpit doctor`."""

from __future__ import annotations

import asyncio

import click

from tokpit.cli.context import Options
from tokpit.cli.output import to_json
from tokpit.domain.text import sanitize

_MARKS = {"ok": "ok  ", "info": "    ", "warn": "warn", "fail": "FAIL"}


@click.command()
@click.argument("hosts", nargs=-1, required=True)
@click.option("--cached", is_flag=True, help="Take environments and models from the last look, if it is not a day old.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def doctor(options: Options, hosts: tuple[str, ...], cached: bool, as_json: bool) -> int:
    """Examine HOSTS for launches; nothing is changed there.

    Link, clock, shell, environment, drivers, memory, disk, limits, ports, ways to outlive the connection, engines
    and models: how each is, what that means, how to mend it. Exit code 1 if something would prevent a launch.
    """
    from tokpit.ops.host.doctor import Report, examine
    from tokpit.ops.session import Session

    async def work(session: Session) -> list[Report]:
        return list(await asyncio.gather(*(examine(session, name, fresh=not cached) for name in hosts)))

    reports = options.run(work)
    if as_json:
        to_json([{"host": r.host, "blocked": r.blocked, "checks": r.checks, "found": r.found} for r in reports])
    else:
        for report in reports:
            click.echo(f"{report.host}:")
            for check in report.checks:
                click.echo(sanitize(f"  {_MARKS[check.status]}  {check.name:12} {check.says}"))
                if check.mend and check.status != "ok":
                    click.echo(sanitize(f"        {'':12} -> {check.mend}"))
    return 1 if any(report.blocked for report in reports) else 0

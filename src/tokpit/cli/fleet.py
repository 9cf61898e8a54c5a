"""`tokpit fleet`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tokpit.cli.context import Options
from tokpit.cli.output import table, to_json
from tokpit.cli.progress import show_operations
from tokpit.errors import UsageError

if TYPE_CHECKING:
    from tokpit.ops.fleet import Results
    from tokpit.ops.session import Session


@click.command()
@click.argument("action", type=click.Choice(["check", "sweep", "stop"]))
@click.argument("targets", nargs=-1)
@click.option("--group", help="All hosts of this group of the inventory.")
@click.option("-c", "--concurrency", "levels", metavar="LEVELS", help="Levels of a sweep.")
@click.option("-n", "--requests", type=int, metavar="N", help="Requests a level of a sweep.")
@click.option("--max-tokens", type=int, metavar="N", help="Output tokens a request of a sweep.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def fleet(
    options: Options,
    action: str,
    targets: tuple[str, ...],
    group: str | None,
    levels: str | None,
    requests: int | None,
    max_tokens: int | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Check, sweep or stop several servers, one after another.

    TARGETS are servers (HOST:PORT, HOST/PID) or hosts, which stand for all of their servers. One question lists each of
    them with what will run; one that fails stops no other. Exit status 1 if one failed.

    \b
    tokpit fleet check --group lab
    tokpit fleet sweep gpu1 gpu2:30000 -c 1,8,32
    """
    more = {"levels": levels, "requests": requests, "max_tokens": max_tokens}
    given = {name: value for name, value in more.items() if value is not None}
    if given and action != "sweep":
        raise UsageError("--concurrency, --requests and --max-tokens are of a sweep")
    return options.run(lambda session: _fleet(session, action, targets, group, given, as_json), yes=yes)


async def _fleet(
    session: Session, action: str, targets: tuple[str, ...], group: str | None, given: dict[str, Any], as_json: bool
) -> int:
    names = list(targets)
    if group is not None:
        members = [spec.name for spec in session.inventory.group(group)]
        if not members:
            known = ", ".join(sorted({spec.group for spec in session.inventory.hosts.values() if spec.group}))
            raise UsageError(f"no host is in the group {group!r}", hint=f"groups: {known}" if known else "")
        names += members
    async with show_operations(session):
        done: Results = await session.execute(f"fleet.{action}", targets=names, **given)
    if as_json:
        to_json(done)
    else:
        rows = [("ok" if one.ok else "FAILED", one.target, one.sentence, one.run or None) for one in done.results]
        table(("", "SERVER", "RESULT", "RUN"), rows)
    return 0 if done.ok else 1

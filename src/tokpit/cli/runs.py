"""`tokpit runs`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.cli.output import table, to_json
from tokpit.cli.sweep_table import show_levels
from tokpit.domain.text import sanitize

if TYPE_CHECKING:
    from tokpit.domain.run import Run
    from tokpit.ops.session import Session


@click.command()
@click.argument("run_id", required=False)
@click.option("-n", "--limit", type=int, default=20, show_default=True, help="Newest runs to list.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def runs(options: Options, run_id: str | None, limit: int, as_json: bool) -> None:
    """List stored runs, or show the one whose id begins with RUN_ID."""
    options.run(lambda session: _runs(session, run_id, limit, as_json))


async def _runs(session: Session, run_id: str | None, limit: int, as_json: bool) -> None:
    history = await session.history()
    if run_id is not None:
        run = await history.run(run_id)
        to_json(run) if as_json else show(run)
        return
    found = await history.runs(limit=limit)
    if as_json:
        to_json(found)
    elif not found:
        click.echo("no runs are stored yet; make one with: tokpit sweep TARGET", err=True)
    else:
        rows = [
            (
                run.id,
                time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_at)),
                run.kind,
                run.target,
                run.model,
                len(run.levels),
                f"{max(level.output_tps for level in run.levels):.1f}" if run.levels else None,
                run.status,
            )
            for run in found
        ]
        table(
            ("RUN", "STARTED", "KIND", "TARGET", "MODEL", "LEVELS", "PEAK TOK/S", "STATUS"),
            rows,
            right=frozenset({5, 6}),
        )


def show(run: Run) -> None:
    """One run: what was measured, where, and its levels."""
    click.echo(f"{run.id}  {run.kind} of {run.target}  {run.model}  {run.status}")
    click.echo(f"started {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(run.started_at))}")
    for key in ("engine", "version", "command", "gpus", "client", "from_reason", "link", "server_side"):
        if run.context.get(key):
            click.echo(f"{key.replace('_', ' ')}: {sanitize(str(run.context[key]))}")
    if run.note:
        click.echo(f"note: {sanitize(run.note)}")
    if run.kind == "check":
        for item in run.context.get("items") or ():
            mark = {True: "ok", False: "FAIL"}.get(item.get("ok"), "-")
            click.echo(sanitize(f"{mark:4}  {item.get('name')}: {item.get('sentence')}"))
    else:
        show_levels(run)

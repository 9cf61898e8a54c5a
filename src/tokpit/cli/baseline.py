"""`tokpit baseline`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from tokpit.cli.context import Options
from tokpit.cli.output import to_json
from tokpit.domain.text import sanitize
from tokpit.errors import UsageError

if TYPE_CHECKING:
    from tokpit.insight.baseline import Baseline
    from tokpit.ops.session import Session


@click.command()
@click.option("--add", metavar="RUN", help="Let a stored run join its baseline: this is how things are from now on.")
@click.option("--drop", metavar="RUN", help="Take a run out of its baseline; the run itself stays.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def baseline(options: Options, add: str | None, drop: str | None, as_json: bool) -> None:
    """List what later runs are compared with: runs of one model on one host with one family of settings.

    A finished sweep joins by itself unless it is a regression. From three runs on, a baseline knows how much each
    figure scatters between runs of an unchanged server: the noise band of `tokpit compare` and `tokpit check`.
    """
    if add and drop:
        raise UsageError("either --add or --drop")
    found = options.run(lambda session: _work(session, add, drop))
    if as_json:
        to_json({"baselines": [as_document(one) for one in found]})
        return
    for one in found:
        show(one)
    if not found:
        click.echo("no baseline yet: each finished sweep makes or joins one", err=True)


async def _work(session: Session, add: str | None, drop: str | None) -> tuple[Baseline, ...]:
    from tokpit.ops.records import baseline as ops

    history = await session.history()
    if add:
        run = await ops.add(history, add)
        click.echo(f"run {run.id} belongs to its baseline now", err=True)
    if drop:
        run = await ops.drop(history, drop)
        click.echo(f"run {run.id} belongs to no baseline any more", err=True)
    return await ops.listed(history)


def as_document(one: Baseline) -> dict[str, Any]:
    """A baseline as JSON."""
    return {
        "model": one.model,
        "host": one.host,
        "family": one.family,
        "runs": [run.id for run in one.runs],
        "bands": [
            {"level": list(key), "metric": metric, "mean": band.mean, "half": band.half, "runs": band.runs}
            for (key, metric), band in one.bands.items()
        ],
    }


def show(one: Baseline) -> None:
    """Print a baseline."""
    from tokpit.insight.comparison import figure
    from tokpit.insight.measures import METRICS, key_name

    units = {metric.name: metric for metric in METRICS}
    click.echo(sanitize(f"{one.model or '?'} on {one.host or '?'}: {one.family.text}"))
    for run in one.runs:
        click.echo(sanitize(f"    {run.id}  {time.strftime('%Y-%m-%d %H:%M', time.localtime(run.started_at))}"))
    for (key, name), band in one.bands.items():
        unit = units[name].unit
        click.echo(f"    {units[name].label} at {key_name(key)}: {figure(band.mean, unit)} ±{band.half:.1%}")
    if not one.bands:
        click.echo("    no noise band yet: it takes three runs")

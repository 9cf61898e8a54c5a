"""`tokpit plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.cli.fact_option import pairs
from tokpit.cli.output import table, to_json
from tokpit.domain.text import sanitize
from tokpit.insight import planwords as words

if TYPE_CHECKING:
    from tokpit.insight.jobplan import Plan


@click.command(context_settings={"max_content_width": 110})
@click.option("--requests", required=True, metavar="N", help="Requests of the job, such as 902000 or 902K.")
@click.option("--output-tokens", type=click.FloatRange(min=1), required=True, metavar="N",
              help="Output tokens of a request, in the mean.")  # fmt: skip
@click.option("--run", "runs", multiple=True, metavar="ID",
              help="Stored sweep, by the begin of its id; more are compared as other flags.  [default: the newest "
                   "sweep]")  # fmt: skip
@click.option("--sweep", "sweeps", multiple=True, type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE",
              help="Table of a sweep: concurrency,requests,ok,err,elapsed_s,output_tps.")  # fmt: skip
@click.option("--hosts", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Hosts that share the job, each with one server like the measured one.")  # fmt: skip
@click.option("--within", metavar="TIME", help="Say how many hosts do it in 72h, 3d or 90min.")
@click.option("--price", type=click.FloatRange(min=0), metavar="X", help="Price of one GPU for one hour.")
@click.option("--gpus", type=click.IntRange(min=1), metavar="N",
              help="GPUs of one server.  [default: as the run says]")  # fmt: skip
@click.option("--fact", "facts", multiple=True, callback=pairs, metavar="KEY=VALUE",
              help="Something you know: max_running_requests=9 kv_tokens=120000 ... Repeatable.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def plan(
    options: Options,
    requests: str,
    output_tokens: float,
    runs: tuple[str, ...],
    sweeps: tuple[str, ...],
    hosts: int,
    within: str | None,
    price: float | None,
    gpus: int | None,
    facts: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Plan a job of many requests from measured sweeps: hours and hosts, what each lever buys, cost.

    Asks no host. Every rate is one that was measured, its interval beside it; what a model predicts is called so.

    \b
    tokpit plan --requests 902K --output-tokens 2000 --within 7d --price 2.50
    tokpit plan --requests 902K --output-tokens 2000 --run 6xk2 --run 6xm9     is the second one worth it?
    """
    from tokpit.insight.jobplan import Job
    from tokpit.ops.jobplan import as_data, plan_job, read_count, read_hours

    job = Job(
        requests=read_count(requests),
        output_tokens=output_tokens,
        hosts=hosts,
        within_h=read_hours(within) if within is not None else None,
        price=price,
        gpus=gpus,
    )
    found = options.run(lambda session: plan_job(session, job, runs=runs, sweeps=sweeps, facts=dict(facts)))
    to_json(as_data(found)) if as_json else show(found)


def show(found: Plan) -> None:
    """A plan as text: the answer first, then what it rests on."""
    click.echo(words.job_line(found))
    click.echo(f"planned from {sanitize(found.source)}")
    click.echo(f"\n{words.headline(found)}")
    for line in words.reasons(found):
        click.echo(f"  {sanitize(line)}")
    click.echo()
    table(words.HEAD, [words.row(found, option) for option in found.options], right=words.RIGHT)
    click.echo()
    for lever in found.levers:
        click.echo(sanitize(words.lever_line(lever)))
        if lever.note:
            click.echo(f"    {sanitize(lever.note)}")
    for note in found.notes:
        click.echo(f"note: {sanitize(note)}")

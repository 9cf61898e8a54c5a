"""`tokpit plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.cli.fact_option import pairs
from tokpit.cli.output import table, to_json
from tokpit.domain.text import sanitize
from tokpit.insight.words import num, percent, seconds, span

if TYPE_CHECKING:
    from tokpit.insight.jobplan import Lever, Plan
    from tokpit.insight.rates import Span


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
    job, chosen = found.job, found.chosen
    hosts = f"{job.hosts} host" + "s" * (job.hosts != 1)
    amount = f"{num(job.tokens / 1e6, 4)} million tokens"
    click.echo(f"{job.requests:,} requests of {num(job.output_tokens, 6)} output tokens = {amount}")
    click.echo(f"planned from {sanitize(found.source)}")
    click.echo(f"\n{_hours(chosen.hours)} on {hosts} at C={chosen.rate.concurrency}")
    click.echo(f"  {_spanned(chosen.rate.tps)} tok/s a host: {sanitize(found.why)}")
    click.echo(
        f"  = {num(job.requests, 9)} x {num(job.output_tokens, 6)} / ({num(chosen.rate.good_tps.mid, 4)} x {job.hosts})"
    )
    click.echo(f"  {_spanned(chosen.gpu_hours)} GPU-hours ({found.gpus} a host)")
    if chosen.cost is not None:
        click.echo(f"  cost {_spanned(chosen.cost)} at {num(job.price or 0.0)} a GPU-hour")
    if found.hosts_needed is not None and job.within_h is not None:
        click.echo(f"  {found.hosts_needed} hosts do it within {span(job.within_h)} (at the slow end of the interval)")
    click.echo()
    rows = [
        (
            ",".join(map(str, option.rate.levels)),
            str(option.rate.running),
            _spanned(option.rate.tps),
            _hours(option.hours),
            seconds(option.latency_s),
            None if option.cost is None else num(option.cost.mid),
            percent(option.rate.error_share) if option.rate.error_share else "-",
            "<" if option is chosen else "",
        )
        for option in found.options
    ]
    head = ("C", "RUNNING", "TOK/S A HOST", "JOB", "A REQUEST", "COST", "ERRORS", "")
    table(head, rows, right=frozenset({0, 1, 4, 5}))
    click.echo()
    for lever in found.levers:
        click.echo(_lever(lever))
        if lever.note:
            click.echo(f"    {sanitize(lever.note)}")
    for note in found.notes:
        click.echo(f"note: {sanitize(note)}")


def _lever(lever: Lever) -> str:
    text = f"{lever.name}: {sanitize(lever.change)}"
    if lever.hours is not None:
        text += f", {_hours(lever.hours)}"
    if lever.saves_h:
        text += f", {'saves' if lever.saves_h > 0 else 'costs'} {span(abs(lever.saves_h))}"
    return text + ("" if lever.basis == "measured" else " (predicted)")


def _spanned(value: Span) -> str:
    if value.low is None or value.high is None:
        return num(value.mid, 4)
    return f"{num(value.mid, 4)} ({num(value.low, 4)} to {num(value.high, 4)})"


def _hours(value: Span) -> str:
    if value.low is None or value.high is None:
        return span(value.mid)
    return f"{span(value.mid)} ({span(value.low)} to {span(value.high)})"

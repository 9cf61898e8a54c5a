"""`tokpit diagnose`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from tokpit.cli.context import Options
from tokpit.cli.fact_option import pairs
from tokpit.cli.output import to_json
from tokpit.cli.reading import reading
from tokpit.domain.text import sanitize
from tokpit.errors import UsageError

if TYPE_CHECKING:
    from tokpit.ops.diagnose.run import Diagnosis


def _tell_facts(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from tokpit.insight.fact_names import other_names, unit
    from tokpit.insight.facts import FIELDS, kind_of

    for name in FIELDS:
        kind = ", ".join(word for word in (kind_of(name), unit(name)) if word)
        others = other_names(name)
        also = f"  also {', '.join(others[:4])}" if others else ""
        click.echo(f"{name:26} {kind:26}{also}".rstrip())
    ctx.exit()


_FILE = click.Path(dir_okay=False, allow_dash=True)


@click.command()
@click.argument("target", required=False)
@click.option("--log", "logs", multiple=True, type=_FILE, help="Log file of a server (`-`: stdin). Repeatable.")
@click.option("--run", "runs", multiple=True, help="Stored run, by the begin of its id; a second one is compared.")
@click.option(
    "--sweep", "sweeps", multiple=True, type=_FILE, help="Table: concurrency,requests,ok,err,elapsed_s,output_tps."
)
@click.option("--compare", multiple=True, type=_FILE, help="Table of runs: name,tok_s,tp,accept_len,ttft_s ...")
@click.option("--gpu", "gpus", multiple=True, type=_FILE, help="What nvidia-smi, rocm-smi or the kernel log printed.")
@click.option("--metrics", multiple=True, type=_FILE, help="Metrics page; two are taken as begin and end.")
@click.option(
    "--fact", "facts", multiple=True, callback=pairs, metavar="KEY=VALUE", help="Something you know. Repeatable."
)
@click.option(
    "--facts",
    "tell_facts",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_tell_facts,
    help="List the names of facts with their units, and exit.",
)
@click.option("--reach", type=float, metavar="TPS", help="Say what this rate of one stream would take.")
@click.option("--reach-total", type=float, metavar="TPS", help="The same of all streams together, from a sweep.")
@click.option("--engine", help="Engine that wrote the logs (default: found from their lines).")
@click.option("--save", is_flag=True, help="Keep it in the history as an incident, for: tokpit report.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def diagnose(options: Options, /, as_json: bool, save: bool, **values: object) -> None:
    """Say what logs, sweeps and facts mean: causes with their arithmetic, and what to do next.

    Works on files alone, or on TARGET (HOST, HOST:PORT, HOST/PID) as it runs, with its newest sweep. Facts by name:
    max_running_requests=9 state_slots=48 accept_len=3.2 draft_tokens=3 baseline_tps=26.7 remembered_tps=70
    weights_gb=54 gpu="RTX A6000" tp=2 hicache_gb=150 mem_available_gb=200 engine_version=0.5.11

    \b
    tokpit diagnose gpu1:30000 --reach 70
    tokpit diagnose --log server.log --metrics before.prom --metrics after.prom
    tokpit diagnose --sweep table.csv --fact max_running_requests=9 --fact state_slots=48
    """
    from tokpit.ops.diagnose.run import Sources, diagnose_all, diagnose_files

    sources = msgspec.convert(values, Sources)
    if sources == Sources(engine=sources.engine, reach=sources.reach, reach_total=sources.reach_total):
        raise UsageError(
            "nothing to diagnose", hint="give a TARGET, or --log, --sweep, --run, --metrics, --gpu or --fact"
        )
    if sources.offline:
        with reading() as tell:
            found = diagnose_files(sources, tell)
    else:
        with reading() as tell:
            found = options.run(lambda session: diagnose_all(session, sources, tell))
    if save:
        from tokpit.ops.records.incident import save_incident

        run = options.run(lambda session: save_incident(session, sources, found))
        click.echo(f"kept as {run.id}; export it with: tokpit report {run.id}", err=True)
    for note in found.notes:
        click.echo(f"note: {sanitize(note)}", err=True)
    if as_json:
        document = {"findings": found.findings, "facts": found.facts, "sweep": found.sweep}
        to_json({**document, "reach": found.reach} if found.reach else document)
    else:
        _show(found)


def _show(found: Diagnosis) -> None:
    for finding in found.findings:
        sure = "" if finding.confidence == "sure" else f" ({finding.confidence})"
        click.echo(f"{finding.severity}: {finding.code}{sure}")
        click.echo(f"  {sanitize(finding.claim)}")
        for part in finding.arithmetic.split("; ") if finding.arithmetic else ():
            click.echo(f"    = {sanitize(part)}")
        for line in finding.evidence[:4]:
            click.echo(f"    | {sanitize(line)}")
        if finding.next_action:
            click.echo(f"  next: {sanitize(finding.next_action)}")
    if not found.findings:
        some = " that could be used" if found.notes else ""
        click.echo(f"no finding: nothing in the figures{some} is off")
    for reach in found.reach:
        click.echo()
        click.echo(sanitize(reach.sentence))
        for way in reach.ways:
            click.echo(sanitize(f"  {way.lever}: {way.now} -> {way.needed}  [{way.verdict}]"))
            click.echo(sanitize(f"    = {way.arithmetic}"))
            if way.how:
                click.echo(sanitize(f"    {way.how}"))
        for missing in reach.missing:
            click.echo(sanitize(f"  to say more: {missing}"))

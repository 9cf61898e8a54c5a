"""`tokpit ab`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from tokpit.cli.context import Options
from tokpit.cli.errors import INTERRUPTED
from tokpit.cli.launch import parse_env
from tokpit.cli.output import table, to_json
from tokpit.cli.progress import show_operations
from tokpit.cli.settings_options import given_settings, setting_options
from tokpit.cli.signals import Signals
from tokpit.domain.text import sanitize
from tokpit.errors import UsageError
from tokpit.insight.words import within

if TYPE_CHECKING:
    from tokpit.ops.session import Session
    from tokpit.ops.tuning.ab import Compared

_STOPPED = "stopping: A is put back (Ctrl-C again leaves that to tokpit tune --restore)"


@click.command(context_settings={"max_content_width": 110})
@click.argument("target")
@setting_options
@click.option("-e", "--env", "env", multiple=True, metavar="NAME=VALUE", help="Environment variable of B; repeatable.")
@click.option("--engine", help="B is another engine, with the same model and port and no other setting of A.")
@click.option("--program", help="With --engine: command that starts it.")
@click.option("--env-dir", help="With --engine: environment folder (venv, conda) that holds it.")
@click.option("--blocks", type=int, default=3, show_default=True, metavar="N", help="Blocks of each side.")
@click.option("-c", "--concurrency", "levels", metavar="LEVELS", help="Levels of each block.  [default: 1,8,32]")
@click.option("-n", "--requests", type=int, metavar="N", help="Requests a level.  [default: max(2C, 8)]")
@click.option("--duration", "duration_s", type=float, metavar="S", help="Seconds a level, instead of -n.")
@click.option("--max-tokens", type=int, metavar="N", help="Output tokens a request.  [default: 1024]")
@click.option("--dataset", metavar="WHAT", help="As for tokpit sweep.  [default: builtin]")
@click.option("--from", "source", type=click.Choice(["auto", "host", "here"]), help="Where the load comes from.")
@click.option("--objective", type=click.Choice(["throughput", "single", "goodput", "pareto"]), default="throughput",
              show_default=True, help="What is compared.")  # fmt: skip
@click.option("--slo", default="", metavar="LIMITS", help="Limits a good request keeps, such as ttft=2s,tpot=60ms.")
@click.option("--timeout", "timeout_s", type=float, default=1800.0, show_default=True, metavar="S",
              help="For one start.")  # fmt: skip
@click.option("--force", is_flag=True, help="Start B although the checks refuse.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def ab(options: Options, /, **values: Any) -> int:
    """Compare the server TARGET as it runs (A) with the same under other settings (B).

    Both answer the same prompts in alternating blocks (A B B A A B), so that a drift of the machine favours neither.
    The verdict comes with its 95% interval. A runs again at the end, whatever happens.

    \b
    tokpit ab gpu1:30000 --mtp-steps 1 -c 1,8 --blocks 3
    tokpit ab gpu1:30000 --hicache-gb 0
    tokpit ab gpu1:30000 --engine vllm --env-dir /opt/vllm --mtp-steps 3
    """
    return options.run(lambda session: _ab(session, values), yes=values["yes"])


async def _ab(session: Session, values: dict[str, Any]) -> int:
    from tokpit.tune.experiment import Objective

    workload = {
        name: values[name]
        for name in ("levels", "requests", "duration_s", "max_tokens", "dataset", "source")
        if values[name] is not None
    }
    if values["slo"]:
        workload["slo"] = values["slo"]
    signals = Signals(lambda: bool(session.stops), lambda: click.echo(_STOPPED, err=True))
    work = session.execute(
        "ab.start",
        target=values["target"],
        changes=given_settings(values),
        spec=await _other_engine(session, values),
        env=parse_env(values["env"]),
        blocks=values["blocks"],
        workload=workload,
        objective=Objective(kind=values["objective"], slo=values["slo"]),
        timeout_s=values["timeout_s"],
        force=values["force"],
        stop=signals.stop,
    )
    async with show_operations(session):
        done: Compared | None = await signals.guard(work)
    if done is None:
        click.echo("tokpit: stopped at once; see tokpit tune --list for what is to be put back", err=True)
        return INTERRUPTED
    to_json(done) if values["as_json"] else _show(done)
    return INTERRUPTED if signals.heard else 0


async def _other_engine(session: Session, values: dict[str, Any]) -> Any:
    """B as a whole launch, where it is another engine; None where it is A with changes."""
    if not values["engine"]:
        if values["program"] or values["env_dir"]:
            raise UsageError("--program and --env-dir say where another engine is", hint="name it with --engine")
        return None
    from tokpit.domain.settings import LaunchSpec, Settings
    from tokpit.ops.targets import resolve_server

    info = await resolve_server(session, values["target"])
    given = {"model": info.model, "served_name": info.served_name, "listen": info.settings.listen}
    return LaunchSpec(
        host=info.host,
        engine=values["engine"],
        program=tuple(shlex.split(values["program"] or values["env_dir"] or "")),
        settings=Settings(**{**given, **given_settings(values)}),
        env=parse_env(values["env"]),
    )


def _show(done: Compared) -> None:
    click.echo(f"comparison {done.id} on {done.target}")
    for change in done.changes:
        click.echo(sanitize(f"  {change}"))
    levels = sorted({point.concurrency for block in done.blocks for point in block.points})
    rows = []
    for number, block in enumerate(done.blocks, 1):
        rates = {point.concurrency: point for point in block.points}
        cells = [f"{rates[c].tps:.1f}" if c in rates else None for c in levels]
        rows.append((number, block.side, within(block.value, block.half), *cells))
    table(
        ("BLOCK", "SIDE", done.unit.upper(), *(f"C={c} tok/s" for c in levels)),
        rows,
        right=frozenset({0, 2, *range(3, 3 + len(levels))}),
    )
    for concurrency, versus in done.by_level.items():
        if len(done.by_level) > 1:
            click.echo(f"C={concurrency}: {versus.verdict(0.02)}")
    if done.versus.drift is not None:
        click.echo(f"A changed by {(done.versus.drift - 1) * 100:+.1f} % from its first block to its last")
    click.echo(f"verdict: {done.verdict}")

"""`tokpit sweep`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tokpit.cli.context import Options
from tokpit.cli.errors import INTERRUPTED
from tokpit.cli.output import to_json
from tokpit.cli.progress import show_operations
from tokpit.cli.signals import Signals

if TYPE_CHECKING:
    from tokpit.domain.run import Run
    from tokpit.ops.session import Session

NOTHING_OK = 7


@click.command(context_settings={"max_content_width": 110})
@click.argument("target")
@click.option("-c", "--concurrency", "levels", metavar="LEVELS",
              help="Requests in flight, level by level: 1,4,8 or 1-8 or 4..64x2 or 10..50+10.  "
                   "[default: 1,4,8,16,32,48]")  # fmt: skip
@click.option("-n", "--requests", type=int, metavar="N", help="Requests a level.  [default: max(2C, 8)]")
@click.option("--duration", "duration_s", type=float, metavar="S",
              help="Start requests for S seconds a level, then let the running ones finish.")  # fmt: skip
@click.option("--stagger", "stagger_s", type=float, metavar="S",
              help="Start the first requests of a level S seconds apart.  [default: all at once]")  # fmt: skip
@click.option("--rate", "rates", metavar="R[,R...]",
              help="Open loop: offer R requests/s whatever the server does, instead of -c. Needs -n or "
                   "--duration.")  # fmt: skip
@click.option("--arrival", type=click.Choice(["poisson", "constant"]), default="poisson", show_default=True,
              help="Gaps between requests of --rate.")  # fmt: skip
@click.option("--max-tokens", type=int, default=1024, show_default=True, metavar="N", help="Output tokens a request.")
@click.option("--temperature", type=float, default=0.6, show_default=True)
@click.option("--top-p", type=float, default=0.95, show_default=True)
@click.option("--slo", metavar="LIMITS",
              help="Limits a good request keeps, such as ttft=500ms,tpot=30ms,e2e=20s: goodput is told "
                   "per level.")  # fmt: skip
@click.option("--find", is_flag=True,
              help="Look for the highest concurrency at which 95% of the requests keep the --slo, by bisection; "
                   "-c gives the first steps.  [default: 1..256x2]")  # fmt: skip
@click.option("--dataset", metavar="WHAT", default="builtin", show_default=True,
              help="builtin (eight long-answer tasks), random:N (N prompt tokens) or a JSONL file with "
                   "prompt, messages or turns in each line.")  # fmt: skip
@click.option("--turns", type=int, metavar="N",
              help="Requests of one conversation, each with the answers before it.  [default: 1, or the turns of the "
                   "dataset's lines]")  # fmt: skip
@click.option("--prefix-share", type=float, default=0.0, show_default=True, metavar="0..1",
              help="Share of each prompt, from its front, that all prompts have in common.")  # fmt: skip
@click.option("--api", type=click.Choice(["chat", "completions"]), default="chat", show_default=True)
@click.option("--model", help="Model to ask for.  [default: the first that the server names]")
@click.option("--warmup", type=int, default=1, show_default=True, help="Requests before the first level.")
@click.option("--flush", is_flag=True, help="Empty the server's prefix cache before each level, where it can.")
@click.option("--timeout", "timeout_s", type=float, metavar="S",
              help="Give a request up after S seconds.  [default: 900 s to the first token, 120 s between "
                   "tokens]")  # fmt: skip
@click.option("--repeat", type=int, default=1, show_default=True, metavar="N",
              help="Run the levels N times; the table shows mean and 95% interval over the repeats.")  # fmt: skip
@click.option("--stop-on-error", is_flag=True, help="Stop at the first failed request.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'",
              help="Sent with each request. An API key is taken from TOKPIT_API_KEY, never from here.")  # fmt: skip
@click.option("--from", "source", metavar="auto|host|here|HOST,HOST,...", default="auto", show_default=True,
              help="Where the load comes from: the server's own host, where a Python with aiohttp is found there, "
                   "this machine through SSH, other hosts that share each level, or slurm:PARTITION:N for nodes of a "
                   "partition.")  # fmt: skip
@click.option("--procs", "processes", type=int, metavar="N",
              help="Divide the load among N processes.  [default: as many as one core cannot time, up to half of the "
                   "cores; always one through SSH]")  # fmt: skip
@click.option("--note", default="", help="A word for the record.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def sweep(options: Options, /, **values: Any) -> int:
    """Measure TARGET (HOST, HOST:PORT, HOST/PID or a URL) at several concurrency levels.

    Each finished level is checked against the server's own counters and stored before the next begins. Ctrl-C ends
    the level under way and keeps what was measured; a second one ends at once.

    \b
    tokpit sweep gpu1                                         six levels up to C=48
    tokpit sweep gpu1:30000 -c 4..64x2 --duration 60          a minute a level
    tokpit sweep gpu1 --rate 1,2,4 --duration 60 --slo ttft=500ms,tpot=30ms
    tokpit sweep http://10.0.0.5:30000 -c 1024 --from load1,load2,load3,load4
    tokpit sweep gpu1 --find --slo ttft=1s,tpot=40ms --duration 30
    """
    return options.run(lambda session: _sweep(session, values))


async def _sweep(session: Session, values: dict[str, Any]) -> int:
    from tokpit.cli.sweep_table import show_levels
    from tokpit.ops.sweep.plan import read_args

    as_json = values.pop("as_json")
    read_args(values)  # a wrong word is told before anything is connected to
    signals = Signals(lambda: bool(session.stops))
    async with show_operations(session):
        run: Run | None = await signals.guard(session.execute("sweep.start", stop=signals.stop, **values))
    if run is None:
        click.echo("tokpit: stopped", err=True)
        return INTERRUPTED
    if as_json:
        to_json(run)
    else:
        show_levels(run)
        click.echo(f"\nrun {run.id}: {run.status}, {len(run.levels)} levels kept; show it with: tokpit runs {run.id}")
    if signals.heard:
        return INTERRUPTED
    return 0 if run.status == "done" and any(level.ok for level in run.levels) else NOTHING_OK

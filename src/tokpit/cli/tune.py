"""`tokpit tune`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tokpit.cli.context import Options
from tokpit.cli.errors import INTERRUPTED
from tokpit.cli.output import table, to_json
from tokpit.cli.progress import show_operations
from tokpit.cli.signals import Signals
from tokpit.domain.text import sanitize
from tokpit.errors import StoreError, UsageError

if TYPE_CHECKING:
    from tokpit.domain.tuning import Tuning
    from tokpit.ops.session import Session
    from tokpit.store.journal import Entry
    from tokpit.tune.experiment import Experiment

_STOPPED = (
    "stopping: what was measured is kept and the first server is put back (Ctrl-C again leaves that to --restore)"
)


@click.command(context_settings={"max_content_width": 110})
@click.argument("target", required=False)
@click.option("-f", "--file", "file", type=click.Path(dir_okay=False), help="Experiment in a TOML file; options "
              "given beside it win.")  # fmt: skip
@click.option("-v", "--vary", "vary", multiple=True, metavar="SETTING=VALUES",
              help="A setting and its values: mtp_steps=0..4, max_running=8..48+8, hicache_gb=0,50,150, tp=1,2, "
                   "state_slots=24..96x2, or a flag: --schedule-policy=lpm,fcfs. Repeatable.")  # fmt: skip
@click.option("-c", "--concurrency", "levels", metavar="LEVELS", help="Levels of each measurement.  [default: 1,8,32]")
@click.option("-n", "--requests", type=int, metavar="N", help="Requests a level.  [default: max(2C, 8)]")
@click.option("--duration", "duration_s", type=float, metavar="S", help="Seconds a level, instead of -n.")
@click.option("--max-tokens", type=int, metavar="N", help="Output tokens a request.  [default: 1024]")
@click.option("--dataset", metavar="WHAT", help="As for tokpit sweep.  [default: builtin]")
@click.option("--from", "source", type=click.Choice(["auto", "host", "here"]), help="Where the load comes from.")
@click.option("--objective", type=click.Choice(["throughput", "single", "goodput", "pareto"]),
              help="What is sought: tok/s (at the --slo, if one is given), speed of one stream, requests/s within the "
                   "SLO, or both speeds by --weight.  [default: throughput]")  # fmt: skip
@click.option("--slo", metavar="LIMITS", help="Limits a good request keeps, such as ttft=2s,tpot=60ms.")
@click.option("--weight", type=float, metavar="0..1", help="For pareto: share of throughput.  [default: 0.5]")
@click.option("--minutes", type=float, metavar="M", help="Longest time, the way back included.")
@click.option("--restarts", type=int, metavar="N", help="Most restarts, the way back included.")
@click.option("--method", type=click.Choice(["auto", "grid", "optuna"]),
              help="grid: every candidate that can win, the likeliest first. optuna: its TPE takes turns with that. "
                   "[default: auto, Optuna where it is installed]")  # fmt: skip
@click.option(
    "--patience",
    type=int,
    metavar="N",
    help="End after N starts that bring nothing better.  [default: 12, or 7% of the candidates if more]",
)
@click.option("--repeats", type=int, metavar="N",
              help="Measure finalist and first server N times more, in turns.  [default: 1]")  # fmt: skip
@click.option("--seed", type=int, metavar="N", help="Of the search.  [default: 0]")
@click.option("--keep/--put-back", default=None, help="Leave the winner running, or put the first server back "
              "(default).")  # fmt: skip
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="For one start.  [default: 1800]")
@click.option("--dry-run", is_flag=True, help="Show the plan and what is left out; touch nothing.")
@click.option(
    "--report",
    "report",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the report there, in the format of its ending: .md, .html (with charts), .csv or .json.",
)
@click.option("--resume", metavar="ID", help="Go on with an experiment that was cut off.")
@click.option("--restore", metavar="ID", help="Put the first server of an experiment that was cut off back.")
@click.option(
    "--show", metavar="ID", help="Print the report of an experiment that has ended, or write it with --report."
)
@click.option("--list", "listed", is_flag=True, help="List experiments and whether their first server is back.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def tune(options: Options, /, **values: Any) -> int | None:
    """Find the best settings of the server TARGET (HOST, HOST:PORT or HOST/PID) in few restarts.

    The server is measured as it runs, then restarted with one candidate after the other. What the engine's rules
    refuse, what cannot fit, and what cannot reach the best so far is left out with the reason. At the end, on Ctrl-C,
    after a failure or a lost link the first server is put back; after a crash, --restore ID does it.

    \b
    tokpit tune gpu1:30000 --vary mtp_steps=0..4 --vary max_running=8,16,32 --dry-run
    tokpit tune gpu1:30000 --vary mtp_steps=0..4 -c 1,8,32 --minutes 90 --report mtp.md
    tokpit tune --file experiment.toml
    tokpit tune --resume 6g2h52         tokpit tune --restore 6g2h52
    """
    if values["listed"]:
        return _list(options.session().journals, values["as_json"])
    if values["show"]:
        return _show(options.session().journals, values["show"], values["report"], values["as_json"])
    if sum(bool(values[name]) for name in ("resume", "restore", "dry_run")) > 1:
        raise UsageError("--resume, --restore and --dry-run exclude each other")
    if values["restore"]:
        return options.run(lambda session: _restore(session, values), yes=values["yes"])
    experiment = None if values["resume"] else experiment_of(values)
    return options.run(lambda session: _tune(session, experiment, values), yes=values["yes"])


def experiment_of(values: dict[str, Any]) -> Experiment:
    """The experiment of the options, and of the file beside them. Raises UsageError, ConfigError."""
    from tokpit.ops.tuning.files import read_experiment
    from tokpit.tune.experiment import Experiment, checked, merged

    base = read_experiment(Path(values["file"])) if values["file"] else Experiment()
    workload = {
        name: values[name]
        for name in ("levels", "requests", "duration_s", "max_tokens", "dataset", "source")
        if values[name] is not None
    }
    given = {
        "target": values["target"],
        "vary": read_vary(values["vary"]),
        "workload": workload,
        "keep": values["keep"],
        "timeout_s": values["timeout_s"],
        "objective.kind": values["objective"],
        "objective.slo": values["slo"],
        "objective.weight": values["weight"],
        "limits.minutes": values["minutes"],
        "limits.restarts": values["restarts"],
        **{f"search.{name}": values[name] for name in ("method", "patience", "repeats", "seed")},
    }
    experiment = merged(base, given)
    if not experiment.target:
        raise UsageError("no server is named", hint="tokpit tune HOST:PORT --vary ..., or target in the file")
    return checked(experiment)


def read_vary(pairs: tuple[str, ...]) -> dict[str, str]:
    """`SETTING=VALUES` pairs; a flag may be written with its dashes. Raises UsageError."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip() or not text.strip():
            raise UsageError(f"{pair!r} is no SETTING=VALUES", hint="such as --vary mtp_steps=0..4")
        if name.strip() in found:
            raise UsageError(f"{name.strip()!r} is varied twice")
        found[name.strip()] = text
    return found


async def _tune(session: Session, experiment: Experiment | None, values: dict[str, Any]) -> int:
    from tokpit.ops.records.report import format_of
    from tokpit.ops.tuning.reports import export

    if values["report"]:
        format_of(values["report"], None)  # a format that there is none of is said before anything is restarted
    if values["dry_run"]:
        assert experiment is not None
        return await _dry_run(session, experiment, values["as_json"])
    signals = Signals(lambda: bool(session.stops), lambda: click.echo(_STOPPED, err=True))
    work = (
        session.execute("tune.resume", id=values["resume"], stop=signals.stop)
        if experiment is None
        else session.execute("tune.start", experiment=experiment, stop=signals.stop)
    )
    async with show_operations(session):
        done: Tuning | None = await signals.guard(work)
    if done is None:
        click.echo("tokpit: stopped at once; see tokpit tune --list for what is to be put back", err=True)
        return INTERRUPTED
    if values["report"]:
        try:
            export(session.journals, done.id, Path(values["report"]))
        except StoreError as error:
            error.hint = f"it is kept: tokpit tune --show {done.id} --report FILE"
            raise
    if values["as_json"]:
        to_json(msgspec.structs.replace(done, page=""))
    else:
        click.echo(sanitize_lines(done.report))
    return INTERRUPTED if signals.heard else 0


async def _dry_run(session: Session, experiment: Experiment, as_json: bool) -> int:
    from tokpit.ops.tuning.start import preview

    shown = await preview(session, experiment)
    if as_json:
        to_json(shown)
        return 0
    for line in shown.lines:
        click.echo(sanitize(line))
    if shown.left_out:
        click.echo("\nleft out before any start:")
        for code in dict.fromkeys(code for _, code, _ in shown.left_out):
            rows = [(words, why) for words, each, why in shown.left_out if each == code]
            for words, why in rows[:8]:
                click.echo(sanitize(f"  {words}: {why}"))
            if len(rows) > 8:
                click.echo(f"  ... and {len(rows) - 8} more for such a reason (all of them with --json)")
    return 0


async def _restore(session: Session, values: dict[str, Any]) -> int:
    async with show_operations(session):
        server = await session.execute("tune.restore", id=values["restore"], timeout_s=values["timeout_s"])
    if values["as_json"]:
        to_json({"host": server.host, "port": server.port, "pid": server.pid})
    else:
        click.echo(f"the first server runs again: {server.label}, pid {server.pid}")
    return 0


def _list(folder: Path, as_json: bool) -> int:
    from tokpit.store.journal import entries

    found = entries(folder)
    if as_json:
        to_json(found)
        return 0
    if not found:
        click.echo("no experiment was made yet; begin with: tokpit tune HOST:PORT --vary SETTING=VALUES", err=True)
        return 0
    rows = [
        (e.id, time.strftime("%Y-%m-%d %H:%M", time.localtime(e.t)), f"{e.host}:{e.port}", e.title, _state(e))
        for e in found
    ]
    table(("EXPERIMENT", "BEGAN", "SERVER", "WHAT", "STATE"), rows)
    return 0


def _state(entry: Entry) -> str:
    cut_off = " ".join(filter(None, ("CUT OFF", entry.where)))
    return {"running": "under way", "open": f"{cut_off}; resume or restore it", "ended": "ended"}[entry.state]


def _show(folder: Path, text: str, path: str | None, as_json: bool) -> int:
    from tokpit.ops.tuning.reports import ended, export

    tuning = ended(folder, text)["tuning"]
    if path:
        export(folder, text, Path(path))
        return 0
    to_json(tuning) if as_json else click.echo(sanitize_lines(str(tuning.get("report", ""))))
    return 0


def sanitize_lines(text: str) -> str:
    """Text of several lines, safe for a terminal."""
    return "\n".join(sanitize(line) for line in text.splitlines())

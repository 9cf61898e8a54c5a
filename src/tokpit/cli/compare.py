"""`tokpit compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tokpit.cli.context import Options
from tokpit.cli.output import table, to_json
from tokpit.domain.text import sanitize

if TYPE_CHECKING:
    from tokpit.insight.versus import Versus

REGRESSION = 1


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="A [B...]")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def compare(options: Options, runs: tuple[str, ...], as_json: bool) -> int:
    """Compare B and all after it with A: a verdict for each metric, and what changed, the likeliest cause first.

    A and B are stored runs (by the begin of their ids) or files: sweep tables (CSV), `tokpit sweep --json`, results of
    vllm bench serve, sglang.bench_serving, AIPerf or GuideLLM. A run alone is compared with its baseline.

    A figure is better or worse only where it leaves the noise band (from at least three runs of the baseline, else the
    usual width) and its 95% interval excludes no change.

    \b
    Exit status: 0 no regression, 1 a regression, 2 a run or file that cannot be used, or no level in common.
    """
    from tokpit.ops.records.compare import all_files, compare_files, compare_runs

    if all_files(runs):
        found = compare_files(runs)
    else:
        found = options.run(lambda session: compare_runs(session, runs))
    if as_json:
        to_json({"comparisons": [as_document(one) for one in found]})
    else:
        for number, one in enumerate(found):
            if number:
                click.echo()
            show(one)
    if any(one.comparison.regressed for one in found):
        return REGRESSION
    return 2 if all(one.comparison.verdict == "not comparable" for one in found) else 0


def as_document(one: Versus) -> dict[str, Any]:
    """One comparison as JSON."""
    baseline = one.baseline
    return {
        "before": _named(one.before),
        "after": _named(one.after),
        "comparison": one.comparison,
        "changes": one.changes,
        "baseline": None
        if baseline is None
        else {"family": baseline.family.text, "runs": [run.id for run in baseline.runs]},
    }


def _named(run: Any) -> dict[str, Any]:
    return {name: getattr(run, name) for name in ("id", "kind", "target", "host", "model", "engine", "started_at")}


def show(one: Versus) -> None:
    """Print one comparison."""
    from tokpit.insight.comparison import cells

    found = one.comparison
    click.echo(sanitize(f"{one.before.id} -> {one.after.id}  {one.after.model or one.after.target}"))
    click.echo(sanitize(found.told))
    rows = [cells(pair, " ({} runs)") for pair in found.pairs]
    if rows:
        click.echo()
        head = ("METRIC", "LEVEL", "BEFORE", "AFTER", "CHANGE", "95% INTERVAL", "NOISE", "VERDICT")
        table(head, rows, right=frozenset({2, 3, 4}))
        click.echo()
    for judged in found.metrics:
        click.echo(sanitize(f"{judged.sentence}"))
    for caution in found.cautions:
        click.echo(sanitize(f"! {caution}"))
    if one.changes:
        click.echo("\nwhat else differs, the likeliest explanation first:")
    for number, changed in enumerate(one.changes, 1):
        said = f": {changed.effect}" if changed.effect else ""
        click.echo(sanitize(f"{number:3}. {changed.text}  [{changed.fits}]{said}"))
        if changed.arithmetic:
            click.echo(sanitize(f"       = {changed.arithmetic}"))
    if not one.changes:
        click.echo("\nnothing else that was stored differs")

"""`tokpit import`."""

from __future__ import annotations

import click

from tokpit.cli.context import Options
from tokpit.cli.output import to_json
from tokpit.cli.sweep_table import show_levels
from tokpit.domain.text import sanitize
from tokpit.errors import UsageError


def _settings(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"a setting is KEY=VALUE, not {value!r}", hint="for example --set spec_steps=3")
        pairs[name.strip().replace("-", "_")] = text.strip()
    return pairs


@click.command("import")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...", type=click.Path(dir_okay=False, exists=True))
@click.option("--host", default="", help="Host that served, for comparisons with runs there.")
@click.option("--model", default="", help="Model, where the file does not name it or names it otherwise.")
@click.option("--engine", default="", help="Engine that served.")
@click.option("--version", default="", help="Version of the engine.")
@click.option("--set", "settings", multiple=True, callback=_settings, metavar="KEY=VALUE",
              help="Setting of the server, such as spec_steps=3 or tp=2. Repeatable.")  # fmt: skip
@click.option("--note", default="", help="A word for the record.")
@click.option("--apart", is_flag=True, help="A run for each file, instead of one run with all levels.")
@click.option("--json", "as_json", is_flag=True, help="The stored runs as one JSON document on stdout.")
@click.pass_obj
def import_(options: Options, /, paths: tuple[str, ...], as_json: bool, **given: object) -> None:
    """Store results of other benchmark tools, so that they can be compared, diagnosed and reported.

    Read are the JSON of vllm bench serve (--save-result; with --save-detailed it carries each request), the JSONL of
    sglang.bench_serving, profile_export_aiperf.json of AIPerf, GuideLLM's JSON report, and sweep tables (CSV). Files of
    one tool and model become one run, a level for each concurrency.

    \b
    tokpit import c1.json c8.json c32.json --host gpu1 --set spec_steps=3
    """
    import msgspec

    from tokpit.ops.records.imports import Given, import_files

    wanted = msgspec.convert(given, Given)
    runs = options.run(lambda session: import_files(session, paths, wanted))
    if as_json:
        to_json(runs)
        return
    for run in runs:
        show_levels(run)
        name = f"{run.target}, {run.model or 'model not named'}"
        click.echo()
        click.echo(sanitize(f"run {run.id}: {len(run.levels)} levels of {name}; show it with: tokpit runs {run.id}"))

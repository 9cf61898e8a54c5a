"""`tokpit lint`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.cli.output import to_json
from tokpit.domain.text import sanitize

if TYPE_CHECKING:
    from tokpit.ops.facts import Stated
    from tokpit.ops.session import Session


@click.command()
@click.option("--engine", help="Engine (default: found from the command line).")
@click.option("--engine-version", "version", help="Engine version (default: the host's, else the newest known).")
@click.option("--host", help="Check against this host: its version, memory, GPUs, ports and model files.")
@click.option("--model-config", type=click.Path(), help="config.json of the model, where no host is asked.")
@click.option(
    "--fact",
    "facts",
    multiple=True,
    metavar="KEY=VALUE",
    help="State a fact: gpu_count=1, mem_available_gb=200, cgroup_gb=64, hybrid=true, heads=40, state_slots=48, ...",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def lint(
    options: Options,
    engine: str | None,
    version: str | None,
    host: str | None,
    model_config: str | None,
    facts: tuple[str, ...],
    as_json: bool,
    command: tuple[str, ...],
) -> int:
    """Check a server COMMAND line (after `--`) without starting it. Exit code 1 on an error.

    \b
    tokpit lint -- vllm serve MODEL --max-num-seqs 64
    tokpit lint --host gpu1 -- python -m sglang.launch_server --model-path MODEL --tp 2
    """
    from tokpit.ops.facts import model_of, stated

    known = stated(facts, model_of(model_config) if model_config else None)
    return options.run(lambda session: _lint(session, engine, version, host, known, as_json, command))


async def _lint(
    session: Session,
    engine: str | None,
    version: str | None,
    host: str | None,
    facts: Stated,
    as_json: bool,
    command: tuple[str, ...],
) -> int:
    from tokpit.ops.lint import lint_command

    issues = await lint_command(session, command, engine=engine, version=version, host=host, facts=facts)
    if as_json:
        to_json({"issues": issues})
    else:
        for issue in issues:
            click.echo(f"{issue.severity}: {sanitize(issue.sentence)} [{issue.code}]")
            if issue.arithmetic:
                click.echo(f"    {sanitize(issue.arithmetic)}")
            if issue.fixes:
                click.echo(f"    fix: {sanitize('; or '.join(fix.label for fix in issue.fixes))}")
        if not issues:
            click.echo("no issue found")
    return 1 if any(issue.severity == "error" for issue in issues) else 0

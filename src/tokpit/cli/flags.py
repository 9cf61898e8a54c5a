"""`tokpit flags`."""

from __future__ import annotations

import click

from tokpit.cli.output import table, to_json


@click.command()
@click.argument("engine")
@click.option("--version", "version", help="Engine version (default: the newest known).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def flags(engine: str, version: str | None, as_json: bool) -> None:
    """List the flags of ENGINE (sglang, vllm, llamacpp) in a version: names, type, default, choices."""
    from tokpit.engines.flagkit.report import flags_table

    rows = flags_table(engine, version)
    if as_json:
        to_json(rows)
        return
    table(
        ("FLAG", "TYPE", "DEFAULT", "CHOICES"),
        [
            (
                ", ".join(row.flags),
                row.type,
                row.default,
                ",".join(map(str, row.choices)) if row.choices else None,
            )
            for row in rows
        ],
    )

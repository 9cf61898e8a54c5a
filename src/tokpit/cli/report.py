"""`tokpit report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options

if TYPE_CHECKING:
    from tokpit.ops.session import Session
    from tokpit.report.document import Document


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="RUN|INCIDENT|FILE|sweep...")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File to write; its ending tells the format.")
@click.option("-f", "--format", "wanted", type=click.Choice(["md", "html", "csv", "json"]),
              help="Format.  [default: by the file's ending, else md]")  # fmt: skip
@click.pass_obj
def report(options: Options, names: tuple[str, ...], output: str | None, wanted: str | None) -> None:
    """Export a stored run or incident as Markdown, HTML, CSV or JSON; `sweep` is the newest sweep.

    HTML is one file that opens without a network: charts inside, no script, light and dark. With several names the
    report is the comparison of all others with the first. Secrets are masked. Incidents are kept by
    `tokpit diagnose --save`.

    \b
    tokpit report sweep -o sweep.html
    tokpit report 6g2g -f csv > levels.csv
    tokpit report 6g2g 6g2k -o before-and-after.html
    """
    from tokpit.ops.records.report import document_of_files, document_of_names, format_of, offline, write
    from tokpit.report import FORMATS

    kind = format_of(output, wanted)
    if offline(names):
        document = document_of_files(names)
    else:

        async def work(session: Session) -> Document:
            return await document_of_names(session, names)

        document = options.run(work)
    text = FORMATS[kind](document)
    if output and output != "-":
        write(text, Path(output))
        click.echo(f"{output}: {len(text.encode()) / 1024:,.0f} KiB", err=True)
    else:
        click.echo(text, nl=False)

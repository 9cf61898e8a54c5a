"""`tokpit parse-log`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from tokpit.errors import UsageError


@click.command("parse-log")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--engine", help="Engine that wrote it (default: found from its lines).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a record: line, kind, fields.")
def parse_log(file: str, engine: str | None, as_json: bool) -> None:
    """Parse a server's log FILE (`-`: stdin) into records with canonical names."""
    from tokpit.engines.logkit.read import read_log

    counts: Counter[str] = Counter()
    out = sys.stdout
    for record in read_log(_lines(file), engine):
        counts[record.kind] += 1
        if as_json:
            row: dict[str, object] = {"line": record.line, "kind": record.kind, "fields": record.fields}
            if record.extras:
                row["extras"] = record.extras
            if record.kind == "text" or len(record.lines) > 1:
                row["text"] = record.text
            out.write(msgspec.json.encode(row).decode() + "\n")
    if not as_json:
        for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            click.echo(f"{count:8d}  {kind}")


def _lines(file: str) -> Iterator[str]:
    from tokpit.domain.text import LineSplitter, decode_line

    splitter = LineSplitter()
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as stream:
            while data := stream.read(1 << 16):
                for raw in splitter.feed(data):
                    yield decode_line(raw)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    if (rest := splitter.flush()) is not None:
        yield decode_line(rest)

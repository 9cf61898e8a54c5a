"""`tokpit parse-log`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tokpit.cli.output import to_json
from tokpit.errors import UsageError

if TYPE_CHECKING:
    from tokpit.domain.records import LogRecord
    from tokpit.domain.verdict import Verdict

_LONGEST = 16 << 20
"""Bytes of one line that are held; what is longer is read as several lines."""


@click.command("parse-log")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--engine", help="Engine that wrote it (default: found from its lines).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a record: line, kind, fields.")
@click.option("--verdict", "judge", is_flag=True, help="Say why the server failed; exit code 1 if it did.")
@click.option("--command", "command", help="With --verdict: the command line that started it.")
@click.option("--exit-code", type=int, help="With --verdict: the exit status of the server.")
@click.option("--signal", "signal", help="With --verdict: the signal that ended it.")
@click.option("--silent-s", type=float, help="With --verdict: seconds since the last line, for a start under way.")
def parse_log(
    file: str,
    engine: str | None,
    as_json: bool,
    judge: bool,
    command: str | None,
    exit_code: int | None,
    signal: str | None,
    silent_s: float | None,
) -> int:
    """Parse a server's log FILE (`-`: stdin) into records with canonical names, or name the cause of its failure.

    \b
    tokpit parse-log server.log --json | head
    tokpit parse-log server.log --verdict
    """
    from tokpit.engines.logkit.read import read_log, told
    from tokpit.engines.registry import engine as engine_of
    from tokpit.engines.registry import names

    lines = _lines(file)
    if not judge:
        _print_records(read_log(lines, engine), as_json)
        return 0
    head: list[str] = []
    if engine is None:
        engine, head = told(lines)
    from itertools import chain

    from tokpit.ops.lint import settings_of

    knowledge = engine_of(engine or names()[0])
    records = list(read_log(chain(head, lines), knowledge.name))
    settings = settings_of(knowledge, command) if command else None
    verdict = knowledge.verdict(records, exit_code, signal, settings)
    findings = [] if verdict is not None and verdict.fatal else list(knowledge.findings(records, silent_s))
    told_all = [*([verdict] if verdict is not None else []), *findings]
    failed = verdict is not None and verdict.fatal
    if as_json:
        to_json({"engine": engine, "failed": failed, "verdicts": told_all})
    else:
        _print_verdicts(told_all, failed=failed)
    return 1 if failed else 0


def _print_records(records: Iterable[LogRecord], as_json: bool) -> None:
    counts: Counter[str] = Counter()
    out = sys.stdout
    for record in records:
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


def _print_verdicts(verdicts: Iterable[Verdict], *, failed: bool) -> None:
    from tokpit.domain.text import sanitize

    if not failed:
        click.echo("no failure in this log")
    for verdict in verdicts:
        click.echo(f"{verdict.code} ({verdict.phase}): {sanitize(verdict.sentence)}")
        if verdict.arithmetic:
            click.echo(f"  figures: {sanitize(verdict.arithmetic)}")
        if verdict.next_action:
            click.echo(f"  next:    {sanitize(verdict.next_action)}")
        for fix in verdict.fixes:
            click.echo(f"  fix:     {sanitize(fix.label)}")
        numbers = [*map(str, verdict.lines), *([""] * len(verdict.evidence))]
        for number, text in zip(numbers, verdict.evidence, strict=False):
            click.echo(f"  {f'line {number}' if number else 'and'}: {sanitize(text)}")


def _lines(file: str) -> Iterator[str]:
    """Lines as an editor counts them: progress bars that overwrite one another stay on one line."""
    from tokpit.domain.text import sanitize

    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as stream:
            while raw := stream.readline(_LONGEST):
                text = raw.decode("utf-8", "replace").rstrip("\r\n")
                yield sanitize(text) if "\r" not in text else "\r".join(map(sanitize, text.split("\r")))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error

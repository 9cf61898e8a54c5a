"""`tokpit record`: into a file until stopped; what is on disk; a part of a recording."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokpit.cli.context import Options
from tokpit.cli.output import age, table, to_json
from tokpit.errors import StoreError, UsageError

if TYPE_CHECKING:
    from tokpit.ops.session import Session
    from tokpit.store.recording.reader import Summary


class _Recording(click.Group):
    """A first word that is no command is a host to record."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """`tokpit record gpu1` is `tokpit record hosts gpu1`."""
        if args and args[0] not in self.commands and not args[0].startswith("--help"):
            return "hosts", self.commands["hosts"], args
        return super().resolve_command(ctx, args)


@click.group(cls=_Recording, subcommand_metavar="HOST... | COMMAND [ARGS]...")
def record() -> None:
    """Record hosts, save the last minutes of a console, cut recordings.

    `tokpit record HOST...` records links, servers, logs, figures, GPUs and what is done there into one file until
    Ctrl-C (or --for is over). A console keeps the last 30 minutes by itself: `tokpit record save` makes a file of
    them, also while the console runs and after it was killed. Secrets are masked in every recording.

    \b
    tokpit record gpu1 gpu2 -o incident.tokrec --for 10m
    tokpit record save
    tokpit record cut incident.tokrec --from 12:31 --to +9m
    """


@record.command(short_help="Record HOST... into a file until Ctrl-C.")
@click.argument("names", nargs=-1, required=True, metavar="HOST...")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File (default: one in the user's folder).")
@click.option("--for", "length", help="Stop after so long: 90s, 10m, 2h.")
@click.option("--json", "as_json", is_flag=True, help="Say at the end what was recorded, as JSON.")
@click.pass_obj
def hosts(options: Options, names: tuple[str, ...], output: str | None, length: str | None, as_json: bool) -> None:
    """Record HOST... into a file until Ctrl-C."""
    seconds = _seconds(length) if length else None
    path = options.run(lambda session: _record(session, names, output, seconds))
    from tokpit.store.recording.reader import Recording

    _tell(Recording(path).summary(), as_json)


async def _record(session: Session, names: tuple[str, ...], output: str | None, seconds: float | None) -> Path:
    for name in names:
        session.add_host(name)
    path = session.start_recording(Path(output) if output else None)
    click.echo(f"recording into {path}; Ctrl-C ends it", err=True)
    for name in list(session.host_specs):
        session.watch_host(name)
    started = time.monotonic()
    try:
        while seconds is None or time.monotonic() - started < seconds:
            for server in list(session.store.servers.values()):
                if server.alive:
                    session.watch_server(server.info.id)
            if session.recording_problem:
                raise StoreError(session.recording_problem, hint=f"what was written before is in {path}")
            await asyncio.sleep(0.2)
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None:
            task.uncancel()  # Ctrl-C is the usual end
    await session.stop_recording()
    return path


@record.command("list", short_help="List recordings, and the last minutes that consoles keep.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def list_(as_json: bool) -> None:
    """List saved recordings, and the last minutes that consoles keep."""
    from tokpit.ops.records.recording import recordings_dir, rings, rings_dir
    from tokpit.store.recording.format import SUFFIX

    saved = sorted(recordings_dir().glob(f"*{SUFFIX}")) if recordings_dir().exists() else []
    kept = rings(rings_dir())
    if as_json:
        to_json({
            "recordings": [{"path": str(path), "bytes": path.stat().st_size} for path in saved],
            "rings": [{"path": str(path), "running": lives, "bytes": size} for path, lives, size in kept],
        })  # fmt: skip
        return
    rows: list[list[object]] = [[path, _size(path.stat().st_size), _old(path)] for path in saved]
    rows += [[path, _size(size), "console runs" if lives else _old(path)] for path, lives, size in kept]
    table(["file (or ring of a console)", "size", "age"], rows) if rows else click.echo("nothing is recorded yet")


@record.command(short_help="Save the last minutes of a console as a file.")
@click.argument("ring", required=False, type=click.Path(exists=True, file_okay=False))
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File (default: one in the user's folder).")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def save(ring: str | None, output: str | None, as_json: bool) -> None:
    """Save the last minutes of a console: of RING, or of the newest one."""
    from tokpit.ops.records.recording import rings, rings_dir, save_ring
    from tokpit.store.recording.reader import Recording

    found = [path for path, _, _ in rings(rings_dir())]
    if ring is None and not found:
        raise UsageError("no console has kept anything", hint="consoles list themselves in: tokpit record list")
    path = save_ring(Path(ring) if ring else found[-1], Path(output) if output else None)
    _tell(Recording(path).summary(), as_json)


@record.command(short_help="Write a part of a recording as one of its own.")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--from", "start", default="", help="Begin: +5m, -90s (before the end), 12:31[:05] UTC, or a whole date.")
@click.option("--to", "end", default="", help="End, in the same words.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File (default: FILE with -cut in its name).")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def cut(file: str, start: str, end: str, output: str | None, as_json: bool) -> None:
    """Write a part of the recording FILE as a recording of its own, to share it."""
    from tokpit.ops.records.recording import cut as cut_out

    source = Path(file)
    target = Path(output) if output else source.with_name(f"{source.stem}-cut{source.suffix}")
    _tell(cut_out(source, target, start=start, end=end), as_json)


@record.command(short_help="Say what a recording holds, and what is wrong with it.")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def show(file: str, as_json: bool) -> None:
    """Say what the recording FILE holds, and what is wrong with it."""
    from tokpit.store.recording.reader import Recording

    _tell(Recording(Path(file)).summary(), as_json)


def _tell(summary: Summary, as_json: bool) -> None:
    if as_json:
        to_json(summary)
        return
    from tokpit.ops.records.recording import span

    click.echo(f"{summary.path}: {span(summary)} ({age(summary.end - summary.start)})")
    click.echo(f"hosts: {', '.join(spec.name for spec in summary.hosts) or '-'}")
    counts: dict[str, Any] = {k: n for k, n in summary.counts.items() if k not in {"head", "end", "gap"}}
    click.echo("records: " + ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    if summary.missed:
        click.echo(f"missing: {summary.missed} records came faster than they could be written")
    for problem in summary.problems:
        click.echo(f"note: {problem}", err=True)


def _seconds(text: str) -> float:
    import re

    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None:
        raise UsageError(f"{text!r} is no length of time", hint="write 90s, 10m or 2h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def _old(path: Path) -> str:
    return age(time.time() - path.stat().st_mtime)

"""`tokpit alarms`: watch hosts without a screen."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click

from tokpit.cli.context import Options
from tokpit.cli.output import to_json
from tokpit.domain.text import sanitize

if TYPE_CHECKING:
    from tokpit.ops.alarms import Alarm
    from tokpit.ops.session import Session


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="HOST...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--for", "length", type=float, help="Stop after so many seconds.")
@click.pass_obj
def alarms(options: Options, names: tuple[str, ...], as_json: bool, length: float | None) -> None:
    """Watch HOST... and print each alarm as it begins and ends; the command of [alarms] is run as well.

    Which findings alarm, after how many looks, and quiet hours: table [alarms] of config.toml (docs/configuration.md).

    \b
    tokpit alarms gpu1 gpu2 --json >> alarms.jsonl
    """
    options.run(lambda session: _watch(session, names, as_json, length))


async def _watch(session: Session, names: tuple[str, ...], as_json: bool, length: float | None) -> None:
    from tokpit.config.settings import load_preferences
    from tokpit.ops.alarms import Watch, quiet

    preferences = load_preferences().alarms

    def tell(alarm: Alarm, begins: bool) -> None:
        if as_json:
            to_json({
                "t": time.time(), "state": "raised" if begins else "ended", "server": alarm.label,
                "code": alarm.code, "severity": alarm.finding.severity, "text": alarm.finding.claim,
            })  # fmt: skip
            return
        sign = ("!" if alarm.finding.severity == "warning" else "✗") if begins else "●"
        words = alarm.finding.claim if begins else f"over: {alarm.finding.claim}"
        rest = " (quiet hours)" if quiet(preferences, time.time()) else ""
        click.echo(f"{time.strftime('%H:%M:%S')} {sign} {sanitize(alarm.label)}: {sanitize(words)}{rest}")

    for name in names:
        session.add_host(name)
        session.watch_host(name)

    def complain(problem: str) -> None:
        click.echo(f"tokpit: {problem}", err=True)

    watch = Watch(session, preferences, tell, complain)
    started = time.monotonic()
    while length is None or time.monotonic() - started < length:
        for server in list(session.store.servers.values()):
            if server.alive:
                session.watch_server(server.info.id)
        await asyncio.sleep(min(preferences.every_s, length or preferences.every_s))
        await watch.look()

"""`tokpit replay`: the console on a recording."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from tokpit.cli.context import Options
from tokpit.cli.terminal import need_terminal
from tokpit.errors import UsageError


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--at", "start", default="", help="Where to begin: +5m, -90s (before the end), 12:31[:05] UTC.")
@click.option("--speed", type=float, default=1.0, show_default=True, help="0.25 to 64 times the recorded time.")
@click.option("--paused", is_flag=True, help="Stand still at first.")
@click.pass_obj
def replay(options: Options, file: str, start: str, speed: float, paused: bool) -> None:
    """Open the console on the recording FILE: the same screens, as they were.

    space pauses and goes on; [ and ] go back and forth, { and } further; < and > change the speed.

    \b
    tokpit replay incident.tokrec --at +5m --speed 4
    tokpit replay incident.tokrec --at 12:31 --paused
    """
    need_terminal("a replay", f"what the file holds: tokpit record show {file}")
    asyncio.run(_replay(options, Path(file), start, speed, paused))


async def _replay(options: Options, path: Path, start: str, speed: float, paused: bool) -> None:
    from tokpit.ops.records.recording import moment
    from tokpit.ops.records.replay import SPEEDS, ReplaySession

    if speed not in SPEEDS:
        raise UsageError(f"there is no speed {speed:g}", hint=f"speeds: {', '.join(f'{s:g}' for s in SPEEDS)}")
    session = await ReplaySession.open(path)
    player = session.player
    player.speed, player.playing = speed, not paused
    if start:
        await player.seek(moment(start, player.summary))
    async with session:
        await options.open_app(session, theme=options.theme)  # type: ignore[misc]  # `main` gives it

"""`tokpit demo`: the cockpit on a simulated GPU host, over a real SSH connection."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokpit.cli.cockpit import tell_of_experiments
from tokpit.cli.context import Options
from tokpit.cli.output import to_json
from tokpit.cli.progress import show_operations
from tokpit.cli.terminal import is_terminal, need_terminal

if TYPE_CHECKING:
    from tokpit.domain.run import Run
    from tokpit.domain.settings import LaunchSpec
    from tokpit.ops.lifecycle.launch import Launched
    from tokpit.ops.lifecycle.stop import Stopped
    from tokpit.ops.session import Session
    from tokpit.sim.host import SimHost


@click.command()
@click.option("--headless", is_flag=True, help="Launch, sweep and stop without a screen, and print the result.")
@click.option("--json", "as_json", is_flag=True, help="With --headless: one JSON document on stdout.")
@click.option(
    "--clock", type=float, default=None, help="Simulated seconds per real second (default: 10; headless: 25)."
)
@click.pass_obj
def demo(options: Options, headless: bool, as_json: bool, clock: float | None) -> None:
    """Open the cockpit on a simulated GPU host: one RTX PRO 6000, SGLang, a 27B hybrid model with MTP.

    Every figure is given on the simulated clock, which runs --clock times faster than yours and is shown on screen.
    Without a terminal, or with --headless: launch, sweep and stop there, in under a minute.
    """
    headless = headless or as_json or not (is_terminal(sys.stdout) and is_terminal(sys.stdin)) or not options.open_app
    if not headless:
        need_terminal("the demo", "without one: tokpit demo --headless")
    asyncio.run(_headless(as_json, clock or 25.0) if headless else _cockpit(options, clock or 10.0))


async def _cockpit(options: Options, clock: float) -> None:
    from tokpit.sim.host import SimHost

    async with SimHost(clock_factor=clock, running=True) as sim, _session(sim, options) as session:
        await options.open_app(session, theme=options.theme)  # type: ignore[misc]  # checked by the caller
        tell_of_experiments(session)


async def _headless(as_json: bool, clock: float) -> None:
    from tokpit.sim.host import SimHost

    began = time.monotonic()
    async with SimHost(clock_factor=clock) as sim, _session(sim, None) as session:
        session.assume_yes = True
        async with show_operations(session):
            launched: Launched = await session.execute("server.launch", spec=story_spec(sim))
            run: Run = await session.execute(
                "sweep.start", target=launched.server.id, levels="1,4,8,16,32,48", source="here"
            )
            stopped: Stopped = await session.execute("server.stop", server_id=launched.server.id)
    took = time.monotonic() - began
    if as_json:
        to_json(_result(launched, run, stopped, clock, took))
        return
    click.echo(f"simulated host, clock ×{clock:g}: every figure is on the simulated clock; real time {took:.0f} s")
    click.echo(f"ready after {launched.ready_s:.0f} s")
    for level in run.levels:
        click.echo(
            f"C={level.concurrency:3d} n={level.requests:3d} | {level.ok} ok {level.err} err | "
            f"{level.output_tps:7.1f} tok/s | avg_out={level.avg_output:5.0f} | {level.elapsed_s:.1f}s"
        )
    click.echo(f"stopped by {stopped.signal}, gone after {stopped.elapsed_s:.1f} s")


def story_spec(sim: SimHost) -> LaunchSpec:
    """The launch of the demo: MTP with 3 draft steps and 150 GB of host-memory cache on a hybrid 27B model."""
    from tokpit.domain.settings import LaunchSpec, Settings

    return LaunchSpec(
        host=sim.spec.name,
        engine="sglang",
        program=(),
        settings=Settings(
            model=sim.model_path,
            port=sim.engine_port,
            spec_method="mtp",
            spec_steps=3,
            hicache_gb=150,
            state_slots=48,
            mamba_strategy="extra_buffer",
            metrics=True,
        ),
    )


def _session(sim: SimHost, options: Options | None) -> Session:
    """A session whose inventory is the simulated host alone and whose history is kept apart from the user's."""
    from tokpit.config.inventory import Inventory
    from tokpit.ops.session import Session

    inventory = Inventory(hosts={sim.spec.name: sim.spec})
    history = Path(options.history) if options is not None and options.history else Path(sim.root) / "history.sqlite"
    session = Session(inventory, history_path=history, read_only=bool(options and options.read_only))
    session.rings_folder = Path(sim.root) / "rings"
    session.add_host(sim.spec.name)
    return session


def _result(launched: Launched, run: Run, stopped: Stopped, clock: float, took: float) -> dict[str, object]:
    return {
        "simulated": True,
        "clock_factor": clock,
        "real_s": round(took, 1),
        "launch": {"command": launched.command, "ready_s": round(launched.ready_s, 1)},
        "sweep": run,
        "stop": {"signal": stopped.signal, "elapsed_s": round(stopped.elapsed_s, 1)},
    }

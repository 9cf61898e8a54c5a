"""Make the pictures of README and docs from the simulated host: `python tools/make_pictures.py [FOLDER]`.

Each picture is an SVG of the real app after real keys, over SSH, while a sweep runs.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from textual.pilot import Pilot

from tokpit.config.inventory import Inventory
from tokpit.ops.session import Session
from tokpit.sim.host import SimHost
from tokpit.ui.screenshot import screenshot

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
CLOCK = 10.0


async def main(folder: Path) -> None:
    """Write cockpit.svg (120 x 36), cockpit-light.svg, cockpit-80x24.svg and sweep.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    async with SimHost(clock_factor=CLOCK, running=True) as sim:
        pictures: dict[str, tuple[tuple[int, int], str | None]] = {
            "cockpit": ((120, 36), None),
            "cockpit-light": ((120, 36), "tokpit-light"),
            "cockpit-80x24": ((80, 24), None),
        }
        for name, (size, theme) in pictures.items():
            async with _session(sim) as session:
                (folder / f"{name}.svg").write_text(await screenshot(session, size=size, theme=theme, wait_s=16))
        async with _session(sim) as session:
            (folder / "sweep.svg").write_text(await screenshot(session, size=(120, 36), wait_s=4, prepare=_sweep))


def _session(sim: SimHost) -> Session:
    session = Session(
        Inventory(hosts={sim.spec.name: sim.spec}), history_path=Path(tempfile.mkdtemp()) / "history.sqlite"
    )
    session.add_host(sim.spec.name)
    return session


async def _sweep(pilot: Pilot[None]) -> None:
    await pilot.press("s")
    await pilot.pause(0.5)
    await pilot.press("ctrl+s")
    await pilot.pause(45)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))

"""Makes the small recording that the console's snapshot tests show: `python tools/make_recording.py [FILE]`.

A launch, a sweep of three levels and a stopped one on the simulated host, recorded over SSH. Secrets are not in it; the
host's folder is named /srv/demo in place of the temporary one that it had.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
import tempfile
from pathlib import Path

from tokpit.cli.demo import story_spec
from tokpit.config.inventory import Inventory
from tokpit.ops.session import Session
from tokpit.sim.host import SimHost

FILE = Path(__file__).resolve().parents[1] / "tests" / "data" / "demo.tokrec"
CLOCK = 25.0


async def main(target: Path) -> None:
    """Record, then give the folder of the simulated host a name that stays."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "demo.tokrec"
        async with SimHost(clock_factor=CLOCK) as sim:
            session = Session(
                Inventory(hosts={sim.spec.name: sim.spec}), history_path=Path(folder) / "h.sqlite", assume_yes=True
            )
            async with session:
                session.add_host(sim.spec.name)
                await session.connected(sim.spec.name)
                session.start_recording(made)
                session.watch_host(sim.spec.name)
                launched = await session.execute("server.launch", spec=story_spec(sim), operation_id="launch-demo")
                sweep = {"target": launched.server.id, "source": "here"}
                await session.execute("sweep.start", levels="1,4,8,16", operation_id="sweep-demo", **sweep)
                await session.stop_recording()
        text = gzip.decompress(made.read_bytes()).replace(str(sim.root).encode(), b"/srv/demo")
    target.write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE))

"""Launch and stop one server again and again over a real sshd; what is left after each cycle?

    python benchmarks/launch_cycles.py [--cycles 50] [--env-dir FOLDER --engine vllm --model PATH]
                                       [-e NAME=VALUE ...] [-- FLAGS...]

Without --env-dir: the stand-in engine of the tests, a few lines of Python that look like vLLM to a process table, with
a worker in a session of its own. Prints a row at the cycles 1, 2, 5, 10, 20 ... and exits with 1 where anything but a
log was left: a living process, a file, an open file or task of this process, a connection of the sshd.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lifecycle_tools import Traces, make_engine, nothing_left, traces
from sshd import Sshd, free_port
from tokpit.config.inventory import Inventory
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.ops.session import Session

SHOWN = {1, 2, 5, *range(10, 10_000, 10)}


async def cycles(sshd: Sshd, folder: Path, asked: argparse.Namespace) -> list[Traces]:
    env_dir = asked.env_dir or make_engine(folder / "engine")
    mark = str(folder)
    spec = LaunchSpec(
        host="box",
        engine=asked.engine,
        program=(str(env_dir),),
        settings=Settings(model=asked.model, port=free_port(), raw=tuple(asked.flags)),
        env={"FAKE_LEAVES": "1", "CYCLE_MARK": mark, **dict(pair.split("=", 1) for pair in asked.env)},
    )
    seen: list[Traces] = []
    print(f"{'cycle':>5} {'s':>6} {'processes':>9} {'files':>5} {'logs':>4} {'open':>4} {'tasks':>5} "
          f"{'sshd':>4} {'servers':>7} {'RSS MiB':>7}")  # fmt: skip
    inventory = Inventory(hosts={"box": sshd.spec("box")})
    with nothing_left(mark):
        async with Session(inventory, history_path=folder / "h.sqlite", assume_yes=True) as session:
            for cycle in range(1, asked.cycles + 1):
                began = time.monotonic()
                await session.execute("server.launch", spec=spec, timeout_s=300)
                stopped = await session.execute("server.stop", target=f"box:{spec.settings.port}", term_wait_s=30)
                assert not stopped.shm_left, stopped.shm_left
                now = traces(session, sshd.home, mark)
                seen.append(now)
                if cycle in SHOWN or cycle == asked.cycles:
                    took = time.monotonic() - began
                    print(f"{cycle:>5} {took:>6.1f} {len(now.processes):>9} {len(now.files):>5} {now.logs:>4} "
                          f"{now.open_files:>4} {now.tasks:>5} {len(sshd.sessions()):>4} {now.servers:>7} "
                          f"{now.rss_mib:>7.1f}", flush=True)  # fmt: skip
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--env-dir", type=Path)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("-e", "--env", action="append", default=[])
    parser.add_argument("flags", nargs="*")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, Sshd.start(Path(temporary) / "sshd") as sshd:
        seen = asyncio.run(cycles(sshd, Path(temporary), asked))
    first, last = seen[0], seen[-1]
    left = [
        *(f"process {pid}" for pid in last.processes),
        *(f"file {path}" for path in set(last.files) - set(first.files)),
        *(["open files"] if last.open_files > first.open_files else []),
        *(["tasks"] if last.tasks > first.tasks else []),
        *([f"{last.logs} logs"] if last.logs != len(seen) else []),
    ]
    print("left behind: " + (", ".join(left) or "nothing but logs"))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())

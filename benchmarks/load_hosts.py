"""Is a level from several hosts put together exactly? Four generators over SSH against a server's own log.

    python benchmarks/load_hosts.py TRUTHSERVER [--hosts 4] [-c 1024] [--rounds 3]

TRUTHSERVER as for load_truth.py. The hosts are sshds on loopback, each with a generator of its own, so that what is
shown is the merging and the common begin, not four machines' speed. Prints requests, tokens, and TTFT and gaps as seen
and as the server wrote them down.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
import urllib.error
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from load_truth import PORT, URL, get, pair, truth

from sshd import Sshd
from tokpit.config.inventory import Inventory
from tokpit.load.stats import Dist
from tokpit.ops.session import Session

SPEC = "ttft=2000;itl=500"
TOKENS = 12


async def level(servers: dict[str, Sshd], folder: Path, concurrency: int) -> None:
    log = folder / f"{time.monotonic_ns()}.bin"
    specs = {name: one.spec(name, programs={"vllm": sys.executable}) for name, one in servers.items()}
    async with Session(Inventory(hosts=specs), history_path=folder / "history.sqlite") as session:
        get(f"/truth/log?{log}")
        run = await session.execute(
            "sweep.start", target=URL, source=",".join(servers), levels=str(concurrency), model=f"m@{SPEC}", warmup=0,
            requests=2 * concurrency, max_tokens=TOKENS, temperature=0,
        )  # fmt: skip
    get("/truth/log")
    ttft, gaps = truth(log)
    one = run.levels[0]
    seen, icl = Dist.from_dict(one.result["ttft_s"]), Dist.from_dict(one.result["icl_s"])
    clocks = next(check["value"] for check in one.result["checks"] if check["code"] == "GENERATOR_CLOCKS")
    failed = [check["code"] for check in one.result["checks"] if check["ok"] is False]
    print(
        f"{concurrency:5d} {one.result['processes']:3d} {one.ok:5d} {one.err:3d} "
        f"{one.result['output_tokens']:6d}/{2 * concurrency * TOKENS:6d} {one.result['peak_in_flight']:5d} "
        f"{pair(seen, ttft, 'p50')} {pair(seen, ttft, 'p99')} {pair(icl, gaps, 'p99')} {clocks * 1e3:6.2f}  "
        f"{', '.join(failed) or '-'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="A level from several hosts against a server's own log.")
    parser.add_argument("server")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("-c", "--concurrency", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = [f"load{i + 1}" for i in range(args.hosts)]
        servers = {name: stack.enter_context(Sshd.start(folder / name)) for name in names}
        command = [args.server, "--listen", f"127.0.0.1:{PORT}", "--log", f"{folder}/first.bin"]
        process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        stack.callback(process.terminate)
        while True:
            try:
                get("/health")
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.02)
        kinds = ("TTFT p50 ms", "TTFT p99 ms", "gap p99 ms")
        heads = " ".join(f"{name + ' seen/true':>26}" for name in kinds)
        print(f"    C  of    ok err tokens/asked    peak {heads}  clocks ms  failed checks")
        for _ in range(args.rounds):
            asyncio.run(level(servers, folder, args.concurrency))


if __name__ == "__main__":
    main()

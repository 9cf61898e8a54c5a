"""How true are the load generator's times? Compares them with the log of a server that writes down every send.

    python benchmarks/load_truth.py TRUTHSERVER [--seconds 4] [--pin] [--realtime] [--repeat N]

TRUTHSERVER is the path of a server binary that takes --listen and --log, honours `ttft` and `itl` after `@` in the
model's name and writes 32-byte records of its sends. Prints one row a level: measured and true TTFT and ITL, and what
a chunk costs this client; the last rows are chunks/s of one core with the server as fast as the socket takes it.
`--pin` puts the client on core 0 and the server on core 1; `--realtime` runs both before all other work of the machine
(SCHED_FIFO, which needs the right to it), so that the figures are the client's and not those of its neighbours.
Levels marked `1 ms` start their requests a millisecond apart, the others all at once. `procs` is the number of
processes that made the load; with several, and without `--pin`, they share the cores with the server.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from tokpit.load.plan import Plan
from tokpit.load.run import run_sweep
from tokpit.load.stats import Dist, dist

RECORD = struct.Struct("<QQIIHBBI")
PORT = 18111
URL = f"http://127.0.0.1:{PORT}"
SPEC = "ttft=200;itl=20"


def get(path: str, url: str = URL) -> None:
    with urllib.request.urlopen(url + path, timeout=5) as answer:
        answer.read()


def truth(log: Path) -> tuple[Dist | None, Dist | None]:
    came: dict[int, int] = {}
    last: dict[int, int] = {}
    first: list[float] = []
    gaps: list[float] = []
    data = log.read_bytes()
    for at, _, request, _, _, kind, _, _ in RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size]):
        if kind == 1:
            came[request] = at
        elif kind == 3:
            if request in last:
                gaps.append((at - last[request]) / 1e9)
            else:
                first.append((at - came[request]) / 1e9)
            last[request] = at
    return dist(first), dist(gaps)


def pair(measured: Dist | None, true: Dist | None, name: str) -> str:
    if measured is None or true is None:
        return f"{'-':>26}"
    seen, real = getattr(measured, name) * 1e3, getattr(true, name) * 1e3
    return f"{seen:9.3f}/{real:9.3f} {seen / real - 1:+6.1%}" if real > 0.01 else f"{seen:9.3f}/{real:9.3f}       "


def one(
    folder: Path, concurrency: int, spec: str, tokens: int, requests: int, *, stagger_s: float = 0.0, processes: int = 1
) -> None:
    log = folder / f"{concurrency}-{time.monotonic_ns()}.bin"
    get(f"/truth/log?{log}")
    plan = Plan(
        url=URL, model=f"m@{spec}", levels=(concurrency,), requests=requests, max_tokens=tokens, warmup=0,
        temperature=0, stagger_s=stagger_s, processes=processes,
    )  # fmt: skip
    level = asyncio.run(run_sweep(plan)).levels[0]
    get("/truth/log")
    ttft, gaps = truth(log)
    chunks = sum(row[3] for row in level.rows)
    cpu_s = level.client_cpu_all * level.elapsed_s
    marked = any(check.ok is False for check in level.checks if check.code in ("MERGED_READS", "CLIENT_BOUND"))
    print(
        f"{concurrency:4d} {'1 ms' if stagger_s else '    '} {processes:5d} {level.ok:5d} {level.err:3d} "
        f"{pair(level.ttft_s, ttft, 'p50')} {pair(level.ttft_s, ttft, 'p99')} "
        f"{pair(level.icl_s, gaps, 'p50')} {pair(level.icl_s, gaps, 'p99')} "
        f"{chunks / level.elapsed_s:8.0f} {chunks / cpu_s:9.0f} {level.merged_share:7.2%} {level.kernel_share:6.1%}"
        f"{'  marked' if marked else ''}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The load generator's times against a server's own log.")
    parser.add_argument("server")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    if args.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    if args.pin and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {0})
    pinned = ["taskset", "-c", "1"] if args.pin else []
    with tempfile.TemporaryDirectory() as folder:
        command = [*pinned, args.server, "--listen", f"127.0.0.1:{PORT}", "--log", f"{folder}/first.bin"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
            try:
                while True:
                    try:
                        get("/health")
                        break
                    except (urllib.error.URLError, ConnectionError):
                        time.sleep(0.02)
                kinds = ("TTFT p50 ms", "TTFT p99 ms", "ITL p50 ms", "ITL p99 ms")
                heads = " ".join(f"{name + ' seen/true':>26}" for name in kinds)
                print(f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, load {os.getloadavg()}")
                print(f"   C      procs    ok err {heads} chunks/s  per CPU-s  merged kernel")
                tokens = max(20, int(args.seconds / 2 / 0.02) - 10)
                for concurrency in (1, 16, 64, 256) * args.repeat:
                    for stagger_s in (0.001, 0.0):
                        one(Path(folder), concurrency, SPEC, tokens, 2 * concurrency, stagger_s=stagger_s)
                for processes in (1, 2) * args.repeat:
                    spec = SPEC.replace("itl=20", "itl=100")
                    one(Path(folder), 1024, spec, 40, 1024, stagger_s=0.001, processes=processes)
                print("as fast as the socket takes it:")
                for concurrency in (1, 64):
                    one(Path(folder), concurrency, "ttft=5;itl=0", 2000, 10 if concurrency == 1 else 128)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()

"""How long `tokpit diagnose --log` takes for a large log, and how much memory: one pass over a file that it makes.

    python benchmarks/diagnose_log.py [--mb 500] [--engine sglang|vllm]

The log is that of `parse_log.py`: statistics lines, access lines, request dumps and free text. Diagnosed by the command
as a person runs it, in a process of its own: wall time, CPU time and greatest resident memory are that process's.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from parse_log import sglang_line, vllm_line


def make(path: Path, size: int, engine: str) -> int:
    """Write a log of `size` bytes; gives its lines."""
    rng = random.Random(1)
    line = sglang_line if engine == "sglang" else vllm_line
    block = "".join(line(rng, i) + "\n" for i in range(100_000))
    count = written = 0
    with path.open("w", encoding="utf-8") as out:
        while written < size:
            out.write(block)
            written, count = written + len(block), count + 100_000
    return count


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mb", type=int, default=500)
    options.add_argument("--engine", choices=["sglang", "vllm"], default="sglang")
    options.add_argument("--keep", help="write the log here and leave it")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(asked.keep) if asked.keep else Path(folder) / "server.log"
        lines = make(path, asked.mb * 1_000_000, asked.engine)
        size = path.stat().st_size
        argv = [sys.executable, "-m", "tokpit", "diagnose", "--log", str(path), "--json"]
        began = time.monotonic()
        null = os.open(os.devnull, os.O_WRONLY)
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
        _, status, usage = os.wait4(pid, 0)
        wall = time.monotonic() - began
    assert os.waitstatus_to_exitcode(status) == 0, "diagnose failed"
    cpu = usage.ru_utime + usage.ru_stime
    load = os.getloadavg()[0]
    print(f"{asked.engine}: {size / 1e6:,.0f} MB, {lines:,} lines")
    print(f"wall {wall:.1f} s, CPU {cpu:.1f} s, {lines / cpu:,.0f} lines/s, {size / 1e6 / cpu:.1f} MB/s of CPU")
    print(f"greatest resident memory {usage.ru_maxrss / 1024:.0f} MiB; load average {load:.1f}")


if __name__ == "__main__":
    main()

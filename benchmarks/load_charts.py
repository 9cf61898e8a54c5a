"""What a level of 64 x 1024 tokens costs with charts on: the sweep screen, AIPerf's dashboard, GuideLLM.

    python benchmarks/load_charts.py SERVER [--aiperf VENV] [--guidellm VENV] [--tokenizer FOLDER] [--repeat N]

SERVER as in load_peers.py. It runs under the name of an engine, so that the console finds it on this machine as it
finds any server; the console is the real program in a pseudo-terminal of 160 x 48, driven by its keys. CPU is the
kernel's figure for the program and all that it started, from its start to the end of the level. Tokens of a CPU-second:
of the whole run, start-up included, and without the start-up (an empty run; for the console what it took until the
level began).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import load_peers
from console import TICKS, Screen, tokpit
from load_peers import LONGEST_S, PORT, URL, Load, own_environment
from load_truth import get

LEVEL = Load(64, 64, 1024, 200, 10)
EMPTY = Load(1, 1, 2, 5, 5)
TOKENS = LEVEL.requests * LEVEL.tokens


def tree_cpu_s(pid: int) -> float:
    """CPU of a process and of all its descendants, the ended ones included."""
    found = 0.0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += tree_cpu_s(int(child))
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return found + sum(map(int, fields[11:15])) / TICKS


def stored(folder: Path) -> list[dict[str, Any]]:
    """The runs that the console has kept."""
    command = [sys.executable, "-m", "tokpit", "runs", "--json"]
    environment = {**own_environment(), "TOKPIT_STATE_DIR": str(folder / "state")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return list(json.loads(done.stdout)) if done.returncode == 0 else []


def console(folder: Path) -> tuple[float, float]:
    """CPU seconds until the level begins, and until it is over and drawn."""
    screen = Screen(tokpit("local"), folder, (160, 48))
    try:
        for marker, key in ((str(PORT), "s"), ("output tokens", "")):
            if screen.until(marker.encode()) == float("inf"):
                raise RuntimeError(f"the console never showed {marker!r}")
            screen.press(key)
        for text in (str(LEVEL.concurrency), str(LEVEL.requests), str(LEVEL.tokens)):
            screen.drain(0.5)
            screen.press("\x05\x15")
            screen.drain(0.2)
            screen.press(text)
            screen.drain(0.2)
            screen.press("\t")
        screen.drain(1)
        before = tree_cpu_s(screen.pid)
        screen.press("\x13")
        deadline = time.monotonic() + LONGEST_S
        while not (runs := stored(folder)) or runs[0].get("status") == "running":
            if time.monotonic() > deadline:
                raise RuntimeError("the console did not end its level")
            screen.drain(2)
        screen.drain(1)
        after = tree_cpu_s(screen.pid)
    finally:
        screen.close()
    made = sum(level["ok"] * level["avg_output"] for level in runs[0]["levels"])
    if made != TOKENS:
        raise RuntimeError(f"the console's level has {made:.0f} tokens, not {TOKENS}: {runs[0]}")
    return before, after


def show(name: str, base_s: float, total_s: float) -> None:
    print(
        f"{name:24} {base_s:6.2f} s to start, {total_s:6.2f} s in all: {TOKENS / total_s:9,.0f} tokens a CPU-second, "
        f"{TOKENS / (total_s - base_s):9,.0f} without the start",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("server")
    for option in ("--aiperf", "--guidellm", "--tokenizer"):
        parser.add_argument(option, default="")
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    os.environ["PEER_PATH"] = ""
    print(f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {os.cpu_count()} cores, load {os.getloadavg()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = ["llama-server", "--listen", f"127.0.0.1:{PORT}", "--log", f"{folder}/first.bin"]
        with subprocess.Popen(words, executable=args.server, stderr=subprocess.DEVNULL) as server:
            try:
                while True:
                    try:
                        get("/health", URL)
                        break
                    except OSError:
                        time.sleep(0.05)
                pairs = []
                for n in range(args.repeat):
                    (own := folder / f"console-{n}").mkdir()
                    pairs.append(console(own))
                show("tokpit's sweep screen", *(statistics.median(column) for column in zip(*pairs, strict=True)))
                clients = [load_peers.aiperf(args.aiperf, args.tokenizer)] if args.aiperf else []
                clients += [load_peers.guidellm(args.guidellm, args.tokenizer)] if args.guidellm else []
                for client in clients:
                    runs = [load_peers.median(client, load, folder, args.repeat) for load in (EMPTY, LEVEL)]
                    show(client.name, *(ran.cpu_s for ran in runs))
            finally:
                server.terminate()


if __name__ == "__main__":
    main()

"""Draft tokens on and off on real engines, at few and at many requests: does tokpit say where they stop paying?

    python benchmarks/speculation.py [sglang] [vllm]

Needs the engines of the real tier (tests/real/real_install.py installs them: tiny models on the CPU) and an sshd. Each
engine is launched with three draft steps and then relaunched without, both by tokpit, and swept at C = 1 and 8 as often
as --repeat says. Prints the medians, the acceptance length and what `tokpit compare` and `tokpit diagnose` say of the
two runs. The cap on running requests is 8, so that C = 8 runs without a queue.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "real"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import real_install
from real_line import Tokpit, free_port, options

from sshd import Sshd

LEVELS, REQUESTS, TOKENS, STEPS, CAP, SLOTS = (1, 8), 16, 96, 3, 8, 3


def words(engine: str) -> list[str]:
    """The launch line of an engine, without host and engine."""
    model = ["--model", str(real_install.model("hybrid")), "--served-name", "hybrid", "--context", "2048"]
    common = [*model, "--mtp-steps", str(STEPS), "--dtype", "bfloat16", "--listen", "127.0.0.1"]
    if engine == "vllm":
        return [
            *("--env-dir", str(real_install.vllm()), *options(real_install.vllm_env()), *common),
            *("--max-running", str(CAP), "--", "--enforce-eager", "--no-enable-prefix-caching"),
        ]
    return [
        *("--env-dir", str(real_install.sglang()), *options(real_install.sglang_env()), *common),
        *("--mamba-strategy", "no_buffer", "--state-slots", str(CAP * SLOTS)),
        *("--", *real_install.SGLANG_ON_CPU, "--disable-overlap-schedule"),
    ]


def sweeps(tokpit: Tokpit, target: str, repeat: int) -> tuple[str, dict[int, float], float | None]:
    """Run id of the last sweep, median tok/s by level, mean acceptance length."""
    rates: dict[int, list[float]] = {level: [] for level in LEVELS}
    lengths: list[float] = []
    run: dict[str, Any] = {}
    for _ in range(repeat):
        run = tokpit.json(
            "sweep", target, "-c", ",".join(map(str, LEVELS)), "-n", str(REQUESTS), "--max-tokens", str(TOKENS),
            "--temperature", "0", "--warmup", "1",
        )  # fmt: skip
        for level in run["levels"]:
            rates[level["concurrency"]].append(level["output_tps"])
            if level["result"].get("accept_len"):
                lengths.append(level["result"]["accept_len"])
    medians = {level: statistics.median(found) for level, found in rates.items()}
    return run["id"], medians, statistics.mean(lengths) if lengths else None


def compare(tokpit: Tokpit, engine: str, repeat: int) -> None:
    port = free_port()
    target = f"real:{port}"
    launched = tokpit.run("launch", "real", engine, "--yes", "--port", str(port), *words(engine))
    if launched.returncode:
        sys.exit(launched.stderr[-3000:])
    try:
        with_id, with_drafts, length = sweeps(tokpit, target, repeat)
        tokpit.json("relaunch", target, "--yes", "--mtp-steps", "0")
        without_id, without, _ = sweeps(tokpit, target, repeat)
    finally:
        tokpit.run("stop", target, "--yes")
    print(f"{engine}: acceptance length {length:.2f}" if length else f"{engine}: acceptance length not told")
    for level in LEVELS:
        gain = with_drafts[level] / without[level]
        cost = f", a step costs {length / gain:.2f} plain ones" if length else ""
        print(
            f"  C={level}: {with_drafts[level]:.1f} tok/s with drafts, {without[level]:.1f} without: {gain:.2f}{cost}"
        )
    for command in (
        ("compare", without_id, with_id),
        ("diagnose", "--run", with_id, "--run", without_id),
    ):
        print(f"$ tokpit {' '.join(command)}")
        print(tokpit.run(*command).stdout)
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Draft tokens on and off, at C = 1 and 8.")
    parser.add_argument("engines", nargs="*", default=["sglang", "vllm"])
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    print(f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {os.cpu_count()} cores, load {os.getloadavg()}")
    with tempfile.TemporaryDirectory() as name, Sshd.start(Path(name) / "sshd") as sshd:
        folder = Path(name) / "tokpit"
        folder.mkdir()
        tokpit = Tokpit(folder, sshd)
        for engine in args.engines:
            compare(tokpit, engine, args.repeat)


if __name__ == "__main__":
    main()

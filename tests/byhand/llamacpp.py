"""Checks against a real llama-server, by hand: no CI run has one.

    python tests/byhand/llamacpp.py LLAMA_SERVER MODEL.gguf [--save FOLDER]

Starts the server on a free port of this machine, loads it, compares what its log and its metrics page say with what
the clients counted, lets starts fail in four ways, and ends it with SIGKILL; then has tokpit launch it, sweep past its
slots and stop it. Prints a line a check; exit status 1 if one is wrong. `--save` keeps the logs, from which excerpts
for tests/data/real_logs can be cut.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tokpit.domain.records import LogRecord
from tokpit.engines.logkit.progress import StartTracker
from tokpit.engines.logkit.read import detect, read_log
from tokpit.engines.registry import engine

LLAMA = engine("llamacpp")
SLOTS, EACH, TOKENS = 2, 3, 24
LEVELS = (1, 2, 4, 8)
SOURCES = Path(__file__).parents[2] / "src"
LIMIT_S = 300.0


class Checks:
    """What was checked and whether it was so."""

    def __init__(self) -> None:
        self.wrong = 0

    def that(self, what: str, found: object, wanted: object) -> None:
        """One comparison."""
        good = found == wanted
        self.wrong += not good
        sys.stdout.write(f"{'ok   ' if good else 'WRONG'} {what}: {found!r}{'' if good else f', not {wanted!r}'}\n")

    def note(self, text: str) -> None:
        """Something to read, that is neither right nor wrong."""
        sys.stdout.write(f"      {text}\n")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(url: str, body: dict[str, Any] | None = None) -> str:
    """The text of an answer. Raises OSError."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return str(answer.read().decode())


def started(argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """The server with its output in a file."""
    with log.open("wb") as out:
        return subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)


def wait_ready(url: str, server: subprocess.Popen[bytes]) -> bool:
    """Whether it answers 200 on /health before it ends or the time is over."""
    until = time.monotonic() + LIMIT_S
    while server.poll() is None and time.monotonic() < until:
        try:
            ask(f"{url}/health")
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.2)
        else:
            return True
    return False


def records_of(log: Path) -> list[LogRecord]:
    """The log through the grammar."""
    return list(read_log(log.read_text("utf-8", "replace").splitlines(), "llamacpp"))


def flags(checks: Checks, binary: str) -> None:
    """Every flag of the server's own help is known to the table of its build."""
    version = subprocess.run(LLAMA.version_command(binary), capture_output=True, text=True, check=False).stdout.strip()
    checks.that("its version is told", bool(re.fullmatch(r"b\d+", version)), wanted=True)
    text = subprocess.run([binary, "--help"], capture_output=True, text=True, check=False).stdout
    heads = [found[0] for line in text.splitlines() if (found := re.match(r"(?:-{1,2}[\w-]+,?\s+)+", line))]
    names = sorted({name for head in heads for name in re.findall(r"--[a-z][\w-]+", head)})
    unknown = [name for name in names if any(i.code == "unknown" for i in LLAMA.check_flags([name], version or None))]
    checks.note(f"{version}: {len(names)} flags in its help")
    checks.that("flags of its help that tokpit does not know", unknown, [])
    bad = LLAMA.check_flags(["--n-gpu-layer", "3"], version or None)
    checks.that("a misspelt flag is found", [issue.code for issue in bad], ["unknown"])


def load(url: str) -> list[dict[str, Any]]:
    """Usage of the answers to some requests, more at once than there are slots."""
    body = {"prompt": "The sea is", "max_tokens": TOKENS, "temperature": 0.0, "ignore_eos": True}
    with ThreadPoolExecutor(SLOTS * 2) as pool:
        texts = list(pool.map(lambda i: ask(f"{url}/v1/completions", {**body, "seed": i}), range(SLOTS * EACH)))
    return [json.loads(text)["usage"] for text in texts]


def serving(checks: Checks, binary: str, model: str, folder: Path) -> None:
    """A start, a load and a death."""
    port, log = free_port(), folder / "llamacpp-load.log"
    argv = (binary, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-np", str(SLOTS), "-c", "1024")
    argv += ("-t", "2", "--metrics", "--slots")
    url = f"http://127.0.0.1:{port}"
    seen = LLAMA.recognise(argv)
    checks.that("its command line is recognised", seen and (seen.settings.model, seen.settings.port), (model, port))
    server = started(argv, log)
    try:
        checks.that("it answers", wait_ready(url, server), wanted=True)
        usages = load(url)
        page = LLAMA.metrics(ask(f"{url}{LLAMA.http.metrics}"))
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait(30)
    made = sum(usage["completion_tokens"] for usage in usages)
    lines = log.read_text("utf-8", "replace").splitlines()
    records = records_of(log)
    checks.that("the log is told to be its own", detect(lines), "llamacpp")
    checks.that("no line of the log is lost", [line for r in records for line in r.lines] == lines, wanted=True)
    counter = page.values.get("gen_tokens_total", 0.0)
    checks.that("tokens on its metrics page against usage", abs(counter - made) <= SLOTS * EACH, wanted=True)
    checks.note(f"usage {made}, page {counter:g}")
    timed = [r.fields for r in records if r.fields.get("gen_ms") is not None]
    checks.that("requests with timings in the log", len(timed), len(usages))
    told = sum(int(str(f["gen_tokens"])) for f in timed)
    checks.that("tokens in those timings against usage", abs(told - made) <= len(timed), wanted=True)
    tracker = StartTracker(LLAMA.milestones)
    for record in records:
        tracker.observe(record, 0.0)
    checks.that("the start is told to its end", tracker.ready_hint, wanted=True)
    checks.note("steps: " + ", ".join(step.label for step in tracker.steps))
    # Builds of autumn 2026 print them at a higher verbosity only.
    checks.note(f"access lines: {sum(r.kind == 'access' for r in records)}")
    verdict = LLAMA.verdict(records, exit_code=-9, signal="SIGKILL")
    checks.that("its death", verdict and verdict.code, "HOST_OOM_KILLED")
    checks.that("failures seen while it served", [r.text for r in records if r.kind.startswith("failure.")], [])
    kinds = Counter(record.kind for record in records)
    checks.note("kinds: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))


def failures(checks: Checks, binary: str, model: str, folder: Path) -> None:
    """Starts that fail, and whether the cause is named."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        broken = folder / "broken.gguf"
        broken.write_bytes(b"GGUF" + b"\0" * 60)
        cases = (
            ("llamacpp-unknown-flag", ("-m", model, "--no-such-flag"), "FLAG_UNRECOGNIZED"),
            ("llamacpp-port-in-use", ("-m", model, "--host", "127.0.0.1", "--port", port), "PORT_IN_USE"),
            ("llamacpp-no-model", ("-m", str(folder / "none.gguf"), "--port", str(free_port())), "MODEL_PATH_MISSING"),
            ("llamacpp-broken-model", ("-m", str(broken), "--port", str(free_port())), "WEIGHTS_CORRUPT"),
        )
        for name, words, code in cases:
            log = folder / f"{name}.log"
            server = started((binary, *words), log)
            try:
                status = server.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                server.kill()
                status = server.wait(30)
            verdict = LLAMA.verdict(records_of(log), exit_code=status)
            checks.that(name.removeprefix("llamacpp-"), verdict and verdict.code, code)


def through_tokpit(checks: Checks, binary: str, model: str, folder: Path) -> None:
    """tokpit's own commands: a launch, a sweep past the slots with what it finds, the server's counters, a stop."""
    port, home = free_port(), folder / "tokpit"
    folders = dict.fromkeys(("TOKPIT_CONFIG_DIR", "TOKPIT_STATE_DIR", "TOKPIT_CACHE_DIR"), str(home))
    env = {**os.environ, **folders, "HOME": str(home), "PYTHONPATH": str(SOURCES)}
    home.mkdir(exist_ok=True)

    def tokpit(name: str, *words: str) -> Any:
        argv = [sys.executable, "-m", "tokpit", name, "--json", *words]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        checks.that(f"tokpit {name}", done.returncode, 0)
        if done.returncode:
            checks.note(done.stderr[-1000:])
        return json.loads(done.stdout or "null")

    def counter() -> float:
        page = LLAMA.metrics(ask(f"http://127.0.0.1:{port}{LLAMA.http.metrics}"))
        return page.values.get("gen_tokens_total", 0.0)

    flags = ("-np", str(SLOTS), "-c", "4096", "-t", "1", "--metrics")
    launched = ("local", "llamacpp", "--yes", "--program", binary, "--model", model, "--port", str(port))
    made = tokpit("launch", *launched, "--", *flags)
    if made is None:
        return
    try:
        checks.note(f"ready after {made['ready_s']} s: " + ", ".join(step["label"] for step in made["milestones"]))
        times = [step["elapsed_s"] for step in made["milestones"]]
        checks.that("begins with", made["milestones"][0]["kind"], "started")
        checks.that("its steps are in order", times, sorted(times))
        row = next(row for row in tokpit("ps", "local")["servers"] if row["port"] == port)
        wanted = subprocess.run(LLAMA.version_command(binary), capture_output=True, text=True, check=False).stdout
        checks.that("ps tells its build", row["version"], wanted.strip())
        before = counter()
        words = ("-c", ",".join(map(str, LEVELS)), "-n", "16", "--max-tokens", "32", "--temperature", "0")
        run = tokpit("sweep", f"local:{port}", *words, "--warmup", "0")
        levels = run["levels"]
        checks.that("all are ok", [level["ok"] for level in levels], [16] * len(LEVELS))
        counted = sum(round(level["avg_output"] * level["ok"]) for level in levels)
        checks.that("tokens of the clients against the server's counter", counter() - before, float(counted))
        for level in levels:
            c, result = level["concurrency"], level["result"]
            checks.note(f"C={c}: {level['output_tps']:.1f} tok/s, {result['server_running']} running, "
                        f"{result['server_queued']} queued")  # fmt: skip
        above = [level for level in levels if level["concurrency"] > SLOTS]
        checks.that("running at most", {level["result"]["server_running"] for level in above}, {SLOTS})
        queues = [level["result"]["server_queued"] for level in above]
        checks.that("queued is C - slots", queues, [level["concurrency"] - SLOTS for level in above])
        said = [f"{item['code']}: {item['claim']} {item['arithmetic']}" for item in run["context"]["findings"]]
        for text in said:
            checks.note(text)
        checks.that("the plateau names the slots", any(f"= {SLOTS}" in t and "QUEUE" in t for t in said), wanted=True)
        changed = tokpit("relaunch", f"local:{port}", "--yes", "--max-running", str(SLOTS + 1))
        checks.that("relaunched on its port", changed and changed["port"], port)
    finally:
        done = tokpit("stop", f"local:{port}", "--yes")
        checks.that("stopped by", done and done["signal"], "TERM")


def main() -> int:
    """The checks in order; 1 if one was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    checks = Checks()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.save or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        flags(checks, options.binary)
        serving(checks, options.binary, options.model, folder)
        failures(checks, options.binary, options.model, folder)
        through_tokpit(checks, options.binary, options.model, folder)
    sys.stdout.write(f"{checks.wrong} wrong\n")
    return 1 if checks.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

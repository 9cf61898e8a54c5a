"""What must hold of any engine that tokpit launched: the tests of each engine call these on one running server."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from real_line import Tokpit, counter, free_port, group, wait

from process_tools import alive
from sshd import Sshd

CAP, STEPS, TOKENS = 3, 3, 96
LEVELS, REQUESTS = (1, 3, 6, 9), 30


@dataclass
class Served:
    """A server that `tokpit launch` started and said READY of."""

    tokpit: Tokpit
    sshd: Sshd
    engine: str
    version: str
    counter: str
    """The engine's own count of generated tokens."""
    port: int
    made: dict[str, Any] = field(default_factory=dict)
    """What the launch printed; replaced by a relaunch."""
    log: Path = Path()
    """The log of the first launch."""
    runs: list[str] = field(default_factory=list)
    """Ids of its sweeps, the first one first."""

    @property
    def target(self) -> str:
        """How commands name it."""
        return f"real:{self.port}"

    def rows(self) -> list[dict[str, Any]]:
        """What `tokpit ps` says of its port."""
        return [row for row in self.tokpit.json("ps", "real")["servers"] if row["port"] == self.port]


@contextlib.contextmanager
def serve(tokpit: Tokpit, sshd: Sshd, engine: str, version: str, count: str, *words: str) -> Iterator[Served]:
    """Launch with `words`, lose the link while it loads, wait for READY; stop whatever serves the port at the end."""
    port = free_port()
    served = Served(tokpit, sshd, engine, version, count, port)
    try:
        with tokpit.begin("launch", "real", engine, "--json", "--yes", "--port", str(port), *words) as launch:
            launch.until("pid ")
            sshd.signal_sessions(signal.SIGKILL)
            assert launch.result() == 0, launch.err[-3000:]
            assert "still waiting" in launch.err, "nothing was said of the lost link"
            served.made = json.loads(launch.out)
        served.log = Path(served.made["log_path"])
        yield served
    finally:
        for row in served.rows():
            tokpit.run("stop", f"real/{row['pid']}", "--yes", "--term-wait", "20")
            assert not group(row["pgid"])


def milestones(served: Served) -> None:
    """The launch told its steps in their order, with times that grow, and READY came from a generated token."""
    steps = served.made["milestones"]
    kinds = [step["kind"] for step in steps]
    assert kinds[0] == "started"
    assert kinds[-1] == "token"
    assert kinds.index("listening") < kinds.index("healthy") < kinds.index("token")
    assert len(kinds) > 8, f"milestones of the log are missing: {kinds}"
    times = [step["elapsed_s"] for step in steps]
    assert times == sorted(times)
    assert 1 < served.made["ready_s"] == times[-1]
    assert len({int(t) for t in times}) > 3, f"steps that took time came at one time: {steps}"


def process_table(served: Served) -> None:
    """`ps` finds it from its real command line, with version, settings and the log that it writes."""
    (row,) = served.rows()
    assert (row["engine"], row["pid"], row["start_ticks"]) == (
        served.engine,
        served.made["pid"],
        served.made["start_ticks"],
    )
    assert row["version"].startswith(served.version)
    settings = row["settings"]
    assert {name: settings.get(name) for name in ("served_name", "context_len", "spec_steps", "dtype")} == {
        "served_name": "hybrid",
        "context_len": 2048,
        "spec_steps": STEPS,
        "dtype": "bfloat16",
    }
    assert row["log_path"] == served.made["log_path"]
    assert row["launched_by_tokpit"]
    assert row["children"]
    assert 0 < time.time() - row["started_at"] < 3600


def sweep_past_the_cap(served: Served) -> tuple[list[dict[str, float]], dict[str, Any]]:
    """A sweep up to thrice the cap: nothing fails, the server counted the same tokens, a watcher saw it live.

    Returns the figures that the watcher printed, and the run.
    """
    before = counter(served.port, served.counter)
    with served.tokpit.begin("watch", served.target, "--json", "-i", "0.25") as watch:
        watch.until('"figures"')
        run = sweep(served, *LEVELS)
        wait(lambda: False, 3)
    watched = [json.loads(line)["figures"] for line in watch.out.splitlines()[:-1]]
    assert [(level["concurrency"], level["ok"], level["err"]) for level in run["levels"]] == [
        (c, REQUESTS, 0) for c in LEVELS
    ], run
    counted = sum(round(level["avg_output"] * level["ok"]) for level in run["levels"])
    assert counted == len(LEVELS) * REQUESTS * TOKENS
    wait(lambda: counter(served.port, served.counter) - before >= counted, 30)
    assert counter(served.port, served.counter) - before == counted
    for level in run["levels"]:
        count = next(check for check in level["result"]["checks"] if check["code"] == "SERVER_COUNT")
        # The counter of one level may lack the last tokens; over all levels it is exact.
        assert count["ok"] is True, count
        assert abs(count["value"] / (REQUESTS * TOKENS) - 1) < 0.05, count

    stored = served.tokpit.json("runs", run["id"])
    assert [level["concurrency"] for level in stored["levels"]] == list(LEVELS)
    assert stored["context"]["settings"]["spec_steps"] == STEPS

    assert max(f.get("running_reqs") or 0 for f in watched) == CAP
    assert any(f.get("running_reqs") == CAP and f.get("queue_reqs") for f in watched), "nobody saw the queue"
    above = [level["result"] for level in run["levels"] if level["concurrency"] > CAP]
    assert max(result["server_running"] for result in above) == CAP
    assert all(result["server_queued"] for result in above), above
    assert max(f.get("gen_tps", 0) for f in watched) > 0
    return watched, run


def sweep(served: Served, *levels: int, more: tuple[str, ...] = ()) -> dict[str, Any]:
    """A sweep whose every answer has the same length, as the run that it left."""
    words = ("-c", ",".join(map(str, levels)), "-n", str(REQUESTS), "--max-tokens", str(TOKENS), "--temperature", "0")
    run: dict[str, Any] = served.tokpit.json("sweep", served.target, *words, "--warmup", "0", *more)
    served.runs.append(run["id"])
    return run


def plateau(
    served: Served, run: dict[str, Any], code: str, *said: str, cap: int = CAP, levels: tuple[int, ...] = LEVELS
) -> None:
    """The finding on the plateau names the cap and what sets it. A run that a busy machine bent is measured again."""
    queued = " and ".join(f"{c - cap} at C={c}" for c in levels if c > cap)
    for _ in range(4):
        found = {item["code"]: f"{item['claim']} {item['arithmetic']}" for item in run["context"]["findings"]}
        whole = found.get(code, "")
        if f"{cap} running, queued C-{cap}: {queued}" in whole:
            break
        run = sweep(served, *levels[1:])
    assert f"{cap} running, queued C-{cap}: {queued}" in whole, found
    assert [words for words in said if words not in whole] == [], whole


def here_and_there(served: Served) -> None:
    """The same load through SSH and from the host itself: the same tokens, rates that agree within this noise.

    What else runs on the machine makes a run slower, never faster: the best of a few in turn are compared.
    """
    best = {"here": 0.0, "host": 0.0}
    for _ in range(4):
        for source in best:
            run = sweep(served, 2, more=("--from", source))
            assert run["context"]["from"] == source
            assert "round trip" in run["context"]["link"]
            (level,) = run["levels"]
            assert (level["ok"], level["avg_output"]) == (REQUESTS, TOKENS)
            best[source] = max(best[source], level["output_tps"])
        if 0.5 < best["here"] / best["host"] < 2:
            return
    raise AssertionError(best)


def acceptance(values: list[float], expected: float) -> None:
    """Acceptance lengths that a log or a watcher gave are those of the model, and include the bonus token."""
    assert values
    mean = sum(values) / len(values)
    assert abs(mean - expected) < 0.2, values


def logs_resume(served: Served) -> None:
    """`tokpit logs` follows through a lost link without a gap or a repetition, and the server does not notice."""
    with served.tokpit.begin("logs", served.target, "-n", str(1 << 30)) as logs:
        wait(lambda: logs.out.count("\n") > 50)
        before = logs.out.count("\n")
        served.sshd.signal_sessions(signal.SIGKILL)
        served.tokpit.json("sweep", served.target, "-c", "1", "-n", "2", "--max-tokens", "8", "--warmup", "0")
        done = served.log.read_text(errors="replace").count("\n")
        assert done > before
        wait(lambda: logs.out.count("\n") >= done)
        followed = logs.out.splitlines()[:done]
    assert alive(served.made["pid"])
    shown = served.tokpit.run("logs", served.target, "-F", "-n", str(1 << 30))
    assert followed == shown.stdout.splitlines()[:done]


def interrupted_sweep(served: Served) -> None:
    """Ctrl-C in a sweep keeps the finished levels, leaves no process here and no request there."""
    words = ("--json", "-c", "2,6", "-n", "6", "--max-tokens", "150", "--warmup", "0")
    with served.tokpit.begin("sweep", served.target, *words) as sweep:
        sweep.until("C=   2 n=    6")
        sweep.process.send_signal(signal.SIGINT)
        assert sweep.result(timeout_s=60) == 130, sweep.err
        run = json.loads(sweep.out)
    assert (run["status"], [level["ok"] for level in run["levels"]][:1]) == ("stopped", [6])
    stored = served.tokpit.json("runs", run["id"])
    assert (stored["status"], stored["levels"][0]["ok"]) == ("stopped", 6)
    here = subprocess.run(["pgrep", "-f", str(served.tokpit.inventory)], capture_output=True, text=True, check=False)
    assert here.stdout == ""

    def quiet() -> bool:
        seen = counter(served.port, served.counter)
        time.sleep(2)
        return counter(served.port, served.counter) == seen

    assert wait(quiet, 60), "requests of the interrupted sweep go on"


def relaunch(served: Served, *words: str) -> None:
    """A relaunch ends exactly the old server and starts the same one with the change, environment included."""
    old, row = served.made, served.rows()[0]
    made = served.tokpit.json("relaunch", served.target, "--yes", *words)
    assert not group(row["pgid"])
    assert made["pid"] != old["pid"]
    assert made["port"] == served.port
    assert made["log_path"] != old["log_path"]
    served.made = made


def compared(served: Served, before: str, after: str, *levels: int) -> None:
    """`compare` judges two runs level by level, and names the setting that differs as what can explain the gap."""
    done = served.tokpit.run("compare", before, after, "--json")
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)["comparisons"][0]
    assert {pair["level"] for pair in found["comparison"]["pairs"]} == {f"C={c}" for c in levels}
    assert found["comparison"]["sentence"]
    changed = {one["name"]: one for one in found["changes"]}
    assert (changed["spec steps"]["before"], changed["spec steps"]["after"]) == (str(STEPS), "not given")
    assert changed["spec steps"]["fits"] != "no effect", changed["spec steps"]
    assert "version" not in changed
    assert served.tokpit.run("report", before, after, "-f", "html").stdout.count("<svg") >= 2


def told_why_it_ended(served: Served, worker: int) -> None:
    """A worker killed under a running server: who watches is told that it went and why; `ps` does not list it."""
    with served.tokpit.begin("watch", served.target, "-i", "1") as watch:
        watch.until("running")
        subprocess.run(["kill", "-KILL", str(worker)], check=True)
        assert watch.result(timeout_s=120) == 4, watch.out
    assert f"{served.target} is gone" in watch.err
    assert len(watch.err.splitlines()) == 2, "no reason was given"
    assert served.rows() == []


def stopped(served: Served) -> None:
    """`tokpit stop` ends the whole group of exactly this server."""
    (row,) = served.rows()
    done = served.tokpit.json("stop", served.target, "--yes")
    assert (done["pid"], done["signal"]) == (row["pid"], "TERM")
    assert done["processes"] >= 2
    assert done["port_free"]
    assert not group(row["pgid"])
    assert served.rows() == []

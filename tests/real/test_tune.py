"""Experiments on real engines: what is ruled out, the winner measured again by sweeps of its own, the way back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import real_install
from real_line import Tokpit, counter, free_port, group, options

from sshd import Sshd

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]
SLOTS_PER_REQUEST = 3
"""Of the no_buffer strategy."""
SGLANG = (
    *("--env-dir", str(real_install.sglang()), *options(real_install.sglang_env()), "--dtype", "bfloat16"),
    *("--mtp-steps", "3", "--mamba-strategy", "no_buffer", "--state-slots", str(SLOTS_PER_REQUEST)),
    *("--max-running", "1", "--", *real_install.SGLANG_ON_CPU, "--disable-overlap-schedule"),
)
WORKLOAD = ("-c", "1,3", "-n", "6", "--max-tokens", "64")


def vllm_words(*, steps: int, running: int, batched: int) -> tuple[str, ...]:
    """A vLLM with these settings."""
    return (
        *("--env-dir", str(real_install.vllm()), *options(real_install.vllm_env()), "--dtype", "bfloat16"),
        *("--mtp-steps", str(steps), "--max-running", str(running)),
        *("--", "--enforce-eager", "--no-enable-prefix-caching", "--max-num-batched-tokens", str(batched)),
    )


@dataclass
class Tuned:
    """A server with the settings that are worst for three at once."""

    tokpit: Tokpit
    port: int
    counter: str
    """The engine's own count of generated tokens."""

    @property
    def target(self) -> str:
        """How commands name it."""
        return f"real:{self.port}"

    def rows(self) -> list[dict[str, Any]]:
        """What runs on its port; other servers of the machine are none of its business."""
        return [row for row in self.tokpit.json("ps", "real")["servers"] if row["port"] == self.port]

    def sweep(self) -> dict[int, float]:
        """A sweep of its own: tok/s by concurrency; the engine counted the tokens too."""
        before = counter(self.port, self.counter)
        run = self.tokpit.json("sweep", self.target, *WORKLOAD)
        assert [(level["ok"], level["err"]) for level in run["levels"]] == [(6, 0), (6, 0)], run
        assert counter(self.port, self.counter) - before >= 2 * 6 * 64
        return {level["concurrency"]: level["output_tps"] for level in run["levels"]}


@contextlib.contextmanager
def served(tokpit: Tokpit, engine: str, count: str, *words: str) -> Iterator[Tuned]:
    """Launch it; stop what has the port at the end."""
    port = free_port()
    model = str(real_install.model("hybrid"))
    common = ("--port", str(port), "--model", model, "--served-name", "hybrid", "--context", "2048")
    launched = tokpit.run("launch", "real", engine, "--json", "--yes", *common, "--listen", "127.0.0.1", *words)
    assert launched.returncode == 0, launched.stderr[-3000:]
    made = Tuned(tokpit, port, count)
    try:
        yield made
    finally:
        for row in made.rows():
            tokpit.run("stop", f"real/{row['pid']}", "--yes", "--term-wait", "20")


def tune(tuned: Tuned, *vary: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plan and outcome of an experiment, after which the first server answers as it did before."""
    tokpit = tuned.tokpit
    (before,) = tuned.rows()
    asked = ("tune", tuned.target, *(word for setting in vary for word in ("--vary", setting)), *WORKLOAD)
    plan = json.loads(tokpit.run(*asked, "--dry-run", "--json").stdout)
    assert tuned.rows() == [before], "a plan touches nothing"
    done = tokpit.run(*asked, "--yes", "--json", "--report", str(tokpit.folder / "report.md"))
    assert done.returncode == 0, done.stderr[-3000:]
    tuning = json.loads(done.stdout)
    print((tokpit.folder / "report.md").read_text())
    assert {trial["status"] for trial in tuning["trials"]} <= {"measured", "cut"}, tuning["trials"]
    (after,) = tuned.rows()
    assert (after["command"], after["port"]) == (before["command"], tuned.port)
    assert after["pid"] != before["pid"]
    assert not group(before["pgid"])
    assert tuned.sweep()[3] > 0, "the first server is back, and serves"
    return plan, tuning


def winner_of(tuning: dict[str, Any]) -> dict[str, Any]:
    """The winner, which was measured again; so was the first server."""
    winner = next(trial for trial in tuning["trials"] if trial["number"] == tuning["winner"])
    again = [trial for trial in tuning["trials"] if trial["role"] == "confirm"]
    assert [trial["choice"] for trial in again] == [winner["choice"]]
    assert not set(again[0]["runs"]) & set(winner["runs"]), "by a sweep of its own"
    roles = [trial["role"] for trial in tuning["trials"]]
    assert (roles.count("first"), roles.count("last")) == (1, 1)
    choice: dict[str, Any] = winner["choice"]
    return choice


def test_sglang_over_slots_and_cap_and_back(tokpit: Tokpit, sshd: Sshd) -> None:
    with served(tokpit, "sglang", "sglang:generation_tokens_total", *SGLANG) as tuned:
        plan, tuning = tune(tuned, f"state_slots={SLOTS_PER_REQUEST},9", "max_running=1,3")
        assert (plan["candidates"], plan["to_try"]) == (4, 2)
        same = [reason for _, code, reason in plan["left_out"] if code == "same"]
        assert len(same) == 2, plan["left_out"]
        assert all("1 request runs at once with either" in reason for reason in same)
        assert winner_of(tuning) == {"state_slots": 9, "max_running": 3}, "three at once beat one"
        assert tuning["restarts"] == 3, "the candidate, the same again without a start, and the first server"


def test_sglang_over_steps_slots_and_cap_and_back(tokpit: Tokpit, sshd: Sshd) -> None:
    with served(tokpit, "sglang", "sglang:generation_tokens_total", *SGLANG) as tuned:
        plan, tuning = tune(tuned, "mtp_steps=1,3", f"state_slots={SLOTS_PER_REQUEST},9", "max_running=1,3")
        assert plan["candidates"] == 8
        winner = winner_of(tuning)
        assert (winner["state_slots"], winner["max_running"]) == (9, 3), "three at once beat one"
        assert tuning["restarts"] < plan["candidates"], "candidates were ruled out"


def test_vllm_over_cap_steps_and_batched_tokens_and_back(tokpit: Tokpit, sshd: Sshd) -> None:
    count = "vllm:generation_tokens_total"
    with served(tokpit, "vllm", count, *vllm_words(steps=3, running=1, batched=2048)) as tuned:
        plan, tuning = tune(tuned, "max_running=1,3", "mtp_steps=1,3", "batched_tokens=1024,2048")
        assert plan["candidates"] == 8
        winner = winner_of(tuning)
        assert winner["max_running"] == 3, "three at once beat one"
        first = tuned.sweep()
    best = vllm_words(steps=winner["spec_steps"], running=3, batched=winner["chunked_prefill"])
    with served(tokpit, "vllm", count, *best) as launched:
        assert max(launched.sweep().values()) > max(first.values()), "the winner wins outside the experiment too"

"""An experiment on a real SGLang: draft steps x state slots x running cap, the winner measured again, the way back."""

from __future__ import annotations

import json
from typing import Any

import pytest
import real_install
from real_line import Tokpit, free_port, group, options

from sshd import Sshd

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]
SLOTS_PER_REQUEST = 3
"""Of the no_buffer strategy."""


def rows(tokpit: Tokpit, port: int) -> list[dict[str, Any]]:
    """What runs on the port of this test; other servers of the machine are none of its business."""
    return [row for row in tokpit.json("ps", "real")["servers"] if row["port"] == port]


def test_sglang_over_steps_slots_and_cap_and_back(tokpit: Tokpit, sshd: Sshd) -> None:
    port = free_port()
    target = f"real:{port}"
    words = (
        *("--env-dir", str(real_install.sglang()), *options(real_install.sglang_env()), "--port", str(port)),
        *("--model", str(real_install.model("hybrid")), "--served-name", "hybrid", "--context", "2048"),
        *("--mtp-steps", "3", "--mamba-strategy", "no_buffer", "--dtype", "bfloat16", "--listen", "127.0.0.1"),
        *("--state-slots", str(SLOTS_PER_REQUEST), "--max-running", "1"),
        *("--", *real_install.SGLANG_ON_CPU, "--disable-overlap-schedule"),
    )
    launched = tokpit.run("launch", "real", "sglang", "--json", "--yes", *words)
    assert launched.returncode == 0, launched.stderr[-3000:]
    try:
        (before,) = rows(tokpit, port)
        asked = (
            *("tune", target, "--vary", "mtp_steps=1,3", "--vary", f"state_slots={SLOTS_PER_REQUEST},9"),
            *("--vary", "max_running=1,3", "-c", "1,3", "-n", "6", "--max-tokens", "64"),
        )
        plan = json.loads(tokpit.run(*asked, "--dry-run", "--json").stdout)
        assert plan["candidates"] == 8
        same = [reason for _, code, reason in plan["left_out"] if code == "same"]
        assert any("1 requests run at once with either" in reason for reason in same), plan["left_out"]
        done = tokpit.run(*asked, "--yes", "--json", "--report", str(tokpit.folder / "report.md"))
        assert done.returncode == 0, done.stderr[-3000:]
        tuning = json.loads(done.stdout)
        print((tokpit.folder / "report.md").read_text())
        by_role: dict[str, list[dict[str, object]]] = {}
        for trial in tuning["trials"]:
            by_role.setdefault(trial["role"], []).append(trial)
        assert {trial["status"] for trial in tuning["trials"]} <= {"measured", "cut"}, tuning["trials"]
        winner = next(trial for trial in tuning["trials"] if trial["number"] == tuning["winner"])
        assert (winner["choice"]["state_slots"], winner["choice"]["max_running"]) == (9, 3), "three at once beat one"
        assert [trial["choice"] for trial in by_role["confirm"]] == [winner["choice"]], "by a sweep of its own"
        assert len(by_role["first"]) == len(by_role["last"]) == 1
        assert tuning["restarts"] < plan["candidates"], "candidates were ruled out"
        (after,) = rows(tokpit, port)
        assert (after["command"], after["port"]) == (before["command"], port)
        assert after["pid"] != before["pid"]
        assert not group(before["pgid"])
    finally:
        for row in rows(tokpit, port):
            tokpit.run("stop", f"real/{row['pid']}", "--yes", "--term-wait", "20")

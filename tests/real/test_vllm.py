"""A real vLLM, launched and driven by tokpit over a real sshd: a hybrid model with draft steps of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import real_install
import real_model
import real_serving as check
from real_line import Tokpit, options

from sshd import Sshd

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def served(tokpit: Tokpit, sshd: Sshd) -> Iterator[check.Served]:
    words = (
        *("--env-dir", str(real_install.vllm()), *options(real_install.vllm_env())),
        *("--model", str(real_install.model("hybrid")), "--served-name", "hybrid", "--context", "2048"),
        *("--max-running", str(check.CAP), "--mtp-steps", str(check.STEPS), "--dtype", "bfloat16"),
        *("--listen", "127.0.0.1"),
        *("--", "--enforce-eager", "--no-enable-prefix-caching"),
    )
    count = "vllm:generation_tokens_total"
    with check.serve(tokpit, sshd, "vllm", real_install.VLLM, count, *words) as made:
        yield made


def test_the_launch_survives_a_lost_link_and_tells_its_steps(served: check.Served) -> None:
    check.milestones(served)


def test_ps_tells_what_runs_from_its_own_command_line(served: check.Served) -> None:
    check.process_table(served)


def test_a_sweep_past_the_cap_is_seen_live_in_log_and_metrics(served: check.Served) -> None:
    watched, run = check.sweep_past_the_cap(served)
    check.plateau(served, run, "QUEUE_LIMITED_BY_MAX_RUNNING", f"max_running_requests = {check.CAP}", "not by compute")
    check.acceptance([level["result"]["accept_len"] for level in run["levels"]], real_model.accepted_length())
    drafts = [f["accept_len"] for f in watched if f.get("gen_tps", 0) > 0 and f.get("accept_len", 0) > 0]
    check.acceptance(drafts, real_model.accepted_length())
    assert any(f.get("kv_usage", 0) > 0 for f in watched)
    assert all("state_usage" not in f for f in watched), "vLLM tells nothing of its state slots"


def test_the_log_of_the_run_is_understood(served: check.Served) -> None:
    records = served.tokpit.records(served.log)
    stats = [r["fields"] for r in records if r["kind"] == "stats"]
    assert 0 < max(fields["running_reqs"] for fields in stats) <= check.CAP
    assert max(fields["gen_tps"] for fields in stats) > 0
    drafts = [r["fields"]["accept_len"] for r in records if r["kind"] == "spec"]
    check.acceptance(drafts, real_model.accepted_length())


def test_load_from_here_and_from_the_host_agree(served: check.Served) -> None:
    check.here_and_there(served)


def test_logs_go_on_after_a_lost_link_without_a_gap(served: check.Served) -> None:
    check.logs_resume(served)


def test_ctrl_c_in_a_sweep_keeps_what_was_measured(served: check.Served) -> None:
    check.interrupted_sweep(served)


def test_relaunch_without_drafts(served: check.Served) -> None:
    check.relaunch(served, "--mtp-steps", "0")
    settings = served.rows()[0]["settings"]
    assert "spec_steps" not in settings
    assert settings["prefix_cache"] is False
    without = check.sweep(served, *check.LEVELS[:2])
    check.compared(served, served.runs[0], without["id"], *check.LEVELS[:2])


def test_a_killed_engine_core_ends_the_server_for_who_watches(served: check.Served) -> None:
    children = served.rows()[0]["children"]
    core = next(pid for pid in children if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"VLLM::EngineCore"))
    check.told_why_it_ended(served, core)

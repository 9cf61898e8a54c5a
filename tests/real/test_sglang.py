"""A real SGLang, launched and driven by tokpit over a real sshd: a hybrid model with drafts and few state slots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import real_install
import real_model
import real_serving as check
from real_line import Stream, Tokpit, options

from sshd import Sshd

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]
SLOTS_PER_REQUEST = 3


@pytest.fixture(scope="module")
def served(tokpit: Tokpit, sshd: Sshd) -> Iterator[check.Served]:
    words = (
        *("--env-dir", str(real_install.sglang()), *options(real_install.sglang_env())),
        *("--model", str(real_install.model("hybrid")), "--served-name", "hybrid", "--context", "2048"),
        *("--mtp-steps", str(check.STEPS), "--mamba-strategy", "no_buffer", "--dtype", "bfloat16"),
        *("--listen", "127.0.0.1"),
        *("--state-slots", str(check.CAP * SLOTS_PER_REQUEST)),
        *("--", *real_install.SGLANG_ON_CPU, "--disable-overlap-schedule"),
    )
    count = "sglang:generation_tokens_total"
    with check.serve(tokpit, sshd, "sglang", real_install.SGLANG, count, *words) as made:
        yield made


def test_the_launch_survives_a_lost_link_and_tells_its_steps(served: check.Served) -> None:
    check.milestones(served)
    assert any("3 requests will run at once" in warning for warning in served.made["warnings"]), served.made["warnings"]


def test_ps_tells_what_runs_from_its_own_command_line(served: check.Served) -> None:
    check.process_table(served)


def test_a_sweep_past_the_cap_is_seen_live_in_log_and_metrics(served: check.Served) -> None:
    watched, run = check.sweep_past_the_cap(served)
    seen = {(f.get("running_reqs"), f.get("queue_reqs")) for f in watched}
    assert {(check.CAP, c - check.CAP) for c in check.LEVELS if c > check.CAP} <= seen, "queued = C - cap was not seen"
    slots = check.CAP * SLOTS_PER_REQUEST
    arithmetic = f"floor({slots} state slots / {SLOTS_PER_REQUEST} per request) = {check.CAP}"
    check.plateau(served, run, "QUEUE_LIMITED_BY_STATE_SLOTS", arithmetic, "not by compute")
    check.acceptance([level["result"]["accept_len"] for level in run["levels"]], real_model.accepted_length())
    drafts = [f["accept_len"] for f in watched if f.get("gen_tps", 0) > 0 and f.get("accept_len", 0) > 0]
    check.acceptance(drafts, real_model.accepted_length())
    # Two of the three slots that a request reserves are in use while it runs.
    assert 0.6 < max(f.get("state_usage", 0) for f in watched) < 0.7
    assert {f.get("max_running_reqs") for f in watched[3:]} == {check.CAP}


def test_the_log_of_the_run_is_understood(served: check.Served) -> None:
    records = served.tokpit.records(served.log)
    decode = [r["fields"] for r in records if r["kind"] == "decode_batch"]
    assert max(fields["running_reqs"] for fields in decode) == check.CAP
    assert max(fields["queue_reqs"] for fields in decode) > 0
    assert max(fields["mamba_num"] for fields in decode) == 2 * check.CAP
    check.acceptance([fields["accept_len"] for fields in decode], real_model.accepted_length())
    (cap,) = [r["fields"] for r in records if r["kind"] == "milestone.mamba_cap"]
    assert (cap["max_running_requests"], cap["slots_per_request"]) == (check.CAP, SLOTS_PER_REQUEST)


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
    assert settings["state_slots"] == check.CAP * SLOTS_PER_REQUEST


def test_stop_lets_an_open_stream_end_and_leaves_nothing(served: check.Served) -> None:
    stream = Stream(served.port, "hybrid", 1000)
    stream.until_tokens()
    assert not stream.ended
    check.stopped(served)
    stream.join(60)
    assert stream.ended, stream.text[-500:]

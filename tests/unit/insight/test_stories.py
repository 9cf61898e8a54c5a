"""Two field sessions retold in figures: each line of what the figures say, none of the wrong conclusions."""

from __future__ import annotations

import pytest

from insight_logs import decode, diagnosed
from insight_tools import codes, findings, one, sweep
from tokpit.insight.facts import parse_facts
from tokpit.ops.diagnose.run import Gathered, judge

_FIRST = {
    "max_running_requests": 9,
    "state_slots": 48,
    "accept_len": 3.2,
    "weights_gb": 54,
    "gpu": "RTX PRO 6000 Blackwell",
    "baseline_tps": 26.7,
    "hicache_gb": 150,
    "mem_available_gb": 200,
    "engine_version": "0.5.11",
}
_SECOND = {
    "weights_gb": 54,
    "gpu": "NVIDIA RTX A6000",
    "tp": 2,
    "max_running_requests": 1,
    "context_len": "19K",
    "remembered_tps": 70,
    "engine_version": "0.5.11",
}


def first() -> tuple:
    got = Gathered()
    got.sweeps.append(("sweep", sweep()))
    got.facts = parse_facts({name: str(value) for name, value in _FIRST.items()})[0]
    return judge(got).findings


def second() -> tuple:
    lines = [
        decode(
            60 + 2 * i,
            1,
            tps,
            tokens=400 + 70 * i,
            usage=0.01,
            mamba=(3 + i % 2, (0.43, 0.57)[i % 2]),
            spec=(1.75, 0.75),
        )
        for i, tps in enumerate((35.2, 36.1, 39.8, 38.4, 35.9))
    ]
    return diagnosed(lines, **_SECOND)


def test_sweep_plateau_is_the_cap_from_state_slots_and_the_host_cache_adds_none() -> None:
    found = first()
    cap = one(found, "QUEUE_LIMITED_BY_STATE_SLOTS")
    assert "floor(48 state slots / 5 per request) = 9" in cap.claim
    assert "the host cache add no running slots" in cap.claim
    assert "not by compute" in cap.claim
    assert not [f for f in found if "saturat" in f.claim]
    assert found.index(cap) <= 1


def test_sweep_host_cache_of_twice_the_size_does_not_fit() -> None:
    cache = one(first(), "HICACHE_DOUBLED_ON_HYBRID")
    assert "300.0 GB" in cache.claim
    assert "200.0 GB" in cache.claim
    assert "2 pools" in cache.arithmetic


def test_sweep_speculation_speed_up_is_the_measured_one() -> None:
    cost = one(first(), "SPEC_STEP_COST")
    assert "2.3 times as fast, not 3.2 times" in cost.claim
    assert "52 ms where a plain one takes 37 ms" in cost.claim
    assert cost.figures["step_ratio"] == pytest.approx(1.40, abs=0.01)


def test_sweep_single_stream_against_the_memory_ceiling() -> None:
    roof = one(first(), "ROOFLINE")
    assert "33 steps/s (30 ms each)" in roof.claim
    assert "26.7 tok/s without speculation is 80% of it" in roof.claim
    assert "the ceiling is 106 tok/s, and 61.2 is 58% of it" in roof.claim


def test_gap_remembered_rate_came_from_another_configuration() -> None:
    gap = one(second(), "SPEC_TOO_SHORT")
    assert "28.4" in gap.claim
    assert "at least 2.5 at this step ceiling" in gap.claim
    assert "at most 11 GB a GPU" in gap.claim
    assert "another configuration" in gap.claim
    assert 0.71 <= gap.figures["share_of_ceiling"] <= 0.82
    assert "1.75, 2.31, 2.73, 3.05 for 1 to 4 draft tokens" in gap.arithmetic


def test_gap_asks_for_unit_journal_old_logs_and_versions_first() -> None:
    action = one(second(), "SPEC_TOO_SHORT").next_action
    for place in ("systemctl cat", "journal", "server_args=", "versions", "shell history"):
        assert place in action


def test_gap_state_usage_is_one_requests_own_slots() -> None:
    found = second()
    slots = one(found, "STATE_SLOTS_OF_ONE_REQUEST")
    assert "0.43 = 3/7 and 0.57 = 4/7" in slots.arithmetic
    assert "floor(7 / 5 per request) = 1" in slots.arithmetic
    assert "not pressure" in slots.claim
    assert "fixed size, whatever its length" in slots.claim


def test_gap_capacity_is_a_finding_of_its_own_and_not_the_reason_of_the_speed() -> None:
    found = second()
    one_at_a_time = one(found, "ONE_AT_A_TIME")
    assert "1 running request, and a context of 19,000 tokens" in one_at_a_time.claim
    assert "not the speed of one stream" in one_at_a_time.claim
    assert "floor(7 state slots / 5 per request) = 1" in one_at_a_time.arithmetic
    assert codes(found)[0] == "SPEC_TOO_SHORT"


def test_gap_follows_from_facts_alone() -> None:
    found = findings(accept_len=1.75, accept_rate="75%", single_tps=40, state_usage="0.43,0.57", **_SECOND)
    assert "80%" in one(found, "SPEC_TOO_SHORT").claim
    assert "3/7 and 0.57 = 4/7" in one(found, "STATE_SLOTS_OF_ONE_REQUEST").arithmetic

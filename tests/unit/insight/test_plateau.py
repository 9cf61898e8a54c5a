from __future__ import annotations

import msgspec
import pytest

from insight_tools import codes, engine_sweep, findings, one, sweep
from tokpit.insight.capacity import running_cap
from tokpit.insight.facts import parse_facts

LEVELS = (1, 4, 8, 16, 32, 48, 64)


def test_story_plateau_is_the_cap_of_nine_and_not_compute() -> None:
    found = findings(sweep(), max_running_requests=9, state_slots=48, slots_per_request=5)
    cap = one(found, "QUEUE_LIMITED_BY_STATE_SLOTS")
    assert "max_running_requests = 9" in cap.claim
    assert "not by compute" in cap.claim
    assert "7 at C=16, 23 at C=32 and 39 at C=48" in cap.claim
    assert "floor(48 state slots / 5 per request) = 9" in cap.arithmetic
    assert "22.2 s, 24 s, 23.5 s, 22.5 s" in cap.arithmetic
    assert "C=8" in cap.next_action
    assert cap.levels == (16, 32, 48)
    assert "PLATEAU_COMPUTE" not in codes(found)


def test_story_latency_operating_point_and_last_wave() -> None:
    found = findings(sweep(), max_running_requests=9)
    latency = one(found, "LATENCY_BY_LITTLE")
    assert "120 s at C=48" in latency.claim
    assert "98 s is queueing" in latency.claim
    assert "2.77 s at C=8 and 2.5 s at C=48) is not a latency" in latency.claim
    assert "= 22 s" in latency.arithmetic
    point = one(found, "OPERATING_POINT")
    assert point.levels == (8,)
    assert "22 s a request" in point.claim
    assert "90.4%" in point.arithmetic
    wave = one(found, "LAST_WAVE")
    assert "6.4% more throughput from C=16 to C=48" in wave.claim
    assert "flat at about 416 tok/s" in wave.claim
    assert "3 full waves and one of 5" in wave.arithmetic
    assert "10 full waves and one of 6" in wave.arithmetic


def test_cap_is_inferred_where_nobody_gives_it_and_said_to_be_likely() -> None:
    cap = one(findings(sweep()), "QUEUE_LIMITED_BY_CAP")
    assert cap.confidence == "likely"
    assert cap.figures["cap"] == 9


def test_a_cap_that_was_seen_to_hold_decides_where_times_are_noisy() -> None:
    """A busy machine bends the rates by a third; that 3 ran and the others waited at each level is not bent."""
    rows = ((1, 9, 18.0, 48.0), (3, 9, 4.3, 202.0), (6, 9, 4.2, 206.0), (9, 9, 6.0, 145.0))
    points = tuple(
        msgspec.structs.replace(p, running=min(3, p.concurrency), queued=max(0, p.concurrency - 3)) for p in sweep(rows)
    )
    found = one(findings(points, state_slots=9, slots_per_request=3), "QUEUE_LIMITED_BY_STATE_SLOTS")
    assert "floor(9 state slots / 3 per request) = 3" in found.arithmetic
    assert "3 at C=6 and 6 at C=9" in found.claim
    assert "too noisy to judge by" in found.arithmetic
    seen = one(findings(points, engine="sglang", state_slots=9, slot_choices="1,3,4,5"), "QUEUE_LIMITED_BY_STATE_SLOTS")
    assert "floor(9 state slots / 3 per request) = 3" in seen.arithmetic
    assert "never ran more than 3 at once" in seen.arithmetic
    free = tuple(msgspec.structs.replace(p, running=p.concurrency, queued=0) for p in points)
    assert "QUEUE_LIMITED_BY_STATE_SLOTS" not in codes(findings(free, state_slots=9, slots_per_request=3))


def test_slots_a_request_follow_from_the_logged_cap() -> None:
    facts, _ = parse_facts({"state_slots": "23", "max_running_requests": "5", "slot_choices": "1,3,4,5"})
    cap = running_cap(facts)
    assert cap is not None
    assert (cap.by, cap.per_request) == ("state slots", 4)


def test_smallest_pool_binds() -> None:
    facts, _ = parse_facts(
        {
            "state_slots": "300",
            "slots_per_request": "5",
            "kv_tokens": "90K",
            "input_tokens": "2000",
            "requested_output": "1000",
            "configured_max_running": "64",
        }
    )
    cap = running_cap(facts)
    assert cap is not None
    assert (cap.value, cap.by) == (30, "kv tokens")


def test_growing_step_is_compute_even_with_a_cap_far_above() -> None:
    found = findings(engine_sweep(cap=999, fixed_s=10, each_s=1.2, levels=LEVELS), max_running_requests=256)
    compute = one(found, "PLATEAU_COMPUTE")
    assert compute.severity == "info"
    assert not [code for code in codes(found) if code.startswith("QUEUE_LIMITED")]


def test_flat_long_before_the_cap_is_not_the_cap() -> None:
    found = findings(engine_sweep(cap=40, fixed_s=4, each_s=2, levels=LEVELS), max_running_requests=40)
    assert not [code for code in codes(found) if code.startswith("QUEUE_LIMITED")]


def test_cap_that_the_curve_contradicts_is_not_believed() -> None:
    found = findings(engine_sweep(cap=999, fixed_s=10, each_s=0.02, levels=LEVELS), max_running_requests=8)
    assert found == ()


def test_rising_sweep_has_no_finding() -> None:
    assert findings(engine_sweep(cap=999, fixed_s=10, each_s=0.05, levels=LEVELS)) == ()


def test_plateau_that_nothing_explains_asks_for_the_log() -> None:
    found = findings(sweep([(8, 16, 60.0, 250.0), (16, 32, 118.0, 255.0), (32, 64, 236.0, 256.0)]))
    assert "max_running_requests" in one(found, "PLATEAU_UNEXPLAINED").next_action


def test_failed_requests_void_their_levels_and_explain_the_plateau() -> None:
    points = list(engine_sweep(cap=999, fixed_s=10, each_s=0.4, levels=(1, 4, 8)))
    points.append(msgspec.structs.replace(points[-1], concurrency=64, ok=20, err=108))
    found = findings(tuple(points))
    rejected = one(found, "REJECTED")
    assert rejected.levels == (64,)
    assert "108 of 128" in rejected.claim
    assert "84%" in rejected.claim
    assert not [code for code in codes(found) if code.startswith(("PLATEAU", "QUEUE"))]


def test_client_that_is_the_limit_is_named() -> None:
    points = list(engine_sweep(cap=8, fixed_s=10, each_s=0.4, levels=(1, 4, 8, 32)))
    points[-1] = msgspec.structs.replace(
        points[-1], failed_checks=("CLIENT_BOUND",), sentences=("the client used 100% of a core",)
    )
    found = findings(tuple(points))
    assert "error" in {finding.severity for finding in found if finding.code == "CLIENT_BOUND"}


def test_throttled_levels_explain_a_plateau() -> None:
    points = list(engine_sweep(cap=8, fixed_s=10, each_s=0.4, levels=(1, 4, 8, 32)))
    points[-1] = msgspec.structs.replace(points[-1], throttled=("hw-thermal",))
    assert "hw-thermal" in one(findings(tuple(points)), "GPU_THROTTLED").claim


def test_scheduler_that_holds_requests_back_below_the_cap_is_seen() -> None:
    points = tuple(
        msgspec.structs.replace(p, running=8.0, queued=float(p.concurrency - 8)) if p.concurrency > 8 else p
        for p in engine_sweep(cap=8, fixed_s=10, each_s=0.3, levels=(1, 4, 8, 16, 32))
    )
    cap = one(findings(points, max_running_requests=64), "QUEUE_LIMITED_BY_CAP")
    assert "scheduler holds requests back" in cap.claim


def test_cliff_and_zero_tokens_are_findings() -> None:
    assert one(findings(sweep([(1, 8, 90, 48), (4, 8, 30, 131), (8, 16, 140, 52)])), "SWEEP_CLIFF").levels == (4, 8)
    assert one(findings(sweep([(4, 4, 9.1, 0.0)])), "ZERO_TOKENS_SUSPECT").severity == "error"


def test_facts_take_units_and_other_spellings() -> None:
    facts, unknown = parse_facts(
        {"context": "19K", "accept-rate": "72%", "weights_gb": "50 GiB", "per_position": "0.8,0.6", "colour": "red"}
    )
    assert (facts.context_len, facts.accept_rate, facts.per_position) == (19000, 0.72, (0.8, 0.6))
    assert facts.weights_gb == pytest.approx(53.687, abs=0.001)
    assert unknown == ("colour",)
    with pytest.raises(ValueError, match="accept_len is a number"):
        parse_facts({"accept_len": "long"})


def test_first_level_that_was_measured_cold() -> None:
    found = findings(sweep([(1, 8, 130.0, 31.0), (4, 8, 20.0, 190.0), (8, 16, 22.0, 330.0)]), requested_output=500)
    assert one(found, "COLD_START").levels == (1,)


def test_level_that_ended_at_a_time_limit() -> None:
    points = list(engine_sweep(cap=999, fixed_s=10, each_s=0.4, levels=(1, 4, 8)))
    points[-1] = msgspec.structs.replace(points[-1], ok=5, err=11, elapsed_s=600.2)
    assert one(findings(tuple(points)), "CLIENT_TIMEOUT").levels == (8,)


def test_measured_latency_that_contradicts_the_rate() -> None:
    points = list(engine_sweep(cap=999, fixed_s=10, each_s=0.1, levels=(1, 4, 16)))
    points[-1] = msgspec.structs.replace(points[-1], e2e_mean_s=1.2)
    assert one(findings(tuple(points)), "LITTLE").levels == (16,)


def test_cap_of_about_a_hundred_may_be_the_clients() -> None:
    points = engine_sweep(cap=100, fixed_s=10, each_s=0.02, levels=(8, 16, 32, 64, 96, 200, 400, 600))
    assert one(findings(points), "CLIENT_LIMIT").confidence == "possible"


def test_cap_is_recognised_right_above_it_where_few_waves_spread_the_times() -> None:
    points = engine_sweep(cap=9, fixed_s=14, each_s=0.7, levels=(1, 4, 8, 10, 12, 16, 24))
    assert one(findings(points, max_running_requests=9), "QUEUE_LIMITED_BY_CAP").levels == (10, 12, 16, 24)


def test_levels_above_the_cap_only_are_never_advised() -> None:
    points = engine_sweep(cap=9, fixed_s=14, each_s=0.7, levels=(18, 36, 72))
    found = findings(points, max_running_requests=9)
    assert "Run at C=9" in one(found, "QUEUE_LIMITED_BY_CAP").next_action
    assert "OPERATING_POINT" not in codes(found)

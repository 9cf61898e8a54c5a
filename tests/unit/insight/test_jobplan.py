"""Plans of long jobs: the first story's table is the exam, a simulated engine the truth."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insight_tools import engine_sweep, sweep
from tokpit.insight.facts import Facts
from tokpit.insight.jobplan import Job, Lever, Measured, Plan, make_plan
from tokpit.insight.rates import Span, rates

STORY = Job(requests=902_000, output_tokens=2000)
KNOWN = Facts(max_running_requests=9, state_slots=48, slots_per_request=5)


def plan(job: Job = STORY, facts: Facts = KNOWN, *others: Measured) -> Plan:
    found = make_plan(job, [Measured(label="story", points=sweep(), facts=facts), *others])
    assert found is not None
    return found


def lever(found: Plan, name: str) -> Lever:
    return next(one for one in found.levers if one.name == name)


def test_the_story_takes_49_days_on_one_gpu_whether_or_not_the_cap_is_told() -> None:
    for facts in (KNOWN, Facts()):
        found = plan(facts=facts)
        assert found.chosen.rate.running == 9
        assert found.chosen.rate.concurrency == 16
        assert found.chosen.rate.levels == (16, 32, 48)
        assert found.chosen.rate.tps.mid == pytest.approx(425, rel=0.01)  # not 409: its last wave is not the rate
        assert found.chosen.hours.mid == pytest.approx(902_000 * 2000 / 425 / 3600, rel=0.01)
        assert found.chosen.hours.low is not None
        assert (
            found.chosen.hours.low < found.chosen.hours.mid < found.chosen.hours.worst < 1.03 * found.chosen.hours.mid
        )


def test_levels_above_the_cap_buy_nothing_and_say_so() -> None:
    found = plan()
    past = [one for one in found.levers if one.name == "concurrency" and one.saves_h == 0]
    assert "32 and 48" in past[0].change
    up = lever(found, "concurrency")
    assert up.saves_h == pytest.approx(1355 - 1178, abs=15)


def test_the_cap_is_a_prediction_and_names_what_it_needs() -> None:
    cap = lever(plan(), "cap")
    assert cap.basis == "predicted"
    assert "90 state slots (5 a request)" in cap.note
    assert cap.saves_h is not None
    assert cap.saves_h > 300


def test_hosts_for_a_deadline_use_the_slow_end() -> None:
    found = plan(msgspec.structs.replace(STORY, within_h=168.0, price=2.5))
    assert found.hosts_needed == 8
    assert found.chosen.cost is not None
    assert found.chosen.cost.mid == pytest.approx(found.chosen.gpu_hours.mid * 2.5)
    assert plan(msgspec.structs.replace(STORY, within_h=found.chosen.hours.mid)).hosts_needed == 2


def test_hosts_divide_the_time_and_not_the_cost() -> None:
    job = msgspec.structs.replace(STORY, price=2.0)
    one, four = plan(job), plan(msgspec.structs.replace(job, hosts=4))
    assert four.chosen.hours.mid == pytest.approx(one.chosen.hours.mid / 4, rel=1e-3)
    assert one.chosen.cost is not None
    assert four.chosen.cost is not None
    assert four.chosen.cost.mid == pytest.approx(one.chosen.cost.mid, rel=1e-3)


def test_other_flags_are_compared_by_what_was_measured() -> None:
    faster = tuple(
        msgspec.structs.replace(p, output_tps=1.5 * p.output_tps, elapsed_s=p.elapsed_s / 1.5) for p in sweep()
    )
    other = Measured(label="mtp 3", points=faster, facts=KNOWN, settings={"spec_steps": "3"})
    flags = lever(plan(STORY, KNOWN, other), "flags")
    assert "+50% tok/s" in flags.change
    assert "spec_steps not set -> 3" in flags.change
    same = lever(plan(STORY, KNOWN, Measured(label="same", points=sweep(), facts=KNOWN)), "flags")
    assert "no difference is shown" in same.note


def test_a_longer_job_is_told_and_levels_that_no_longer_fit_are_left_out() -> None:
    found = plan(facts=msgspec.structs.replace(KNOWN, kv_tokens=20_000, input_tokens=500.0))
    assert found.chosen.rate.running == 8  # floor(20,000 / 2,500)
    assert any("20,000 KV tokens / 2,500 per request" in note for note in found.notes)
    assert any("1,024 output tokens" in note for note in found.notes)


def test_failed_requests_are_done_again() -> None:
    points = tuple(msgspec.structs.replace(p, ok=p.ok // 2, err=p.ok // 2) for p in sweep())
    found = make_plan(STORY, [Measured(label="half", points=points)])
    assert found is not None
    assert found.chosen.rate.error_share == 0.5
    assert found.chosen.rate.good_tps.mid == pytest.approx(found.chosen.rate.tps.mid / 2)
    assert any("failed" in note for note in found.notes)


def test_one_level_has_no_interval_and_nothing_measured_has_no_plan() -> None:
    found = make_plan(STORY, [Measured(label="one", points=sweep()[2:3])])
    assert found is not None
    assert found.chosen.hours.low is None
    assert any("measured once" in note for note in found.notes)
    assert make_plan(STORY, [Measured(label="none", points=())]) is None


def test_a_steady_window_and_its_interval_are_taken_as_measured() -> None:
    point = msgspec.structs.replace(sweep()[2], steady_tps=380.0, steady_ci=12.0)
    found = rates([point])[0]
    assert found.tps == Span(380.0, 368.0, 392.0)
    assert found.basis == "steady window"


@settings(deadline=None, max_examples=15)
@given(
    cap=st.integers(3, 40),
    each_s=st.floats(0.05, 1.0),
    seed=st.integers(0, 10_000),
    requests=st.integers(20_000, 2_000_000),
)
def test_the_time_of_a_simulated_job_is_inside_the_plan(cap: int, each_s: float, seed: int, requests: int) -> None:
    points = engine_sweep(cap=cap, fixed_s=12.0, each_s=each_s, levels=(1, 2, 4, 8, 16, 32, 64), noise=0.01, seed=seed)
    truth_h = requests / cap * (12.0 + each_s * cap) / 3600
    # Without the cap a level above it is a whole run with an unknown last wave, which can only be slower.
    for facts, off in ((Facts(max_running_requests=cap), 0.05), (Facts(), 0.12)):
        found = make_plan(
            Job(requests=requests, output_tokens=600), [Measured(label="sim", points=points, facts=facts)]
        )
        assert found is not None
        assert found.chosen.hours.mid == pytest.approx(truth_h, rel=off)

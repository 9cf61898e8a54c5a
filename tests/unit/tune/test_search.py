"""What is left out and why, what is chosen, and that bounds hold on a machine whose truth is known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tokpit.domain.settings import Settings
from tokpit.domain.tuning import Choice, CurvePoint, LeftOut, Trial
from tokpit.errors import UsageError
from tokpit.insight.roofline import Roofline
from tokpit.tune import suggest
from tokpit.tune.choosing import ahead, front, standings, ties
from tokpit.tune.experiment import Objective
from tokpit.tune.knowledge import Cap, Knowledge
from tokpit.tune.score import Score, cannot_win, pooled, score, underway_point
from tokpit.tune.search import Search
from tokpit.tune.space import Space, key_of, read_space
from tokpit.tune.steps import Seen, Steps

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))


def curve(*pairs: tuple[int, float], **fields: float) -> tuple[CurvePoint, ...]:
    return tuple(CurvePoint(concurrency=c, tps=tps, half=0.01 * tps, **fields) for c, tps in pairs)


def cap_of(settings: Settings) -> Cap:
    slots = settings.state_slots or 48
    cap = min(slots // 5, settings.max_running or 48)
    return Cap(cap, f"{slots} slots // 5 per request = {slots // 5}")


def knowledge_of(space: Space, **changes: object) -> Knowledge:
    given: dict[str, object] = {
        "levels": (1, 8, 32), "objective": Objective(), "error_rate": 0.02, "cap_of": cap_of, "shared_prefix": False,
        "roofline": Roofline(weights_gb=54, gpus=1, bandwidth_gbps=1792),
    }  # fmt: skip
    return Knowledge(space, Settings(spec_method="mtp", spec_steps=3, state_slots=48), **{**given, **changes})  # type: ignore[arg-type]  # fields of Knowledge


def first_of(knowledge: Knowledge) -> Trial:
    return Trial(
        number=0,
        choice={axis.name: getattr(knowledge.base, axis.name) for axis in knowledge.space.starting},
        role="first",
        status="measured",
        points=curve((1, 61.0), (8, 370.0), (32, 393.0), accept_len=3.2),
        value=393.0,
        half=4.0,
    )


def test_what_the_engine_refuses_and_what_another_stands_for_is_never_started() -> None:
    space = read_space({"max_running": "4,9,48", "hicache_gb": "0,50"})
    refused = LeftOut({"max_running": 4, "hicache_gb": 50.0}, "rules", "refused by a rule")
    search = Search(knowledge_of(space), noise=0.02, patience=9, refused=[refused])
    out = {key_of(item.choice): item for item in search.left_out}
    assert out[key_of(refused.choice)] == refused
    same = out[key_of({"max_running": 48, "hicache_gb": 50.0})]
    assert same.code == "same"
    assert "9 requests run at once" in same.reason, "48 slots // 5 are 9, whatever is asked for"
    assert "host cache is not read" in out[key_of({"max_running": 9, "hicache_gb": 0.0})].reason
    assert search.waiting == 2


def test_a_ceiling_below_the_best_is_left_out_with_its_arithmetic() -> None:
    space = read_space({"max_running": "2,4,9"})
    search = Search(knowledge_of(space), noise=0.02, patience=9)
    search.tell(first_of(search.knowledge))
    assert search.next() == {"max_running": 9}
    out = {item.choice["max_running"]: item.reason for item in search.left_out}
    assert set(out) == {2, 4}
    assert "4 running x 3.20 tokens a step / 51.9 ms" in out[4]
    assert "the best has 393" in out[4]


def test_memory_that_did_not_suffice_rules_out_what_asks_for_more() -> None:
    space = read_space({"state_slots": "48,96,192", "mtp_steps": "1,3"})
    search = Search(knowledge_of(space), noise=0.02, patience=9)
    search.tell(first_of(search.knowledge))
    search.tell(
        Trial(
            number=1, choice={"state_slots": 96, "spec_steps": 1}, status="failed", code="OOM_POOLS", reason="no room"
        )
    )
    search.next()
    out = [item for item in search.left_out if item.code == "memory"]
    assert {tuple(item.choice.values()) for item in out} == {(96, 3), (192, 1), (192, 3)}
    assert "state_slots 96, mtp_steps 1, which did not fit (OOM_POOLS)" in out[0].reason


def test_a_stand_in_that_fails_hands_over_to_the_next() -> None:
    space = read_space({"hicache_gb": "0,100,400", "max_running": "9"})
    search = Search(knowledge_of(space), noise=0.02, patience=9)
    search.tell(first_of(search.knowledge))
    assert search.next() == {"hicache_gb": 400.0, "max_running": 9}
    search.tell(
        Trial(
            number=1, choice={"hicache_gb": 400.0, "max_running": 9}, status="failed", code="HOST_MEM", reason="no room"
        )
    )
    assert search.next() == {"hicache_gb": 100.0, "max_running": 9}


def test_what_a_candidate_without_room_stood_for_is_tried_by_itself() -> None:
    space = read_space({"hicache_gb": "0,400", "max_running": "9", "mtp_steps": "3,4,5"})
    search = Search(knowledge_of(space), noise=0.02, patience=9)
    search.tell(first_of(search.knowledge))
    first = search.next()
    assert first is not None
    search.tell(Trial(number=1, choice=first, status="failed", code="HOST_MEM_RESERVE", reason="no room"))
    second = search.next()
    assert second is not None
    assert second["hicache_gb"] == 0.0
    out = {key_of(item.choice): item.code for item in search.left_out}
    with_cache = {key_of(c): out.get(key_of(c)) for c in space.candidates() if c["hicache_gb"] == 400.0 and c != first}
    assert set(with_cache.values()) == {"memory"}
    without = {out.get(key_of(c)) for c in space.candidates() if c["hicache_gb"] == 0.0}
    assert "same" not in without, "the one that stands for it can never be tried"


def test_fewer_that_ran_than_the_flags_allow_bound_those_that_ask_for_as_much() -> None:
    space = read_space({"state_slots": "240,320", "mtp_steps": "3"})
    knowledge = knowledge_of(space)
    choice = {"state_slots": 240, "spec_steps": 3}
    points = (CurvePoint(concurrency=32, tps=500.0, half=5.0, running=20.0, accept_len=3.2),)
    knowledge.learn(Trial(number=1, choice=choice, status="measured", points=points))  # type: ignore[arg-type]  # a Choice
    assert knowledge.cap({"state_slots": 320, "spec_steps": 3}).value == 20


def test_bounds_hold_and_guesses_come_close_on_a_known_machine() -> None:
    def truth(drafts: int, running: int) -> float:
        length = sum(0.8**i for i in range(drafts + 1))
        return running * length / (0.037 + 0.005 * drafts + (running - 1) * (0.0008 + 0.0004 * drafts))

    steps = Steps(Roofline(weights_gb=54, gpus=1, bandwidth_gbps=1792))
    for drafts, running in ((3, 1), (3, 9), (1, 9)):
        tps = truth(drafts, running)
        length = sum(0.8**i for i in range(drafts + 1))
        steps.add(Seen(drafts=drafts, running=running, ranks=1, tps=tps, high=1.01 * tps, accept_len=length))
    for drafts in range(6):
        for running in (1, 4, 9, 16, 32):
            at_most = steps.rate_at_most(drafts, running, 1)
            assert at_most is not None
            assert at_most >= truth(drafts, running)
            guess = steps.rate(drafts, running, 1)
            assert guess == pytest.approx(truth(drafts, running), rel=0.12)


def test_a_sweep_ends_once_its_interval_cannot_reach_the_best() -> None:
    best = Score(value=400.0, half=4.0)
    slow = curve((1, 40.0))
    why = cannot_win(slow, [8, 32], 9, Objective(), 0.02, best)
    assert "9 streams of at most 40.4 tok/s give 364 tok/s at C=32" in why
    assert cannot_win(slow, [8, 32], None, Objective(), 0.02, best) == "", "32 streams of 40 could"
    assert cannot_win(curve((1, 50.0)), [8, 32], 9, Objective(), 0.02, best) == ""
    assert cannot_win(slow, [8], 9, Objective(), 0.02, Score(value=None)) == ""
    assert "one stream" in cannot_win(slow, [8], 9, Objective(kind="single"), 0.02, Score(value=60.0, half=1.0))
    assert cannot_win(slow, [8], 9, Objective(kind="goodput", slo="ttft=1s"), 0.02, best) == ""
    assert cannot_win(slow, [], 9, Objective(), 0.02, best) == "", "it has ended anyway"


def test_a_level_ends_while_it_runs_once_neither_it_nor_a_later_one_can_reach_the_best() -> None:
    best = Score(value=400.0, half=4.0)
    slow = underway_point(32, 300.0, 60.0)
    why = cannot_win((), [], 9, Objective(), 0.02, best, underway=slow)
    assert why == "300 ± 60 so far, at C=32; the best has 400 ± 4"
    wide = underway_point(32, 300.0, 97.0)
    assert cannot_win((), [], 9, Objective(), 0.02, best, underway=wide) == "", "397 is not below 396"
    assert cannot_win((), [64], None, Objective(), 0.02, best, underway=slow) == "", "64 streams could"
    assert "9 streams" in cannot_win((), [64], 9, Objective(), 0.02, best, underway=underway_point(8, 300.0, 30.0))
    late = Objective(slo="ttft=1s")
    assert cannot_win(curve((1, 60.0)), [], 9, late, 0.02, best, underway=wide) == "", "it may keep the SLO yet"
    assert cannot_win(curve((1, 60.0)), [], 9, late, 0.02, best, underway=slow) != ""
    goodput = Objective(kind="goodput", slo="ttft=1s")
    assert cannot_win((), [], 9, goodput, 0.02, best, underway=slow) == ""
    pareto, first = Objective(kind="pareto"), curve((1, 40.0), (32, 400.0))
    ahead = Score(value=1.2, half=0.01)
    slower = underway_point(32, 300.0, 10.0)
    assert "so far" in cannot_win(curve((1, 40.0)), [], 9, pareto, 0.02, ahead, first, slower)
    assert cannot_win(curve((1, 90.0)), [], 9, pareto, 0.02, ahead, first, slower) == ""


def test_values_by_objective_and_what_does_not_count() -> None:
    points = curve((1, 60.0), (8, 400.0), goodput_rps=2.0, slo_share=0.5)
    assert score(points, Objective(), 0.02).value == 400.0
    assert score(points, Objective(kind="single"), 0.02).value == 60.0
    assert score(points, Objective(kind="goodput", slo="ttft=1s"), 0.02).value == 2.0
    first = curve((1, 30.0), (8, 400.0))
    assert score(points, Objective(kind="pareto"), 0.02, first).value == pytest.approx(2**0.5)
    assert "kept the SLO" in score(points, Objective(slo="ttft=1s"), 0.02).reason
    bad = (CurvePoint(concurrency=8, tps=400.0, err_share=0.5),)
    assert "50% of the requests failed" in score(bad, Objective(), 0.02).reason


def test_repeats_are_pooled_with_the_wider_interval() -> None:
    (one,) = pooled([*curve((8, 100.0)), *curve((8, 120.0))])
    assert (one.tps, one.half) == (110.0, 10.0)
    (three,) = pooled(curve((8, 100.0)) * 3)
    assert three.half == pytest.approx(1.0 / 3**0.5)


def test_ties_go_to_the_more_capable_and_a_change_that_brings_nothing_is_not_made() -> None:
    space = read_space({"max_running": "8,16", "context": "1000,2000"})
    knowledge = knowledge_of(space)

    def trial(number: int, running: int, context: int, tps: float, role: str = "search") -> Trial:
        choice = {"max_running": running, "context_len": context}
        return Trial(number=number, choice=choice, role=role, status="measured", points=curve((8, tps)), value=tps)  # type: ignore[arg-type]  # a Choice

    trials = [trial(0, 8, 1000, 100.0, "first"), trial(1, 8, 2000, 100.5), trial(2, 16, 1000, 101.0)]
    chosen = ahead(standings(trials, knowledge), knowledge, 0.02)
    assert chosen is not None
    assert chosen.choice == {"max_running": 8, "context_len": 2000}, "the longer context, at the same speed"
    trials = [trial(0, 8, 2000, 100.0, "first"), trial(1, 8, 1000, 101.0)]
    chosen = ahead(standings(trials, knowledge), knowledge, 0.02)
    assert chosen is not None
    assert chosen.first
    assert not ties(Score(value=100.0, half=1.0), Score(value=110.0, half=1.0), 0.02)


def test_capability_is_not_bought_with_much_speed_where_nearly_all_tie() -> None:
    knowledge = knowledge_of(read_space({"max_running": "4,8", "context": "1000,2000"}))

    def wide(number: int, context: int, tps: float) -> Trial:
        points = (CurvePoint(concurrency=8, tps=tps, half=0.4 * tps),)
        choice: Choice = {"max_running": 8, "context_len": context}
        return Trial(number=number, choice=choice, role="search", status="measured", points=points, value=tps)

    for capable, chosen in ((80.0, 1000), (95.0, 2000)):
        found = ahead(standings([wide(1, 1000, 100.0), wide(2, 2000, capable)], knowledge), knowledge, 0.02)
        assert found is not None
        assert found.choice["context_len"] == chosen, capable


def test_a_gauge_that_missed_the_fullest_moment_is_no_limit() -> None:
    knowledge = knowledge_of(read_space({"max_running": "32,48"}), cap_of=lambda settings: Cap(settings.max_running))

    def full(number: int, choice: Choice, ran: float) -> Trial:
        points = (CurvePoint(concurrency=32, tps=900.0, half=9.0, running=ran),)
        return Trial(number=number, choice=choice, role="search", status="measured", points=points, value=900.0)

    knowledge.learn(full(1, {"max_running": 32}, 30.0))
    assert knowledge.cap({"max_running": 32}).value == 32
    knowledge.learn(full(2, {"max_running": 48}, 19.0))
    assert knowledge.cap({"max_running": 48}).value == 19, "memory held the others back"


def test_the_front_holds_what_no_other_beats_in_both() -> None:
    def trial(number: int, tps: float, stream: float) -> Trial:
        points = (CurvePoint(concurrency=8, tps=tps, half=1.0, stream_tps=stream),)
        return Trial(number=number, choice={"max_running": number}, status="measured", points=points)

    knowledge = knowledge_of(read_space({"max_running": "1..4"}))
    found = standings([trial(1, 400, 20), trial(2, 300, 60), trial(3, 250, 50), trial(4, 100, 70)], knowledge)
    assert front(found) == (1, 2, 4)


def test_the_search_ends_by_itself_and_by_limits_with_the_reason() -> None:
    search = Search(knowledge_of(read_space({"--policy": "a,b,c"})), noise=0.02, patience=1)
    choice = search.next()
    assert choice is not None
    search.tell(Trial(number=1, choice=choice, status="failed", code="UNKNOWN", reason="?"))
    assert search.next() is None
    assert "brought nothing better" in search.why
    search.close("the limit of 2 restarts")
    assert search.waiting == 0
    assert {item.code for item in search.left_out} >= {"limit"}


def test_without_optuna_the_error_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggest, "installed", lambda: False)
    with pytest.raises(UsageError, match="needs Optuna") as caught:
        suggest.optuna(read_space({"tp": "1,2"}), 0)
    assert "pip install 'tokpit[tune]'" in caught.value.hint


@pytest.mark.parametrize("with_optuna", [False, True])
def test_the_optimum_of_the_simulated_machine_is_found_in_a_fraction_of_the_starts(with_optuna: bool) -> None:
    if with_optuna:
        pytest.importorskip("optuna")
    import tune_search as bench

    space = read_space(bench.VARY)
    best = max(bench.truth(key_of(choice)) for choice in space.candidates())
    assert space.size >= 200
    budget = int(0.15 * space.size)
    shares = []
    for seed in range(3):
        trials, search = bench.tokpit(space, seed, budget, 0.015, with_optuna=with_optuna)
        shares.append(bench.found(trials) / best)
        assert len(trials) <= budget + 1
        assert all(item.reason for item in search.left_out)
    assert sorted(shares)[1] >= 0.97

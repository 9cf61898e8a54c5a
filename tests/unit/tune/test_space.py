"""Settings that are varied: words to values, candidates to settings, and the way back."""

from __future__ import annotations

import pytest

from tokpit.domain.settings import Settings
from tokpit.errors import UsageError
from tokpit.tune.experiment import Experiment, Limits, Objective, Search, checked, merged
from tokpit.tune.space import choice_of, read_space, settings_of, with_flag, words_of


def test_values_are_read_from_ranges_lists_and_words() -> None:
    space = read_space(
        {
            "mtp_steps": "0..3",
            "max_running": "8..32x2",
            "hicache_gb": [0, 50, 150],
            "prefix_cache": "on,off",
            "context": "1024..4096+1024",
            "mem_fraction": "0.8,default",
            "--schedule-policy": ["lpm", "fcfs"],
            "temperature": "0,0.6",
        }
    )
    values = {axis.name: axis.values for axis in space.axes}
    assert values["spec_steps"] == (0, 1, 2, 3)
    assert values["max_running"] == (8, 16, 32)
    assert values["hicache_gb"] == (0.0, 50.0, 150.0)
    assert values["prefix_cache"] == (True, False)
    assert values["context_len"] == (1024, 2048, 3072, 4096)
    assert values["mem_fraction"] == (0.8, None)
    assert space.size == 4 * 3 * 3 * 2 * 4 * 2 * 2, "sampling needs no start, so it makes no more candidates"
    assert len(list(space.candidates())) == space.size
    assert space.live() == [{"temperature": 0.0}, {"temperature": 0.6}]


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ({}, "nothing is varied"),
        ({"mpt_steps": "1"}, "mtp_steps"),
        ({"mtp_steps": "x"}, "whole number"),
        ({"mtp_steps": "3..1"}, "range"),
        ({"mtp_steps": "1,1"}, "twice"),
        ({"mtp_steps": "1", "spec_steps": "2"}, "twice"),
        ({"mtp_steps": ""}, "no value"),
        ({"max_running": "-4"}, "below 0"),
        ({"concurrency": "1,2"}, "every level"),
        ({"model": "a,b"}, "no setting that can be varied"),
        ({"max_running": "1..200", "state_slots": "1..200"}, "more than"),
    ],
)
def test_what_cannot_be_varied_is_one_sentence(vary: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_space(vary)
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_a_candidate_switches_things_off_and_keeps_the_rest() -> None:
    base = Settings(
        model="m", spec_method="mtp", spec_steps=3, spec_topk=1, spec_draft_tokens=4, hicache=True, hicache_gb=150.0,
        raw=("--trust-remote-code", "--seed", "1"),
    )  # fmt: skip
    off = settings_of(base, {"spec_steps": 0, "hicache_gb": 0.0, "max_running": 8})
    assert (off.spec_method, off.spec_steps, off.spec_draft_tokens, off.hicache, off.hicache_gb) == (None,) * 5
    assert (off.model, off.max_running, off.raw) == ("m", 8, base.raw)
    one = settings_of(base, {"spec_steps": 1})
    assert (one.spec_method, one.spec_steps, one.spec_draft_tokens) == ("mtp", 1, 2), "a chain checks one more"
    assert settings_of(Settings(), {"spec_steps": 2}).spec_method == "mtp"


def test_a_flag_is_set_replaced_and_taken_away() -> None:
    raw = ("--a", "1", "--b=2", "--c", "--d", "-1")
    assert with_flag(raw, "--a", 5) == ("--b=2", "--c", "--d", "-1", "--a", "5")
    assert with_flag(raw, "--b", "x") == ("--a", "1", "--c", "--d", "-1", "--b", "x")
    assert with_flag(raw, "--c", None) == ("--a", "1", "--b=2", "--d", "-1")
    assert with_flag(raw, "--d", False) == ("--a", "1", "--b=2", "--c")
    assert with_flag((), "--on", True) == ("--on",)


def test_the_server_as_it_runs_is_named_in_the_spaces_terms() -> None:
    space = read_space({"mtp_steps": "0..2", "hicache_gb": "0,50", "max_running": "4,8", "--policy": "lpm,fcfs"})
    running = Settings(max_running=16, raw=("--policy", "fcfs"))
    assert choice_of(running, space) == {"spec_steps": 0, "hicache_gb": 0.0, "max_running": 16, "--policy": "fcfs"}
    assert words_of(choice_of(running, space)) == "mtp_steps 0, hicache_gb 0, max_running 16, --policy fcfs"


@pytest.mark.parametrize(
    ("experiment", "words"),
    [
        (Experiment(vary={"tp": "1"}, objective=Objective(kind="speed")), "no objective"),
        (Experiment(vary={"tp": "1"}, objective=Objective(kind="goodput")), "SLO"),
        (Experiment(vary={"tp": "1"}, objective=Objective(weight=2)), "weight"),
        (Experiment(vary={"tp": "1"}, limits=Limits(restarts=1)), "restarts"),
        (Experiment(vary={"tp": "1"}, limits=Limits(minutes=float("nan"))), "minutes"),
        (Experiment(vary={"tp": "1"}, search=Search(method="bayes")), "way to search"),
        (Experiment(vary={"tp": "1"}, workload={"level": "1"}), "no key"),
    ],
)
def test_an_experiment_that_cannot_be_run_is_one_sentence(experiment: Experiment, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        checked(experiment)


def test_options_win_over_the_file_one_by_one() -> None:
    base = Experiment(target="a", vary={"tp": "1"}, workload={"levels": "1"}, objective=Objective(slo="ttft=1s"))
    both = merged(
        base, {"target": None, "vary": {"mtp_steps": "1"}, "workload": {"requests": 8}, "objective.kind": "single"}
    )
    assert both.target == "a"
    assert both.vary == {"tp": "1", "mtp_steps": "1"}
    assert both.workload == {"levels": "1", "requests": 8}
    assert (both.objective.kind, both.objective.slo) == ("single", "ttft=1s")

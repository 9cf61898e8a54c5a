from __future__ import annotations

import pytest

from insight_tools import sweep
from tokpit.insight.curve import read_curve
from tokpit.insight.facts import Facts
from tokpit.insight.solver import ALONE, ENOUGH, NEVER, UNKNOWN, Reach, Way, reach_all, reach_one

GAP = Facts(weights_gb=54, gpu="RTX A6000", tp=2, single_tps=37, accept_len=1.75, draft_tokens=1)


def way(found: Reach, lever: str) -> Way:
    return next(one for one in found.ways if lever in one.lever)


def test_seventy_on_two_a6000_needs_what_the_arithmetic_says() -> None:
    found = reach_one(GAP, 70)
    length = way(found, "acceptance")
    assert (length.needed, length.verdict) == ("3.31", ALONE)
    assert "70 / 21.1 steps/s" in length.arithmetic
    assert "1: 1.75, 2: 2.31, 3: 2.73, 4: 3.05" in length.arithmetic
    assert length.how.startswith("6 draft tokens")
    share = way(found, "share")
    assert (share.now, share.needed, share.verdict) == ("74%", "141%", NEVER)
    assert way(found, "bytes").needed == "14.3 GB"
    assert "53% of now" in way(found, "bytes").arithmetic
    assert way(found, "GPUs").needed == "3.8, so 4"
    assert "RTX PRO 6000 Blackwell" in way(found, "bandwidth").how
    assert "37 now" in found.sentence


def test_a_rate_that_is_there_needs_nothing() -> None:
    found = reach_one(GAP, 30)
    assert found.ways == ()
    assert "is there: 37 now" in found.sentence


def test_no_draft_reaches_what_lies_over_its_limit() -> None:
    length = way(reach_one(GAP, 100), "acceptance")
    assert length.verdict == NEVER
    assert "never over 1 / (1 - p) = 4" in length.arithmetic


def test_without_speculation_the_length_needed_is_told_and_not_promised() -> None:
    found = reach_one(Facts(weights_gb=54, gpu="RTX PRO 6000 Blackwell", baseline_tps=26.7, single_tps=26.7), 62)
    length = way(found, "acceptance")
    assert (length.now, length.verdict) == ("1 (no speculation)", UNKNOWN)
    assert length.needed == "2.32"


@pytest.mark.parametrize(
    ("facts", "words"),
    [(Facts(), ("the rate of one stream", "weights")), (Facts(single_tps=30, weights_gb=9), ("the GPU",))],
)
def test_what_is_missing_is_asked_for(facts: Facts, words: tuple[str, ...]) -> None:
    missing = " ".join(reach_one(facts, 70).missing)
    assert all(word in missing for word in words)


def test_an_unmeasured_share_is_the_usual_one_and_says_so() -> None:
    found = reach_one(Facts(weights_gb=54, gpu="RTX A6000", tp=2), 20)
    assert "80% (usual)" in way(found, "bytes").arithmetic
    assert way(found, "bytes").verdict == ENOUGH


def test_all_streams_need_slots_for_as_many_as_the_fit_says() -> None:
    curve = read_curve(sweep())
    facts = Facts(max_running_requests=9, state_slots=48, slots_per_request=5)
    found = reach_all(facts, curve, 600)
    running, slots = way(found, "running"), way(found, "slots")
    assert running.now == "at most 9"
    assert 15 <= int(running.needed) <= 22
    assert slots.needed == str(5 * int(running.needed))
    assert found.sentence.endswith(f"needs running at once {running.needed} and state slots {slots.needed}.")


def test_beyond_the_limit_of_the_batch_more_at_once_brings_nothing() -> None:
    found = reach_all(Facts(max_running_requests=9), read_curve(sweep()), 5000)
    assert way(found, "running").verdict == NEVER
    assert "never over 1 /" in way(found, "running").arithmetic


def test_all_streams_without_a_sweep_or_below_the_peak() -> None:
    assert "without a sweep" in reach_all(Facts(), None, 600).sentence
    assert "is there: 207.2 at C=4" in reach_all(Facts(), read_curve(sweep()), 200).sentence

"""The search for the highest concurrency that meets an SLO."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sweep_tools import level_result
from tokpit.ops.sweep.find import Search, meets_slo

LADDER = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def searched(ladder: tuple[int, ...], limit: int) -> tuple[Search, list[int]]:
    search, asked = Search(ladder), []
    while (level := search.next()) is not None:
        asked.append(level)
        assert len(asked) < 40
        search.tell(level, met=level <= limit)
    return search, asked


@given(st.integers(0, 300))
def test_it_ends_within_one_level_or_a_twentieth_of_the_truth(limit: int) -> None:
    search, asked = searched(LADDER, limit)
    assert len(set(asked)) == len(asked), "no level is measured twice"
    if limit == 0:
        assert (search.met, asked) == (None, [1])
        assert search.sentence == "no concurrency meets the SLO"
        return
    truth = min(limit, 256)
    assert search.met is not None
    assert search.met <= truth
    assert truth - search.met <= max(1, 0.05 * search.met + 0.5)


def test_where_even_the_top_meets_it_says_that_nothing_higher_was_tried() -> None:
    search, asked = searched((1, 4), 99)
    assert asked == [1, 4]
    assert search.sentence == "C=4 meets the SLO, and nothing higher was tried"


def test_a_ladder_that_begins_too_high_is_searched_below() -> None:
    search, _ = searched((64,), 5)
    assert (search.met, search.missed) == (5, 6)


def test_one_request_in_twenty_may_miss_but_not_more() -> None:
    assert meets_slo(level_result(goodput_share=0.95))
    assert not meets_slo(level_result(goodput_share=0.949))
    assert not meets_slo(level_result(goodput_share=None)), "what was not measured meets nothing"

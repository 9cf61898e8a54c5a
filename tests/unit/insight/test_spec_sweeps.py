"""Draft tokens on and off, swept: up to how many requests at once they pay."""

from __future__ import annotations

import pytest

from insight_tools import codes
from tokpit.domain.finding import Finding
from tokpit.insight.curve import read_curve
from tokpit.insight.diagnose import diagnose
from tokpit.insight.evidence import Evidence
from tokpit.insight.points import Point

CODES = {"SPEC_STOPS_PAYING", "SPEC_PAYS", "SPEC_OVERHEAD", "SPEC_NO_DIFFERENCE", "SPEC_UNCLEAR"}


def points(rates: dict[int, float], length: float | None = None, ci: float = 0.0) -> tuple[Point, ...]:
    return tuple(
        Point(
            concurrency=c, requests=16, ok=16, err=0, elapsed_s=16 * 96 / rate, output_tps=rate, accept_len=length,
            steady_tps=rate if ci else None, steady_ci=ci * rate or None,
        )
        for c, rate in rates.items()
    )  # fmt: skip


def told(one: tuple[Point, ...], other: tuple[Point, ...]) -> list[Finding]:
    curve = read_curve(other)
    assert curve is not None
    evidence = Evidence(points=one, curve=read_curve(one), others=(("other", curve),))
    return [finding for finding in diagnose(evidence) if finding.code in CODES]


@pytest.mark.parametrize("turned", [False, True])
def test_the_concurrency_at_which_drafts_stop_paying_lies_between_two_levels(turned: bool) -> None:
    on, off = points({1: 51, 2: 73, 4: 91, 8: 98}, 2.6), points({1: 38, 2: 70, 4: 163, 8: 273})
    (found,) = told(off, on) if turned else told(on, off)
    assert found.code == "SPEC_STOPS_PAYING"
    assert "pay at C=1 (1.34 times the rate)" in found.claim
    assert "no difference that can be told at C=2" in found.claim
    assert "between C=1 and C=4" in found.claim
    assert "C=8: 98 / 273 tok/s = 0.359, a step of 2.6 tokens costs 2.6 / 0.359 = 7.24 plain ones" in found.arithmetic
    assert "with 4 or more at once" in found.next_action


def test_drafts_that_pay_or_cost_everywhere() -> None:
    (found,) = told(points({1: 36, 8: 180}, 2.6), points({1: 30, 8: 156}))
    assert (found.code, found.next_action) == ("SPEC_PAYS", "Keep them on.")
    (found,) = told(points({1: 20, 8: 100}, 1.3), points({1: 30, 8: 156}))
    assert found.code == "SPEC_OVERHEAD"


def test_a_dead_draft_costs_at_every_level() -> None:
    (found,) = told(points({1: 122, 2: 217, 8: 193}, 1.0), points({1: 235, 2: 461, 8: 449}))
    assert found.code == "SPEC_OVERHEAD"
    assert "C=1: 122 / 235 tok/s = 0.519, a step of 1 tokens costs 1 / 0.519 = 1.93 plain ones" in found.arithmetic


def test_a_difference_inside_the_intervals_is_none() -> None:
    (found,) = told(points({1: 33, 8: 170}, 2.6, ci=0.15), points({1: 30, 8: 156}, ci=0.15))
    assert found.code == "SPEC_NO_DIFFERENCE"


def test_sweeps_that_both_have_drafts_or_both_none_say_nothing_of_them() -> None:
    assert told(points({1: 36, 8: 180}, 2.6), points({1: 30, 8: 156}, 2.1)) == []
    assert told(points({1: 36, 8: 180}), points({1: 30, 8: 156})) == []
    alone = points({1: 36, 8: 180}, 2.6)
    assert not CODES & set(codes(diagnose(Evidence(points=alone, curve=read_curve(alone)))))

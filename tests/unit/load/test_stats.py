from __future__ import annotations

import math
import random
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpit.load.stats import batch_means, dist, lag1, little_in_flight, percentile, t95, weighted_dist

finite = st.floats(-1e6, 1e6, allow_nan=False)


def test_percentiles_are_exact() -> None:
    found = dist(range(101))
    assert found is not None
    assert (found.p50, found.p90, found.p95, found.p99, found.min, found.max) == (50, 90, 95, 99, 0, 100)
    assert percentile([1.0, 2.0], 0.5) == 1.5


def test_no_samples_are_none_and_not_zero() -> None:
    assert dist([]) is None
    assert weighted_dist([]) is None
    assert weighted_dist([(1.0, 0.0)]) is None
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 0.5)


def test_percentiles_without_a_sample_in_their_tail_are_named() -> None:
    few, enough = dist(range(8)), dist(range(100))
    assert few is not None
    assert few.thin == ("p90", "p95", "p99")
    assert enough is not None
    assert enough.thin == ()


@given(st.lists(finite, min_size=1, max_size=60))
def test_percentiles_lie_between_the_extremes_and_in_order(samples: list[float]) -> None:
    found = dist(samples)
    assert found is not None
    order = [found.min, found.p50, found.p90, found.p95, found.p99, found.max]
    assert all(low <= high + 1e-6 for low, high in pairwise(order))
    assert found.p50 == pytest.approx(statistics.median(samples))
    assert found.mean == pytest.approx(statistics.fmean(samples), abs=1e-6)


@given(st.lists(st.tuples(finite, st.integers(1, 5)), min_size=1, max_size=30))
def test_weights_mean_as_many_samples(pairs: list[tuple[float, int]]) -> None:
    found = weighted_dist(pairs)
    repeated = sorted(value for value, weight in pairs for _ in range(weight))
    assert found is not None
    assert found.n == len(repeated)
    assert found.mean == pytest.approx(statistics.fmean(repeated), abs=1e-6)
    for share, value in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99)):
        assert value == repeated[math.ceil(share * len(repeated) - 1e-9) - 1]


def test_the_interval_holds_the_true_mean_about_as_often_as_it_says() -> None:
    draw = random.Random(5)
    hits = 0
    for _ in range(400):
        mean, half = batch_means([draw.gauss(100, 8) for _ in range(20)])
        hits += abs(mean - 100) <= half
    assert 0.91 <= hits / 400 <= 0.99


def test_dependent_batches_widen_the_interval() -> None:
    wave = [100 + 10 * math.sin(i / 3) for i in range(20)]
    assert lag1(wave) > 0.25
    joined = [(wave[i] + wave[i + 1]) / 2 for i in range(0, 20, 2)]
    assert batch_means(wave)[1] == pytest.approx(t95(9) * statistics.stdev(joined) / math.sqrt(10))


def test_constant_batches_have_no_width_and_few_have_no_interval() -> None:
    assert batch_means([7.0] * 10) == (7.0, 0.0)
    with pytest.raises(ValueError, match="four"):
        batch_means([1.0, 2.0, 3.0])


def test_students_t_falls_to_the_normal_value() -> None:
    values = [t95(n) for n in range(1, 200)]
    assert all(high > low for high, low in pairwise(values))
    assert t95(9) == 2.262
    assert t95(100000) == pytest.approx(1.96, abs=1e-3)


def test_littles_law_of_the_first_story() -> None:
    # 96 requests in 240.3 s with 48 in flight: 120 s each, whatever "elapsed / requests" says.
    assert little_in_flight(96 / 240.3, 120.15) == pytest.approx(48)

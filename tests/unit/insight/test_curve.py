from __future__ import annotations

import pytest

from insight_tools import STORY, engine_sweep, sweep
from tokpit.domain.run import Level
from tokpit.insight.curve import advise, read_curve
from tokpit.insight.fits import batch_fit, least_squares, usl_fit
from tokpit.insight.points import point_of, usable
from tokpit.insight.waves import wave_model


def test_cap_is_read_from_six_points_alone() -> None:
    curve = read_curve(sweep())
    assert curve is not None
    assert curve.cap_in_curve == pytest.approx(9, rel=0.1)
    assert curve.capped is not None
    assert curve.batch is not None
    assert curve.usl is not None
    assert curve.capped.rms < 0.03 < curve.usl.rms < curve.batch.rms


def test_operating_point_is_the_smallest_level_near_the_peak() -> None:
    curve = read_curve(sweep())
    assert curve is not None
    assert curve.knee is not None
    assert (curve.advice.point.concurrency, curve.knee.concurrency) == (8, 8)
    assert curve.advice.share == pytest.approx(0.904, abs=0.001)
    assert curve.advice.latency_s == pytest.approx(22.15, abs=0.01)


def test_operating_point_falls_back_to_the_knee_where_noise_moves_the_peak() -> None:
    rows = [(c, n, e, x * (1.03 if c == 48 else 1)) for c, n, e, x in STORY]
    curve = read_curve(sweep(rows))
    assert curve is not None
    assert curve.advice.point.concurrency == 8


def test_operating_point_stays_within_a_known_cap() -> None:
    points = engine_sweep(cap=10, fixed_s=10, each_s=0.9, levels=(1, 5, 10, 20, 40))
    assert advise(points, None, cap=10).point.concurrency == 10


@pytest.mark.parametrize("seed", range(8))
def test_noise_on_a_growing_step_is_never_read_as_a_cap(seed: int) -> None:
    points = engine_sweep(cap=9999, fixed_s=12, each_s=1.1, levels=(1, 2, 4, 8, 16, 32, 64, 96), noise=0.03, seed=seed)
    curve = read_curve(points)
    assert curve is not None
    assert curve.cap_in_curve is None


@pytest.mark.parametrize(("cap", "each_s"), [(6, 0.2), (12, 0.4), (20, 0.15)])
def test_cap_of_a_lockstep_engine_is_found(cap: int, each_s: float) -> None:
    curve = read_curve(engine_sweep(cap=cap, fixed_s=11, each_s=each_s, levels=(1, 2, 4, 8, 16, 32, 64, 96)))
    assert curve is not None
    assert curve.cap_in_curve == pytest.approx(cap, rel=0.15)


def test_rising_curve_has_no_flat_stretch() -> None:
    curve = read_curve(engine_sweep(cap=999, fixed_s=10, each_s=0.05, levels=(1, 4, 8, 16, 32)))
    assert curve is not None
    assert curve.flat_from is None
    assert curve.flat == ()


def test_cliff_is_located_between_its_levels() -> None:
    curve = read_curve(sweep([(1, 8, 90, 48.0), (4, 8, 30, 131.0), (8, 16, 140, 52.0)]))
    assert curve is not None
    assert [(a.concurrency, b.concurrency) for a, b in curve.cliffs] == [(4, 8)]


def test_waves_predict_the_elapsed_times_and_the_last_wave() -> None:
    points = sweep()
    model = wave_model(points, 9)
    assert model is not None
    predicted = [model.elapsed_s(p.concurrency, p.ok) for p in points[3:]]
    assert predicted == pytest.approx([85.2, 166.9, 240.3], rel=0.035)
    assert [model.waves(p.concurrency, p.ok) for p in points[3:]] == [(3, 5), (7, 1), (10, 6)]
    steady = {round(model.steady_tps(p.concurrency, 1024), 6) for p in points[3:]}
    assert len(steady) == 1
    assert model.last_wave_share(48, 96) < model.last_wave_share(16, 32)


def test_waves_need_a_level_within_the_cap() -> None:
    assert wave_model(sweep(STORY[3:]), 9) is None


def test_littles_law_gives_latency_and_elapsed_over_requests_does_not() -> None:
    c8, c48 = sweep()[2], sweep()[5]
    assert c8.little_s == pytest.approx(22.15, abs=0.01)
    assert c48.little_s == pytest.approx(120.15, abs=0.01)
    assert c48.service_s(9) == pytest.approx(22.5, abs=0.05)


def test_tokens_a_request_follow_from_the_table() -> None:
    assert sweep()[0].tokens == pytest.approx(1024, rel=0.001)


def test_usl_finds_the_parameters_that_made_the_data() -> None:
    lam, sigma, kappa = 50.0, 0.03, 0.0004
    data = [(n, lam * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))) for n in (1.0, 2.0, 8.0, 32.0, 64.0)]
    fit = usl_fit(data)
    assert fit is not None
    assert fit.parameters == pytest.approx({"lambda": lam, "sigma": sigma, "kappa": kappa}, rel=1e-6)
    assert fit.at(16) == pytest.approx(lam * 16 / (1 + sigma * 15 + kappa * 240))


def test_fits_refuse_too_few_points() -> None:
    assert usl_fit([(1.0, 10.0), (2.0, 20.0), (4.0, 30.0)]) is None
    assert batch_fit([(8.0, 10.0), (16.0, 10.0)], cap=4) is None


def test_least_squares_never_goes_below_zero() -> None:
    assert least_squares([(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)], [3.0, 2.0, 1.0]) == pytest.approx([2.0, 0.0])


def test_levels_that_measured_nothing_are_left_out() -> None:
    dead = sweep([(2, 8, 600.0, 0.0)])
    assert usable((*sweep()[:2], *dead)) == sweep()[:2]
    assert read_curve(dead) is None


def test_stored_level_brings_steady_rate_latency_and_failed_checks() -> None:
    level = Level(
        concurrency=4,
        requests=8,
        ok=8,
        err=0,
        elapsed_s=40.0,
        output_tps=190.0,
        steady_tps=205.0,
        result={
            "e2e_s": {"mean": 19.0},
            "e2e_settled_s": {"mean": 19.5},
            "checks": [
                {"code": "LITTLE", "ok": True, "sentence": "fine"},
                {"code": "CLIENT_BOUND", "ok": False, "sentence": "the client used 99% of a core"},
            ],
        },
    )
    point = point_of(level)
    assert (point.tps, point.e2e_mean_s, point.failed_checks) == (205.0, 19.5, ("CLIENT_BOUND",))

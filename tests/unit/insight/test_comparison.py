from __future__ import annotations

import random

import msgspec
import pytest

from run_tools import measured, stored, sweep_of
from tokpit.domain.run import Level, Run
from tokpit.insight.baseline import baseline_of, family_of
from tokpit.insight.changes import ranked
from tokpit.insight.comparison import compare
from tokpit.insight.intervals import mean_half, next_half, quantile_half, t_quantile
from tokpit.insight.versus import versus


@pytest.mark.parametrize(
    ("freedom", "t95"), [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042)]
)
def test_student_t_is_that_of_the_tables(freedom: int, t95: float) -> None:
    assert t_quantile(freedom) == pytest.approx(t95, rel=0.003)


def test_intervals_hold_what_they_promise() -> None:
    rng = random.Random(4)
    held = next_held = median_held = 0
    for _ in range(2000):
        values = [rng.gauss(10, 2) for _ in range(5)]
        held += abs(sum(values) / 5 - 10) <= mean_half(values)
        next_held += abs(rng.gauss(10, 2) - sum(values) / 5) <= next_half(values)
        many = sorted(rng.expovariate(1.0) for _ in range(41))
        half = quantile_half(many, 0.5)
        assert half is not None
        median_held += abs(many[20] - 0.6931) <= 1.3 * half
    assert held / 2000 == pytest.approx(0.95, abs=0.02)
    assert next_held / 2000 == pytest.approx(0.95, abs=0.02)
    assert median_held / 2000 > 0.93


def test_p99_of_few_samples_has_no_interval() -> None:
    assert quantile_half([float(n) for n in range(100)], 0.99) is None


def test_two_runs_of_an_unchanged_server_are_no_regression() -> None:
    for seed in range(2, 12):
        found = compare(sweep_of("a"), sweep_of("b", random.Random(seed).gauss(1, 0.01), seed=seed))
        assert found.verdict == "no change", found.sentence


@pytest.mark.parametrize("factor", [0.85, 0.7])
def test_a_slower_run_is_a_sure_regression(factor: float) -> None:
    found = compare(sweep_of("a"), sweep_of("b", factor, seed=2))
    assert (found.verdict, found.confidence, found.regressed) == ("regression", "sure", True)
    throughput = found.metrics[0]
    assert throughput.ratio == pytest.approx(factor, rel=0.001)
    assert throughput.interval is not None
    assert throughput.interval[0] < factor < throughput.interval[1] < 1
    assert f"-{round(100 * (1 - factor))}%" in found.sentence


def test_a_faster_run_is_an_improvement() -> None:
    assert compare(sweep_of("a"), sweep_of("b", 1.3, seed=2)).verdict == "improvement"


def test_a_wide_interval_is_no_verdict() -> None:
    before = stored("a", [measured(8, 355, ci=60, requests=4)])
    after = stored("b", [measured(8, 310, ci=60, requests=4, seed=2)])
    throughput = next(m for m in compare(before, after).metrics if m.metric == "output_tps")
    assert throughput.verdict == "within noise"


def test_one_level_that_falls_alone_is_a_regression() -> None:
    levels = [measured(c, tps) for c, tps in ((1, 60), (4, 200), (8, 355), (16, 500))]
    worse = [*levels[:3], measured(16, 400, tpot_s=0.02)]
    found = compare(stored("a", levels), stored("b", worse))
    assert found.regressed
    assert "C=16" in found.sentence


def test_repeats_of_a_level_make_the_interval() -> None:
    def table(run_id: str, *rates: float) -> Run:
        levels = [
            Level(concurrency=4, requests=8, ok=8, err=0, elapsed_s=10, output_tps=tps, avg_output=50) for tps in rates
        ]
        return stored(run_id, levels)

    steady = compare(table("a", 200, 201, 199), table("b", 160, 161, 159))
    assert (steady.verdict, steady.confidence) == ("regression", "sure")
    loose = compare(table("a", 200, 260, 140), table("b", 160, 220, 100))
    assert loose.verdict == "no change"


def test_more_failures_are_a_regression_at_equal_speed() -> None:
    found = compare(stored("a", [measured(8, 355)]), stored("b", [measured(8, 355, err=6, seed=2)]))
    assert found.regressed
    assert "9.1% of the requests fail at C=8" in found.sentence


def test_void_levels_and_levels_of_one_run_only_are_told_and_not_judged() -> None:
    before = stored("a", [measured(4, 200), measured(8, 355)])
    after = stored("b", [measured(4, 60, void="the client was the limit"), measured(8, 354, seed=2), measured(16, 400)])
    found = compare(before, after)
    assert found.verdict == "no change"
    told = " ".join(found.cautions)
    assert "only a has C=4" in told
    assert "only b has C=16" in told
    assert "the client was the limit" in told


def test_nothing_in_common_is_not_comparable() -> None:
    found = compare(stored("a", [measured(4, 200)]), stored("b", [measured(8, 355)]))
    assert (found.verdict, found.regressed) == ("not comparable", False)


def test_a_baseline_of_three_runs_gives_the_noise_band() -> None:
    runs = [sweep_of(f"r{n}", factor, seed=n) for n, factor in enumerate((1.0, 0.9, 1.1, 0.95))]
    known = baseline_of(runs, family_of(runs[0]))
    assert known is not None
    band = known.band(("C", 8.0), "output_tps")
    assert band is not None
    assert band.runs == 4
    assert band.half > 0.2
    noisy = compare(runs[0], sweep_of("now", 0.85, seed=9), known)
    assert noisy.metrics[0].verdict == "within noise", "this server scatters by more"
    assert "from 4 runs" in noisy.metrics[0].sentence
    assert compare(runs[0], sweep_of("now", 0.85, seed=9)).metrics[0].verdict == "worse", "for want of a baseline"


def test_two_runs_are_no_band() -> None:
    known = baseline_of([sweep_of("a"), sweep_of("b", seed=2)], family_of(sweep_of("a")))
    assert known is not None
    assert known.bands == {}


def test_a_family_is_of_settings_and_work_but_not_of_version_port_or_driver() -> None:
    one = sweep_of("a", settings={"tp": 2, "port": 30000}, version="0.5.11", driver="550.1")
    same = sweep_of("b", settings={"tp": 2, "port": 30001}, version="0.5.16", driver="580.2")
    other = sweep_of("c", settings={"tp": 1, "port": 30000})
    work = sweep_of("d", settings={"tp": 2}, plan={"max_tokens": 1024})
    assert family_of(one) == family_of(same)
    assert len({family_of(run).key for run in (one, other, work)}) == 3


# --- what changed


def changes_of(before: Run, after: Run, gap: float) -> dict[str, str]:
    return {one.name: one.fits for one in ranked(before, after, gap)}


def test_the_change_that_explains_the_gap_comes_first() -> None:
    before = sweep_of("a", settings={"tp": 2, "spec_steps": 3, "quantization": "fp8", "port": 1})
    after = sweep_of("b", 0.52, settings={"tp": 2, "spec_steps": 3, "port": 2, "mem_fraction": 0.8}, driver="580.1")
    found = versus(before, after)
    first = found.changes[0]
    assert first.text == "quantization: fp8 -> not given"
    assert first.fits == "explains it"
    assert "1 -> 2" in first.arithmetic
    assert "port" not in {one.name for one in found.changes}


def drafted(name: str, factor: float, steps: int | None, length: float | None) -> Run:
    run = sweep_of(name, factor, settings={"tp": 1, **({"spec_steps": steps, "spec_method": "mtp"} if steps else {})})
    levels = [msgspec.structs.replace(lv, result={**lv.result, "accept_len": length}) for lv in run.levels]
    return msgspec.structs.replace(run, levels=tuple(levels) if isinstance(run.levels, tuple) else levels)


def test_switching_a_dead_draft_off_explains_what_its_steps_cost() -> None:
    found = ranked(drafted("a", 1, 3, 1.0), drafted("b", 2.1, None, None), 2.1)
    steps = next(one for one in found if one.name == "spec steps")
    assert steps.fits == "explains it"
    assert steps.factor == (1, 4)
    assert "drafted 3 -> 0: a step with drafts takes 1 to 4 plain ones" in steps.arithmetic


def test_drafts_that_are_accepted_bring_no_more_than_their_length() -> None:
    steps = next(o for o in ranked(drafted("a", 1, None, None), drafted("b", 2, 3, 2.9), 2.0) if o.name == "spec steps")
    assert steps.factor == (2.9 / 4, 2.9)
    assert steps.fits == "explains it"
    assert ranked(drafted("a", 1, None, None), drafted("b", 4, 3, 2.9), 4.0)[0].fits == "explains part"


def test_a_round_trip_that_is_a_millisecond_longer_is_no_change() -> None:
    runs = [sweep_of("a", link=f"ssh, round trip {ms} ms") for ms in (43.2, 44.2, 143.0)]
    assert "link" not in changes_of(runs[0], runs[1], 0.8)
    assert "link" in changes_of(runs[0], runs[2], 0.8)


def test_what_works_the_other_way_comes_last() -> None:
    before = sweep_of("a", gpus=["NVIDIA H100 80GB HBM3"], version="0.5.11")
    after = sweep_of("b", 0.8, gpus=["NVIDIA H200"], version="0.5.16")
    found = ranked(before, after, 0.8)
    assert [(one.name, one.fits) for one in found] == [
        ("version", "size not known"), ("gpus", "works against it")
    ]  # fmt: skip


def test_a_cap_is_judged_by_the_levels_it_binds() -> None:
    levels = [measured(c, tps) for c, tps in ((1, 60), (16, 600), (32, 900))]
    before = stored("a", levels, settings={"max_running": 32})
    after = stored("b", levels, settings={"max_running": 8})
    assert changes_of(before, after, 0.3)["max running"] == "explains it"
    single = stored("c", levels[:1], settings={"max_running": 32})
    assert changes_of(single, after, 0.5)["max running"] == "no effect"


def test_a_shorter_acceptance_is_a_cause_with_its_size() -> None:
    before = stored("a", [measured(1, 62, accept_len=3.2)])
    after = stored("b", [measured(1, 34, accept_len=1.75)])
    first = ranked(before, after, 34 / 62)[0]
    assert (first.name, first.fits) == ("acceptance length", "explains it")
    assert "1.75 / 3.2 = 0.547" in first.arithmetic


def test_secrets_never_show() -> None:
    before = sweep_of("a", client="bench --api-key sk-1234567890abcdef")
    after = sweep_of("b", client="bench --api-key sk-abcdef1234567890")
    assert not any("sk-" in one.text for one in ranked(before, after, 0.5))

"""Effects with intervals, A against B, and the report."""

from __future__ import annotations

import math
import random

import pytest

from tokpit.domain.tuning import Choice, CurvePoint, LeftOut, Trial, Tuning
from tokpit.report.markdown import markdown
from tokpit.tune import estimate
from tokpit.tune.choosing import Standing
from tokpit.tune.document import Told, document, drift
from tokpit.tune.effects import effects
from tokpit.tune.score import Score
from tokpit.tune.versus import compare, order


def standing(choice: Choice, value: float, **fields: object) -> Standing:
    points = (CurvePoint(concurrency=8, tps=value, half=0.01 * value),)
    given: dict[str, object] = {"trials": (1,), **fields}
    return Standing(choice=choice, score=Score(value=value, half=0.01 * value), points=points, **given)  # type: ignore[arg-type]  # fields of Standing


def test_effects_of_a_known_product_are_found_with_intervals_that_hold_them() -> None:
    rng = random.Random(5)
    found = [
        standing(
            {"spec_steps": k, "hicache_gb": g},
            100 * (1.3 if k == 1 else 1.0) * rng.gauss(1, 0.01),
            first=(k, g) == (0, 0.0),
        )
        for k in (0, 1)
        for g in (0.0, 50.0, 100.0)
    ]
    by_value = {(e.name, e.value): e for e in effects(found)}
    mtp = by_value["spec_steps", 1]
    assert mtp.low <= 1.3 <= mtp.high
    assert mtp.low > 1.2
    assert mtp.candidates == 3
    assert by_value["hicache_gb", 50.0].words.endswith("no difference shown")
    assert effects(found[:1]) == ()


def test_settings_that_always_changed_together_are_not_told_apart_by_invention() -> None:
    found = [standing({"a": 1, "b": 1}, 100.0, first=True), standing({"a": 2, "b": 2}, 120.0)]
    (only,) = effects(found)
    assert only.ratio == pytest.approx(1.2)


def test_blocks_alternate_and_a_drift_cancels_in_the_pairs() -> None:
    assert order(3) == ["A", "B", "B", "A", "A", "B"]
    same = compare([100, 100.2, 99.8], [100.1, 99.9, 100.0])
    assert "the same within 2%" in same.verdict(0.02)
    better = compare([100, 90, 80], [110, 99.1, 87.9])
    assert "B is better" in better.verdict(0.02)
    assert better.drift == pytest.approx(0.8)
    assert "no verdict" in compare([100], [150]).verdict(0.02)
    assert "no difference shown" in compare([100, 120], [110, 105]).verdict(0.02)
    with pytest.raises(ValueError, match="no pair"):
        compare([], [1.0])


def test_times_come_from_earlier_starts_and_rates_and_say_so() -> None:
    sweep = {"requests": 10, "max_tokens": 100}
    first = estimate.before((), sweep, (1, 8), {})
    assert first.restart_s == estimate.USUAL_RESTART_S
    assert "assumed" in first.restart_from
    known = estimate.before((90.0, 110.0), sweep, (1, 8), {1: 50.0, 8: 200.0})
    assert (known.restart_s, known.sweep_s) == (100.0, 10 * 100 / 50 + 10 * 100 / 200)
    done = [Trial(number=1, choice={}, status="measured", restart_s=60.0, measure_s=30.0)]
    assert estimate.measured(known, done).each_s == 90.0
    assert estimate.minutes(40) == "about 40 s"
    assert estimate.minutes(3 * 3600) == "about 3.0 h"


def test_the_report_says_what_to_run_what_it_brought_and_what_was_not_tried() -> None:
    first = standing({"spec_steps": 3}, 100.0, first=True, trials=(0, 3))
    winner = standing({"spec_steps": 1}, 130.0, trials=(1,))
    tuning = Tuning(
        id="abc",
        server="s",
        target="gpu1:30000",
        title="mtp_steps: 4 candidates",
        phase="done",
        axes={"spec_steps": (0, 1, 2, 3)},
        objective="throughput",
        unit="tok/s",
        trials=(
            Trial(number=0, choice={"spec_steps": 3}, role="first", status="measured", value=100.0, half=1.0),
            Trial(number=2, choice={"spec_steps": 2}, status="failed", code="OOM", reason="no\nroom"),
            Trial(number=3, choice={"spec_steps": 3}, role="last", status="measured", value=80.0, half=1.0),
        ),
        left_out=(LeftOut({"spec_steps": 0}, "ceiling", "30 tok/s at most"),),
    )
    told = Told(
        workload="levels 8",
        first_line="serve --k 3",
        winner=winner,
        winner_line="serve --k 1",
        changes=("spec_steps: 3 -> 1",),
        found=(winner, first),
        effects=effects([winner, first]),
    )
    text = markdown(document(tuning, told))
    assert "**mtp_steps 1: 130 ± 1.3 tok/s, +30.0 % against the server as it ran.**" in text
    assert "- spec_steps: 3 -> 1" in text
    assert "serve --k 1" in text
    assert "- mtp_steps 2: OOM: no room" in text
    assert "30 tok/s at most" in text
    assert "the machine drifted" in text
    assert drift(tuning.trials[:1], 0.02) is None
    same = Told(workload="", first_line="serve", found=(first, standing({"spec_steps": 1}, 100.5)))
    kept = markdown(document(tuning, same))
    assert "is to be kept" in kept
    assert math.isclose(first.score.high, 101.0)

"""The result of a sweep as it is printed."""

from __future__ import annotations

from typing import Any

import pytest

from sweep_tools import level_result, page
from tokpit.cli.sweep_table import seconds, show_levels
from tokpit.domain.run import Level, Run
from tokpit.load.plan import Plan
from tokpit.load.results import Outcome
from tokpit.ops.sweep.checks import judged, level_of
from tokpit.ops.sweep.server import Seen

PLAN = Plan(url="http://h", levels=(12,), max_tokens=500)


def run_of(*levels: Level, **context: Any) -> Run:
    return Run(id="r1", kind="sweep", target="h:1", started_at=0.0, status="done", levels=levels, context=context)


def printed(capsys: pytest.CaptureFixture[str], run: Run) -> str:
    show_levels(run)
    return capsys.readouterr().out


def test_steady_stands_beside_whole_run_and_both_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, run_of(level_of(judged(level_result(), PLAN, Seen()), Seen())))
    head, row, legend = out.splitlines()[:3]
    assert head.index("STEADY") < head.index("WHOLE RUN")
    assert "620.0 ±9.0" in row
    assert "600.0" in row
    assert row.endswith("ok")
    assert legend.startswith("STEADY:")


def test_a_void_level_says_so_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    seen = Seen(before=page(gen_tokens_total=0), after=page(gen_tokens_total=40000))
    out = printed(capsys, run_of(level_of(judged(level_result(), PLAN, seen), seen)))
    assert "VOID, CLIENT_BOUND" in out.splitlines()[1]
    assert "C=12: VOID, CLIENT_BOUND: the server made 40000 tokens" in out
    assert "Do not trust: whole-run tok/s, steady tok/s, TTFT." in out


def test_errors_are_listed_by_class_with_the_first_one(capsys: pytest.CaptureFixture[str]) -> None:
    result = level_result(ok=30, err=6, outcomes={"ok": Outcome(30, ""), "5xx": Outcome(6, "503 \x1b[31mfull")})
    out = printed(capsys, run_of(level_of(judged(result, PLAN, Seen()), Seen())))
    assert "C=12: 6 x 5xx, first: 503 full" in out
    assert "REJECTED" in out
    assert "\x1b" not in out


def test_goodput_is_shown_where_an_slo_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, run_of(level_of(level_result(goodput_share=0.75, goodput_rps=0.9), Seen())))
    assert "75%" in out
    assert "0.90 req/s" in out
    assert "SLO MET" not in printed(capsys, run_of(level_of(level_result(), Seen())))


def test_repeats_give_an_interval_and_void_ones_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    levels = [
        level_of(level_result(steady_tps=value), Seen(), repeat=i) for i, value in enumerate((600.0, 620.0, 640.0))
    ]
    spoilt = level_of(level_result(steady_tps=9.0), Seen(), repeat=3)
    spoilt.result["void"] = "client"
    out = printed(capsys, run_of(*levels, spoilt))
    assert "620.0 ± 49.7 tok/s (8.0%), steady, 3 repeats" in out


def test_an_old_level_without_a_summary_is_still_shown(capsys: pytest.CaptureFixture[str]) -> None:
    bare = Level(concurrency=4, requests=8, ok=8, err=0, elapsed_s=10.0, output_tps=55.5, ttft_p50_s=0.2)
    row = printed(capsys, run_of(bare)).splitlines()[1]
    assert row.startswith("C=4")
    assert "200 ms" in row


@pytest.mark.parametrize(
    ("value", "text"), [(0.0042, "4.2 ms"), (0.25, "250 ms"), (0.9997, "1.00 s"), (12.345, "12.35 s"), (212.0, "212 s")]
)
def test_durations_have_three_digits_and_a_unit(value: float, text: str) -> None:
    assert seconds(value) == text

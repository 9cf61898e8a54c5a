"""What the sanity check concludes."""

from __future__ import annotations

import pytest

from tokpit.domain.records import LogRecord
from tokpit.domain.run import Level, Run
from tokpit.domain.settings import Settings
from tokpit.engines.registry import engine
from tokpit.ops.check.judge import (
    effects,
    flags_item,
    log_item,
    model_item,
    sense,
    settings_of_page,
    speed_item,
    stream_tps,
)

PROSE = "The harbour freezes in winter, so ships wait outside until the ice breaks and the pilots come back on duty."


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("the " * 48, "the same word"),
        ("The answer is " + "yes no " * 30, "the same 2 words"),
        ("!" * 60, "one character"),
        ("\ufffd" * 5 + " ab cd", "no text"),
    ],
)
def test_an_answer_without_sense_is_told(text: str, fault: str) -> None:
    assert fault in sense(text)


@pytest.mark.parametrize(
    "text", [PROSE, "Paris.", "2, 3, 5, 7, 11", "s[::-1]", "def f(s):\n    return s[::-1]", "好的。"]
)
def test_a_short_or_plain_answer_has_sense(text: str) -> None:
    assert sense(text) == ""


def test_the_wrong_model_is_told_and_a_path_is_the_same_model() -> None:
    wanted = Settings(model="/data/models/Blue-7B")
    assert model_item(wanted, ["Blue-7B"]).ok is True
    assert model_item(Settings(model="/data/x", served_name="blue"), ["blue", "lora-1"]).ok is True
    wrong = model_item(wanted, ["Red-7B"])
    assert wrong.ok is False
    assert "Red-7B" in wrong.sentence
    assert model_item(wanted, []).ok is False
    assert model_item(None, ["Blue-7B"]).ok is None


def test_settings_as_the_server_shows_them() -> None:
    sglang = engine("sglang")
    given = Settings(tp=2, mem_fraction=0.85, spec_method="mtp", metrics=True, context_len=8192)
    info = {"tp_size": 2, "mem_fraction_static": 0.85, "speculative_algorithm": "EAGLE", "enable_metrics": True}
    shown = settings_of_page(sglang, info, "0.5.11")
    good = flags_item(given, shown, {})
    assert good.ok is True
    assert good.sentence.startswith("4 settings")
    assert "not shown: context_len" in good.sentence
    bad = flags_item(given, settings_of_page(sglang, {**info, "tp_size": 1}, "0.5.11"), {})
    assert bad.ok is False
    assert bad.sentence == "tp 2 asked, 1 in effect"


def test_a_cap_below_the_one_asked_for_is_told() -> None:
    info = {"max_running_requests": 48, "internal_states": [{"effective_max_running_requests_per_dp": 9}]}
    shown = settings_of_page(engine("sglang"), info, "0.5.11")
    found = flags_item(Settings(max_running=48), shown, effects(info, {}, None))
    assert found.ok is False
    assert found.sentence == "max_running 48 asked, 9 in effect"
    from_log = flags_item(Settings(max_running=48), None, effects({}, {"max_running_requests": 48}, None))
    assert from_log.ok is True


def test_a_server_that_shows_nothing_is_not_judged() -> None:
    assert flags_item(Settings(tp=2), None, {}).ok is None


def test_errors_in_the_last_part_of_a_log_are_told() -> None:
    fine = [LogRecord(1, "text", "hello"), LogRecord(2, "decode_batch", "gen throughput: 9")]
    assert log_item(fine, "/l").ok is True
    bad = log_item([*fine, LogRecord(3, "failure.oom", "out of memory", level="error")], "/l")
    assert bad.ok is False
    assert "out of memory" in bad.sentence


def stored(concurrency: int, tpot_s: float) -> Run:
    level = Level(
        concurrency=concurrency,
        requests=8,
        ok=8,
        err=0,
        elapsed_s=9.0,
        output_tps=1.0,
        result={"tpot_s": {"p50": tpot_s}},
    )
    return Run(id="r1", kind="sweep", target="h:1", started_at=0.0, levels=(level,))


def test_speed_is_judged_against_the_floor_or_the_stored_run() -> None:
    assert stream_tps(stored(1, 0.02)) == 50.0
    assert stream_tps(stored(4, 0.02)) is None
    judge = {"min_tps": None, "baseline": stored(1, 0.02), "others": None}
    assert speed_item(49.0, **judge).ok is True
    slow = speed_item(40.0, **judge)
    assert slow.ok is False
    assert "80% of the 50.0 of run r1" in slow.sentence
    assert speed_item(40.0, **{**judge, "others": 3.0}).ok is None, "a shared server is not judged by a quiet one"
    assert speed_item(40.0, **{**judge, "min_tps": 39.0}).ok is True
    assert speed_item(40.0, **{**judge, "min_tps": 41.0}).ok is False
    assert speed_item(40.0, **{**judge, "baseline": None}).ok is None
    assert speed_item(None, **judge).ok is False

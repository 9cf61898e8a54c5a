"""The words that ask for a sweep: what they mean, and one sentence for those that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokpit.errors import UsageError
from tokpit.ops.sweep.plan import read_args, read_dataset, read_headers, read_rates, read_seconds, read_slo


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("20s", 20.0), (" 1.5 S ", 1.5), ("2m", 120.0), (".25s", 0.25), ("80us", 8e-5)],
)
def test_a_time_has_a_unit(text: str, seconds: float) -> None:
    assert read_seconds(text) == pytest.approx(seconds)


def test_an_slo_names_its_limits() -> None:
    assert read_slo("ttft=500ms, tpot=30ms,E2E=20s") == pytest.approx({"ttft_s": 0.5, "tpot_s": 0.03, "e2e_s": 20.0})
    assert read_slo("") == {}


def test_rates_are_text_or_numbers() -> None:
    assert read_rates("2, 0.5") == (2.0, 0.5)
    assert read_rates(3) == (3.0,)
    assert read_rates(None) == read_rates("") == ()


def test_datasets_by_kind_and_by_file(tmp_path: Path) -> None:
    assert read_dataset("builtin") == {}
    assert read_dataset("random:2048") == {"prompts": "random", "input_tokens": 2048}
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "one"}\n"two"\n', encoding="utf-8")
    assert read_dataset(str(rows))["prompt_rows"] == ({"prompt": "one"}, {"prompt": "two"})


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"levels": "8-1"}, "backwards"),
        ({"levels": "0"}, "starts at 1"),
        ({"slo": "ttft=0.5"}, "no unit"),
        ({"slo": "ttft=5 parsecs"}, "unit 'parsecs'"),
        ({"slo": "ttft=0s"}, "over 0"),
        ({"slo": "latency=5s"}, "no limit of an SLO"),
        ({"slo": "ttft=1s,ttft=2s"}, "twice"),
        ({"rates": "fast"}, "no rate"),
        ({"rates": "-1"}, "over 0"),
        ({"rates": "nan"}, "over 0"),
        ({"rates": "2"}, "number of requests or a duration"),
        ({"requests": 0}, "at least 1 request"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"duration_s": 0.0}, "duration must be over 0"),
        ({"dataset": "random:many"}, "no prompt length"),
        ({"dataset": "/no/such/file.jsonl"}, "nor a file that exists"),
        ({"dataset": "/"}, "cannot be read"),
        ({"turns": 0}, "turns is 0"),
        ({"prefix_share": 1.5}, "between 0 and 1"),
        ({"repeat": -1}, "at least 1"),
        ({"find": True}, "needs --slo"),
        ({"find": True, "slo": "ttft=1s", "rates": "1", "requests": 8}, "--rate"),
        ({"find": True, "slo": "ttft=1s", "repeat": 3}, "--repeat"),
        ({"source": "moon,,sun"}, "moon"),
        ({"headers": ("no colon",)}, "NAME: VALUE"),
        ({"headers": ("X-A: a\nb",)}, "NAME: VALUE"),
        ({"headers": ("Authorization: Bearer x",)}, "secret"),
    ],
)
def test_a_wrong_word_is_one_sentence(args: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_args(args)
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2


def test_conversations_of_a_file_are_held_to_their_end_unless_asked_otherwise(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"turns": ["a", "b", "c"]}\n{"turns": ["d"]}\n{"prompt": "e"}\n')
    assert read_args({"dataset": str(rows)}).fields["turns"] == 3
    assert read_args({"dataset": str(rows), "turns": 2}).fields["turns"] == 2
    assert "turns" not in read_args({"dataset": "builtin"}).fields


def test_a_dataset_with_a_bad_line_names_the_line(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "one"}\n{"text": 1}\n', encoding="utf-8")
    with pytest.raises(UsageError, match="line 2"):
        read_args({"dataset": str(rows)})


def test_the_key_comes_from_the_environment_and_a_header_from_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKPIT_API_KEY", "sk-1")
    assert read_headers(("X-Team:  search ",)) == {"X-Team": "search", "Authorization": "Bearer sk-1"}
    monkeypatch.setenv("TOKPIT_API_KEY", "sk-\n1")
    with pytest.raises(UsageError, match="TOKPIT_API_KEY"):
        read_headers(())


def test_a_search_goes_up_by_default() -> None:
    asked = read_args({"find": True, "slo": "e2e=9s"})
    assert asked.levels == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert "up to 256" in asked.title

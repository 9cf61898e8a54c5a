from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokpit.load.plan import Plan, Slo, Timeouts, read_rows


def test_a_plan_survives_json_whole() -> None:
    plan = Plan(
        url="http://10.0.0.2:30000",
        model="m",
        api="completions",
        levels=(1, 9),
        duration_s=12.5,
        timeouts=Timeouts(connect_s=1, first_s=None, between_s=3, total_s=40),
        slo=Slo(ttft_s=0.5),
        prompts="rows",
        prompt_rows=({"prompt": "Häuser"},),
        headers={"Authorization": "Bearer x"},
        extra_body={"top_k": 20},
        clock_factor=20,
        seed=7,
    )
    assert Plan.from_json(plan.to_json()) == plan


def test_header_values_stay_out_of_what_is_kept() -> None:
    plan = Plan(url="http://h", headers={"Authorization": "Bearer hunter2"})
    kept = json.dumps(plan.to_dict(secrets=False))
    assert "hunter2" not in kept
    assert "Authorization" in kept


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_the_endpoint_does_not_depend_on_how_the_base_is_written(url: str) -> None:
    assert Plan(url=url).endpoint == "http://h:1/v1/chat/completions"
    assert Plan(url=url, api="completions").endpoint == "http://h:1/v1/completions"
    assert Plan(url=url).models_url == "http://h:1/v1/models"


def test_requests_of_a_level_follow_the_first_story() -> None:
    plan = Plan(url="http://h")
    assert [plan.requests_at(c) for c in (1, 4, 8, 48)] == [8, 8, 16, 96]
    assert Plan(url="http://h", requests=5).requests_at(48) == 5
    assert Plan(url="http://h", duration_s=30).requests_at(48) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"url": "10.0.0.2"}, "http://"),
        ({"api": "responses"}, "chat or completions"),
        ({"levels": ()}, "no level"),
        ({"levels": (0,)}, "starts at 1"),
        ({"rates": (0.0,), "duration_s": 1}, "over 0"),
        ({"rates": (float("inf"),), "duration_s": 1}, "over 0"),
        ({"rates": (2.0,)}, "duration"),
        ({"arrival": "burst"}, "poisson"),
        ({"prompts": "rows"}, "no prompts"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"duration_s": 0}, "duration"),
        ({"requests": 0}, "1 request"),
        ({"clock_factor": 0}, "clock factor"),
        ({"prefix_share": 1.5}, "between 0 and 1"),
        ({"turns": 0}, "turns"),
    ],
)
def test_a_plan_that_cannot_run_is_refused_with_the_setting(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Plan.from_dict({"url": "http://h", **changes})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "object"),
        ("{}", "no url"),
        ('{"url":"http://h","colour":1}', "colour"),
        ('{"url":"http://h","slo":{"x":1}}', "x"),
    ],
)
def test_unreadable_plans_are_value_errors(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Plan.from_json(text)


def test_prompt_files_take_strings_prompts_messages_and_turns(tmp_path: Path) -> None:
    rows = ['"plain"', '{"prompt":"p"}', "", '{"messages":[{"role":"user","content":"m"}]}', '{"turns":["a","b"]}']
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(rows), encoding="utf-8")
    plan = Plan(url="http://h").with_file(path)
    assert [sorted(row) for row in plan.prompt_rows] == [["prompt"], ["prompt"], ["messages"], ["turns"]]


def test_a_bad_line_of_a_prompt_file_is_named() -> None:
    with pytest.raises(ValueError, match="line 2: not JSON"):
        read_rows('{"prompt":"x"}\n{oops\n')
    with pytest.raises(ValueError, match="line 1: no prompt"):
        read_rows('{"prompt":""}\n')
    with pytest.raises(ValueError, match="has no prompts"):
        read_rows("\n\n")

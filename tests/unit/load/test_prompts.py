from __future__ import annotations

import json
from typing import Any

from tokpit.load.plan import Plan
from tokpit.load.prompts import BUILTIN, PromptSource


def body(source: PromptSource, level: int, index: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(source.body(level, index, source.opening(level, index)))
    return found


def prompts(plan: Plan, nonce: str, count: int = 16, level: int = 0) -> list[Any]:
    source = PromptSource(plan, "m", nonce)
    found = [body(source, level, index) for index in range(count)]
    return [row["messages"][0]["content"] if "messages" in row else row["prompt"] for row in found]


def test_no_two_requests_share_a_prefix_by_accident() -> None:
    plan = Plan(url="http://h")
    seen = prompts(plan, "aa") + prompts(plan, "aa", level=1) + prompts(plan, "bb")
    assert len({text[:24] for text in seen}) == len(seen)


def test_the_same_seed_asks_the_same_questions_behind_another_mark() -> None:
    plan = Plan(url="http://h", seed=3)
    first, again = prompts(plan, "aa"), prompts(plan, "bb")
    assert [text.split(" ", 1)[1] for text in first] == [text.split(" ", 1)[1] for text in again]


def test_every_level_has_the_same_mix_of_eight_themes() -> None:
    source = PromptSource(Plan(url="http://h", unique_prefix=False), "m")
    assert [source.opening(2, index)[0]["content"] for index in range(8)] == list(BUILTIN)
    assert len(set(BUILTIN)) == 8


def test_a_shared_prefix_is_shared_as_far_as_asked() -> None:
    plan = Plan(url="http://h", prompts="random", input_tokens=200, prefix_share=0.5)
    first, second = (text.split(" ") for text in prompts(plan, "aa", count=2))
    assert first[:100] == second[:100]
    assert first[100] != second[100]
    assert first[101:] != second[101:]


def test_random_prompts_have_the_asked_number_of_words_or_ids() -> None:
    words = prompts(Plan(url="http://h", prompts="random", input_tokens=300), "aa", count=1)[0]
    assert len(words.split(" ")) == 301  # and the mark
    ids = prompts(Plan(url="http://h", prompts="random", input_tokens=300, api="completions"), "aa", count=2)
    assert [len(row) for row in ids] == [300, 300]
    assert ids[0] != ids[1]


def test_the_body_asks_for_usage_and_carries_the_sampling() -> None:
    plan = Plan(url="http://h", ignore_eos=True, continuous_usage=True, extra_body={"top_k": 20, "min_p": 0.0})
    found = body(PromptSource(plan, "the-model"), 0, 0)
    assert found["model"] == "the-model"
    assert found["stream"] is True
    assert found["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert (found["max_tokens"], found["temperature"], found["top_p"]) == (1024, 0.6, 0.95)
    assert (found["ignore_eos"], found["top_k"]) == (True, 20)


def test_nothing_unasked_is_sent() -> None:
    found = body(PromptSource(Plan(url="http://h", temperature=None, top_p=None), "m"), 0, 0)
    assert set(found) == {"model", "messages", "stream", "stream_options", "max_tokens"}


def test_rows_go_round_and_messages_keep_their_shape() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    plan = Plan(url="http://h", prompts="rows", prompt_rows=({"messages": messages}, {"prompt": "zwölf"}))
    source = PromptSource(plan, "m", "aa")
    assert [m["role"] for m in source.opening(0, 2)] == ["system", "user"]
    assert source.opening(0, 2)[0]["content"].endswith("Be brief.")
    assert messages[0]["content"] == "Be brief."
    assert body(source, 0, 1)["messages"][0]["content"].endswith("zwölf")


def test_turns_of_a_row_end_when_it_has_no_more() -> None:
    plan = Plan(url="http://h", prompts="rows", turns=5, prompt_rows=({"turns": ["a", "b"]},))
    source = PromptSource(plan, "m")
    assert source.follow_up(0, 1) == "b"
    assert source.follow_up(0, 2) is None

"""Starts that fail in the ways the field reports: each must give its code, its figures, and no other cause."""

from __future__ import annotations

import pytest

from failurelogs import judge
from startfailures import CASES, SGLANG, VLLM


@pytest.mark.parametrize(
    ("name", "log", "code", "figures", "phase"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_cause_is_named_with_its_figures(
    name: str, log: str, code: str, figures: dict[str, object], phase: str
) -> None:
    verdict = judge(name, log)
    assert verdict is not None
    assert verdict.code == code
    assert verdict.phase == phase
    assert {key: verdict.figures.get(key) for key in figures} == figures
    assert verdict.evidence
    assert verdict.sentence
    assert verdict.next_action
    assert "{" not in verdict.sentence.replace("{}", "")


@pytest.mark.parametrize(
    ("name", "log", "code", "figures", "phase"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_evidence_points_at_lines_of_the_log(
    name: str, log: str, code: str, figures: dict[str, object], phase: str
) -> None:
    verdict = judge(name, log)
    assert verdict is not None
    lines = log.split("\n")
    assert verdict.lines
    assert all(1 <= number <= len(lines) for number in verdict.lines)
    last_word = verdict.evidence[0].removesuffix("...").split()[-1]
    assert last_word in lines[verdict.lines[0] - 1]


def test_fixes_can_be_applied_with_one_key() -> None:
    state = judge("vllm", VLLM["more_sequences_than_state_blocks"][0])
    context = judge("vllm", VLLM["context_does_not_fit"][0])
    spec = judge("sglang", SGLANG["spec_without_buffers"][0])
    reserve = judge("sglang", SGLANG["reserve_explains_more_free_than_asked"][0])
    assert state is not None
    assert context is not None
    assert spec is not None
    assert reserve is not None
    assert state.fixes[0].settings == {"max_running": 201}
    assert context.fixes[0].settings == {"context_len": 39312}
    assert spec.fixes[0].settings == {"mamba_strategy": "extra_buffer"}
    assert spec.fixes[0].env == {"SGLANG_ENABLE_SPEC_V2": "1"}
    assert spec.fixes[1].settings == {"prefix_cache": False}
    assert reserve.fixes[0].settings == {"hicache_gb": 53}


def test_arithmetic_can_be_checked_by_hand() -> None:
    capture = judge("vllm", VLLM["oom_while_capturing"][0])
    reserve = judge("sglang", SGLANG["reserve_explains_more_free_than_asked"][0])
    assert capture is not None
    assert reserve is not None
    assert capture.arithmetic == "asked 210.00 MiB - free 88.75 MiB = 121.25 MiB short"
    assert reserve.arithmetic == "free 63.41 GB - 10 GB reserve = 53.41 GB usable < 60.00 GB asked"


def test_orphans_are_looked_for_before_memory_is_raised() -> None:
    verdict = judge("vllm", VLLM["nothing_left_for_the_cache"][0])
    assert verdict is not None
    action = verdict.next_action
    assert action.index("other processes") < action.index("raise")


def test_memory_advice_is_not_repeated_for_a_compiler_error() -> None:
    verdict = judge("sglang", SGLANG["compiler_behind_the_memory_advice"][0])
    assert verdict is not None
    assert "don't lower memory" in verdict.next_action


def test_secrets_stay_out_of_evidence() -> None:
    verdict = judge("sglang", "sglang serve: error: unrecognized arguments: --api-key sk-very-secret --foo")
    assert verdict is not None
    assert "sk-very-secret" not in repr(verdict)

"""From flags to a server or a failed start."""

from __future__ import annotations

import pytest

from tokpit.sim import args, story
from tokpit.sim.plan import Plan, StartError, acceptance, check_graph_memory, check_host_memory, make_plan, total_gib
from tokpit.sim.startup import moments

BASE = ("--model-path", "m")
HYBRID = (*BASE, "--mamba-scheduler-strategy", "extra_buffer")
MTP = (*HYBRID, "--speculative-algorithm", "NEXTN")


def plan_of(*flags: str, free_gib: float | None = None) -> Plan:
    return make_plan(args.parse(list(flags), "launch_server.py"), total_gib() if free_gib is None else free_gib)


def test_story_flags_give_nine_running_requests() -> None:
    plan = plan_of(*BASE, *story.FLAGS)

    assert (plan.cap, plan.slots, plan.slots_per_request) == (9, 48, 5)
    assert plan.accept_len == pytest.approx(3.2)
    assert 1000 * plan.step_s(8) == pytest.approx(69.0, abs=1.0)


@pytest.mark.parametrize(
    ("flags", "slots_per_request"),
    [
        ((*BASE, "--disable-radix-cache"), 1),
        (BASE, 3),
        ((*HYBRID, "--disable-overlap-schedule"), 4),
        (HYBRID, 5),
    ],
)
def test_strategy_decides_slots_per_request(flags: tuple[str, ...], slots_per_request: int) -> None:
    plan = plan_of(*flags, "--max-mamba-cache-size", "60")

    assert plan.slots_per_request == slots_per_request
    assert plan.cap == 60 // slots_per_request


def test_explicit_running_limit_wins_where_it_is_lower() -> None:
    assert plan_of(*MTP, "--max-mamba-cache-size", "48", "--max-running-requests", "4").cap == 4


def test_deeper_drafts_accept_more_and_cost_more() -> None:
    lengths = [acceptance(k) for k in range(9)]
    limited = (*MTP, "--max-running-requests", "9")
    steps = [plan_of(*limited, "--speculative-num-steps", str(k)).step_s(1) for k in range(9)]

    assert lengths == sorted(lengths)
    assert lengths[0] == 1.0
    assert lengths[3] == pytest.approx(story.ACCEPT_LEN)
    assert steps == sorted(steps)


def test_deep_drafts_without_a_running_limit_reserve_more_than_the_gpu_has() -> None:
    with pytest.raises(StartError, match="try to increase --mem-fraction-static"):
        plan_of(*MTP, "--speculative-num-steps", "8")


def test_plain_decoding_gives_the_measured_rate_without_speculation() -> None:
    plan = plan_of(*HYBRID)

    assert plan.accept_len / plan.step_s(1) == pytest.approx(26.7, rel=0.03)


@pytest.mark.parametrize(
    ("flags", "kind", "words"),
    [
        ((*MTP, "--tp-size", "2"), "torch.AcceleratorError", "invalid device ordinal"),
        ((*MTP, "--mem-fraction-static", "0.6"), "RuntimeError", "try to increase --mem-fraction-static"),
        ((*BASE, "--enable-hierarchical-cache", "--disable-radix-cache"), "ValueError", "mutually exclusive"),
        ((*BASE, "--speculative-algorithm", "NEXTN"), "ValueError", "SGLANG_ENABLE_SPEC_V2=1"),
    ],
)
def test_flags_that_cannot_work_fail_with_the_engines_words(flags: tuple[str, ...], kind: str, words: str) -> None:
    with pytest.raises(StartError) as failed:
        plan_of(*flags)

    assert failed.value.kind == kind
    assert words in failed.value.text


def test_occupied_gpu_fails_while_loading() -> None:
    with pytest.raises(StartError) as failed:
        plan_of(*MTP, free_gib=20.0)

    assert failed.value.stage == "load"
    assert "CUDA out of memory" in failed.value.text


def test_static_share_that_leaves_nothing_fails_at_capture() -> None:
    greedy = plan_of(*MTP, "--mem-fraction-static", "0.99")
    usual = plan_of(*MTP, "--mem-fraction-static", "0.85")

    check_graph_memory(usual, total_gib())
    with pytest.raises(StartError, match="Capture cuda graph failed"):
        check_graph_memory(greedy, total_gib())


def test_host_pool_is_refused_within_the_reserve_of_ten_gib() -> None:
    check_host_memory(150.0, 161_000_000_000)
    with pytest.raises(StartError, match=r"Requesting 150\.00 GB but only have 149\.26 GB free"):
        check_host_memory(150.0, 160_000_000_000)


def test_measured_server_is_ready_after_150_seconds() -> None:
    parsed = args.parse([*BASE, *story.FLAGS], "launch_server.py")
    steps = list(moments(parsed, make_plan(parsed, total_gib()), total_gib()))
    text = "\n".join(m.text for m in steps)

    assert [m.at_s for m in steps] == sorted(m.at_s for m in steps)
    assert steps[-1].at_s == pytest.approx(story.START_S, abs=1.0)
    assert steps[-1].text == "The server is fired up and ready to roll!"
    assert "Allocating 150.00 GB host memory for hierarchical KV cache." in text
    assert "Allocating 150.10 GB host memory for hierarchical Mamba cache" in text
    assert "max_running_requests=9," in text


def test_start_without_host_cache_allocates_none_and_is_shorter() -> None:
    parsed = args.parse([*MTP], "launch_server.py")
    steps = list(moments(parsed, make_plan(parsed, total_gib()), total_gib()))

    assert steps[-1].at_s < 100
    assert not any("Allocating" in m.text for m in steps)

"""A start followed by its log: steps, phases, what is stuck, and why a ready line alone proves nothing."""

# ruff: noqa: E501 - log lines are as long as they are
from __future__ import annotations

import pytest

from tokpit.engines.llamacpp.milestones import MILESTONES as LLAMACPP
from tokpit.engines.logkit.progress import StartTracker
from tokpit.engines.logkit.read import grammar_of, read_log
from tokpit.engines.sglang.milestones import MILESTONES as SGLANG
from tokpit.engines.vllm.milestones import MILESTONES as VLLM


def start(engine: str, milestones, lines, *, t0: float = 100.0, started_t: float | None = None) -> StartTracker:
    tracker = StartTracker(milestones, started_t)
    for offset, line in lines:
        for record in read_log([line], engine):
            tracker.observe(record, t0 + offset)
    return tracker


SGLANG_START = [
    (0, "[2026-08-03 10:00:00] server_args={'model_path': '/m'}"),
    (5, "[2026-08-03 10:00:05 TP0] Init torch distributed begin."),
    (8, "[2026-08-03 10:00:08 TP0] Init torch distributed ends. mem usage=0.20 GB"),
    (9, "[2026-08-03 10:00:09 TP0] Load weight begin. avail mem=70.10 GB"),
    (20, "Loading safetensors checkpoint shards:  50% Completed | 4/8 [00:03<00:01,  1.55it/s]"),
    (30, "[2026-08-03 10:00:30 TP0] Load weight end. elapsed=21.00 s, type=X, avail mem=40.00 GB, mem usage=30.10 GB."),
    (31, "[2026-08-03 10:00:31 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 7000, KV size: 1.70 GB"),
    (32, "[2026-08-03 10:00:32 TP0] Memory pool end. avail mem=5.00 GB"),
    (33, "[2026-08-03 10:00:33 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=5.00 GB"),
    (
        50,
        "[2026-08-03 10:00:50 TP0] Capture cuda graph end. Time elapsed: 17.00 s. mem usage=1.00 GB. avail mem=4.00 GB.",
    ),
    (51, "[2026-08-03 10:00:51 TP0] max_total_num_tokens=7000, chunked_prefill_size=2048, max_prefill_tokens=9000"),
    (55, "[2026-08-03 10:00:55] INFO:     Uvicorn running on http://127.0.0.1:31000 (Press CTRL+C to quit)"),
    (60, "[2026-08-03 10:01:00] The server is fired up and ready to roll!"),
]


def test_a_start_is_told_step_by_step_with_the_time_since_it_began():
    tracker = start("sglang", SGLANG, SGLANG_START, started_t=98.0)
    assert [s.kind for s in tracker.steps][:2] == ["milestone.args", "milestone.dist_begin"]
    assert [s.elapsed_s for s in tracker.steps][:2] == [2.0, 7.0]
    assert tracker.steps[-1].elapsed_s == 62.0
    assert tracker.phase == "ready"
    assert tracker.ready_hint
    assert tracker.stuck(10_000) is None


@pytest.mark.parametrize(
    ("upto", "phase"),
    [(1, "starting"), (4, "loading"), (8, "loading"), (9, "capturing"), (12, "capturing"), (13, "ready")],
)
def test_the_phase_follows_the_newest_milestone(upto, phase):
    assert start("sglang", SGLANG, SGLANG_START[:upto]).phase == phase


def test_silence_beyond_the_usual_time_names_the_usual_cause():
    tracker = start("sglang", SGLANG, SGLANG_START[:2])
    assert tracker.stuck(105 + 50) is None
    sentence = tracker.stuck(105 + 300)
    assert "joining the process group" in sentence
    assert "5 min 00 s" in sentence
    assert "NCCL" in sentence


def test_a_moving_bar_is_progress_and_a_standing_one_is_not():
    tracker = start("sglang", SGLANG, SGLANG_START[:4])
    grammar = grammar_of("sglang")

    def bar(done: int, t: float) -> None:
        for record in grammar.feed(
            f"Loading safetensors checkpoint shards: {10 * done}% Completed | {done}/10 [00:03<00:01]"
        ):
            tracker.observe(record, t)

    bar(1, 250.0)
    bar(2, 420.0)
    assert tracker.stuck(500.0) is None
    for t in (500.0, 550.0, 600.0, 650.0):
        bar(2, t)
    sentence = tracker.stuck(650.0)
    assert "2/10" in sentence
    assert "disk" in sentence


def test_steps_of_a_step_are_progress():
    begin = (0, "(Worker pid=7) INFO 08-03 10:00:00 [a.py:1] Dynamo bytecode transform time: 4.00 s")
    graph = (
        290,
        "(Worker pid=7) INFO 08-03 10:04:50 [a.py:1] Compiling a graph for compile range (1, 64) takes 22.40 s",
    )
    assert start("vllm", VLLM, [begin]).stuck(100 + 500) is not None
    assert start("vllm", VLLM, [begin, graph]).stuck(100 + 500) is None


def test_a_ready_line_after_a_failed_bind_is_not_believed():
    lines = [
        *SGLANG_START[:-2],
        (
            52,
            "[2026-08-03 10:00:52] ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 31000): address already in use",
        ),
        SGLANG_START[-1],
    ]
    tracker = start("sglang", SGLANG, lines)
    assert not tracker.ready_hint
    assert tracker.phase == "failed"
    assert tracker.failure.kind == "failure.port_bind"


def test_the_first_failure_is_kept_not_the_last():
    lines = [
        (
            0,
            "(Worker_TP1 pid=7) ERROR 08-03 10:00:00 [w.py:1] ValueError: max_num_seqs (64) exceeds available Mamba cache blocks (9).",
        ),
        (
            1,
            "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        ),
    ]
    assert start("vllm", VLLM, lines).failure.kind == "failure.mamba_blocks"


def test_one_worker_warning_is_normal_and_three_are_stuck():
    line = "(EngineCore pid=7) INFO 08-03 10:00:00 [s.py:1] No available shared memory broadcast block found in 60 seconds."
    begin = (
        0,
        "(EngineCore pid=7) INFO 08-03 10:00:00 [a.py:1] Model loading took 3.10 GiB memory and 4.000000 seconds",
    )
    assert start("vllm", VLLM, [begin, (60, line)]).stuck(165.0) is None
    assert "model in memory" in start("vllm", VLLM, [begin, (60, line), (120, line), (180, line)]).stuck(285.0)


def test_nothing_at_all_in_the_log_is_stuck_as_well():
    tracker = StartTracker(SGLANG, started_t=0.0)
    assert tracker.stuck(60.0) is None
    assert "first line of its log" in tracker.stuck(600.0)
    assert tracker.phase == "starting"


@pytest.mark.parametrize("milestones", [SGLANG, VLLM, LLAMACPP])
def test_every_milestone_but_the_last_has_a_limit_and_a_cause(milestones):
    assert milestones[-1].kind == "milestone.ready"
    assert len({m.kind for m in milestones}) == len(milestones)
    for milestone in milestones[:-1]:
        assert milestone.usual_s > 0
        assert milestone.stuck_hint
        assert milestone.phase in {"starting", "loading", "capturing"}

"""SGLang's log: heads, what other programs do to lines, and samples that do not mislead."""

# ruff: noqa: E501 - log lines are as long as they are
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokpit.engines.sglang.grammar import new


def feed(text: str):
    grammar = new()
    records = [record for line in text.split("\n") for record in grammar.feed(line)]
    return grammar, [*records, *grammar.flush()]


def samples(text: str):
    grammar = new()
    return [grammar.sample(record) for line in text.split("\n") for record in grammar.feed(line)]


def decode(ts: str, tps: float, *, running: int = 2, ranks: str = "", queue: int = 0, spec: str = "") -> str:
    return (
        f"[2026-08-03 {ts}{ranks}] Decode batch, #running-req: {running}, #token: 900, token usage: 0.03, {spec}"
        f"cuda graph: True, gen throughput (token/s): {tps:.2f}, #queue-req: {queue}"
    )


def prefill(ts: str, *, running: int = 0, tps: float = 500.0) -> str:
    return (
        f"[2026-08-03 {ts}] Prefill batch, #new-seq: 1, #new-token: 80, #cached-token: 20, token usage: 0.00, "
        f"#running-req: {running}, #queue-req: 3, #pending-token: 0, cuda graph: False, "
        f"input throughput (token/s): {tps:.2f}"
    )


def test_any_set_of_rank_tags_is_read_and_free_words_do_not_hide_the_message():
    text = """[2026-08-03 01:02:03 ATTN_CP3 TP3] Allocating 90.00 GB host memory for hierarchical KV cache.
[2026-08-03 01:02:03 PP1 TP2] Scheduler watchdog timeout (self.watchdog_timeout=240, self.soft=True)
[2026-08-03 01:02:03 DP1 PP0 MOE_DP1 TP0 EP2] Load weight end.
[2026-08-03 01:02:03 DisaggregationMode.PREFILL TP1] Load weight begin.
[TP2] Load weight begin.
[2026-08-03 01:02:03.456 TP0] words"""
    _, records = feed(text)
    assert [r.kind for r in records] == [
        "milestone.hicache_kv",
        "failure.watchdog",
        "milestone.load_end",
        "milestone.load_begin",
        "milestone.load_begin",
        "text",
    ]
    assert records[0].fields["attn_cp_rank"] == 3
    assert records[1].fields["soft"] is True
    assert {records[2].fields[n] for n in ("dp_rank", "moe_dp_rank")} == {1}
    assert records[3].fields["mode"] == "PREFILL"
    assert "ts" not in records[4].fields
    assert records[5].fields["ts_ms"] == 456


def test_new_keys_are_kept_and_do_not_cost_the_known_ones():
    line = decode("10:00:00", 50, spec="#cached-token: 7, brand new: 12.5 GB, ")
    for _ in range(2):
        (record,) = new().feed(line)
        assert record.fields["gen_tps"] == 50
        assert record.fields["cached_tokens"] == 7
        assert record.extras == {"brand new": "12.5 GB"}


def test_nan_and_inf_are_unknown_and_cost_only_themselves():
    grammar = new()
    plain = decode("10:00:00", 50)
    for value in ("nan%", "inf%", "nan"):
        (record,) = grammar.feed(f"{plain}, fwd occupancy: {value}")
        assert record.fields["fwd_occupancy"] is None
        assert record.fields["gen_tps"] == 50
    (record,) = grammar.feed(f"{plain}, fwd occupancy: 88.50%")
    assert record.fields["fwd_occupancy"] == 0.885
    (record,) = grammar.feed(plain.replace("50.00", "nan"))
    assert record.fields["gen_tps"] is None
    assert "gen_tps" not in grammar.sample(record)


def test_a_missing_field_is_absent_not_zero():
    (record,) = new().feed("[2026-08-03 10:00:00] Decode batch, #running-req: 2, gen throughput (token/s): 9.00")
    assert "queue_reqs" not in record.fields
    assert "queue_reqs" not in new().sample(record)


def test_two_records_on_one_line_are_two_records_and_the_line_is_kept_once():
    line = "[2026-08-03 10:00:00 TP0] Load weight begin. avail mem=70.10 GB[2026-08-03 10:00:00 TP1] Load weight begin."
    _, records = feed(f"{line}\n\n[2026-08-03 10:00:01 TP2] Load weight begin.")
    assert [r.fields.get("tp_rank") for r in records if r.kind != "text"] == [0, 1, 2]
    assert [r.lines for r in records] == [(line,), (), ("",), ("[2026-08-03 10:00:01 TP2] Load weight begin.",)]


def test_the_inner_head_wins_over_that_of_a_wrapper():
    text = """2026-08-03 10:00:00,531 - app.main - INFO - [2026-08-03 10:00:00 TP0] Init torch distributed begin.
2026-08-03 10:00:00,532 - app.main - WARNING - Attempt 4: not ready yet
2025-08-03 10:00:00 INFO 1519 [scheduler_metrics_mixin.py:287] Decode batch. #running-req: 4, #token: 38, gen throughput (token/s): 54.00, #queue-req: 0, """
    _, records = feed(text)
    assert [r.kind for r in records] == ["milestone.dist_begin", "text", "decode_batch"]
    assert records[0].fields["ts"] == "2026-08-03 10:00:00"
    assert records[1].level == "warning"
    assert records[1].text == "Attempt 4: not ready yet"


def test_lines_of_torch_itself_are_text_with_a_level():
    _, records = feed("3: [rank3]:[W305 03:55:35.242042106 socket.cpp:462] [c10d]")
    assert [(r.kind, r.level) for r in records] == [("text", "warning")]


def test_access_lines_carry_path_and_status():
    _, records = feed(
        '[2026-08-03 10:00:00] INFO:     10.1.1.1:999 - "GET /health HTTP/1.1" 200 OK\n'
        'INFO:     10.1.1.1:999 - "POST /generate HTTP/1.1" 503 Service Unavailable'
    )
    assert [(r.kind, r.fields["path"], r.fields["status"]) for r in records] == [
        ("access", "/health", 200),
        ("access", "/generate", 503),
    ]


def test_the_prefill_of_a_health_check_is_marked_and_gives_no_sample():
    probe = prefill("10:00:00").replace("#new-token: 80, #cached-token: 20", "#new-token: 1, #cached-token: 0")
    grammar = new()
    (record,) = grammar.feed(probe)
    assert record.fields["probe"] is True
    assert grammar.sample(record) == {}
    (real,) = grammar.feed(prefill("10:00:01"))
    assert "probe" not in real.fields


def test_ranks_add_up_and_acceptance_is_weighted_by_the_running_requests():
    text = "\n".join(
        decode("10:00:00", tps, running=run, ranks=f" DP{i} TP{i}", queue=q, spec=f"accept len: {length:.2f}, ")
        for i, (run, tps, q, length) in enumerate(((9, 180.0, 0, 2.9), (9, 175.5, 1, 2.5), (3, 61.25, 2, 2.0)))
    )
    last = samples(text)[-1]
    assert last["gen_tps"] == pytest.approx(416.75)
    assert last["running_reqs"] == 21
    assert last["queue_reqs"] == 3
    assert last["accept_len"] == pytest.approx((9 * 2.9 + 9 * 2.5 + 3 * 2.0) / 21)
    assert last["step_ms"] == pytest.approx(1000 * (9 * 2.9 + 9 * 2.5 + 3 * 2.0) / 416.75)


def test_a_rank_counts_once_however_often_it_prints():
    text = "\n".join(decode(f"10:00:0{i}", 100 + i, ranks=" DP0 TP0") for i in range(4))
    assert samples(text)[-1]["gen_tps"] == 103


def test_the_first_decode_line_after_idle_gives_no_rate_but_its_counts():
    got = samples(
        "\n".join(
            (decode("10:00:00", 60), prefill("10:08:00", tps=0.06), decode("10:08:01", 0.08), decode("10:08:02", 61))
        )
    )
    assert [s.get("gen_tps") for s in got] == [60, None, None, 61]
    assert "step_ms" not in got[2]
    assert got[2]["running_reqs"] == 2
    assert "prompt_tps" not in got[1]


def test_a_slow_decode_line_while_requests_run_is_a_finding_not_a_gap():
    lines = [decode("10:00:00", 60), decode("10:00:01", 60), decode("10:00:02", 60)]
    lines += [prefill(f"10:00:{s:02d}", running=40) for s in range(3, 20)]
    got = samples("\n".join([*lines, decode("10:00:20", 4.0, running=41)]))
    assert got[-1]["gen_tps"] == 4.0


def test_short_requests_one_after_another_keep_their_rate():
    lines = []
    for second in range(0, 20, 2):
        lines += [prefill(f"10:00:{second:02d}"), decode(f"10:00:{second + 1:02d}", 70, running=1)]
    assert [s["gen_tps"] for s in samples("\n".join(lines)) if "running_reqs" in s] == [70] * 10


def test_the_first_rate_after_the_start_counts_the_start_and_is_left_out():
    text = f"[2026-08-03 09:59:00] The server is fired up and ready to roll!\n{decode('10:00:00', 0.4)}"
    limits = "[2026-08-03 09:58:00] max_total_num_tokens=1, chunked_prefill_size=2, max_prefill_tokens=3, max_running_requests=7"
    got = samples(f"{limits}\n{text}\n{decode('10:00:01', 66)}")
    assert got[0] == {"max_running_reqs": 7}
    assert "gen_tps" not in got[2]
    assert got[3]["gen_tps"] == 66


def test_usage_is_that_of_the_full_pool_where_there_are_several():
    line = (
        "[2026-08-03 10:00:00] Decode batch, #running-req: 6, #full token: 2000, full token usage: 0.08, "
        "#swa token: 90, swa token usage: 0.31, mamba num: 24, mamba usage: 0.75, accept len: 2.50, accept rate: 0.50, "
        "cuda graph: True, gen throughput (token/s): 300.00, #queue-req: 11"
    )
    (got,) = samples(line)
    assert got["kv_usage"] == 0.08
    assert got["swa_usage"] == 0.31
    assert (got["state_slots"], got["state_usage"]) == (24, 0.75)
    assert got["step_ms"] == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("length", "printed", "args", "expected"),
    [
        (1.8, 0.9, "", 0.8),  # older meaning: length / 2 tokens
        (1.95, 0.49, "", 0.95 / 3),  # older meaning: length / 4 tokens
        (1.75, 0.75, "", 0.75),
        (2.5, 0.5, "", 0.5),
        (2.0, 0.5, "'speculative_num_draft_tokens': 4", 1 / 3),
    ],
)
def test_the_acceptance_rate_never_counts_the_bonus_token_whatever_the_release_printed(length, printed, args, expected):
    lines = [f"[2026-08-03 09:00:00] server_args={{{args}}}"] if args else []
    lines.append(decode("10:00:00", 60, spec=f"accept len: {length:.2f}, accept rate: {printed:.2f}, "))
    assert samples("\n".join(lines))[-1]["accept_rate"] == pytest.approx(expected, abs=0.002)


def test_the_newest_releases_name_the_process_group_differently():
    _, records = feed(
        "[2026-08-03 10:00:00] Init parallel begin.\n[2026-08-03 10:00:01] Init parallel ends. elapsed=0.30 s"
    )
    assert [r.kind for r in records] == ["milestone.dist_begin", "milestone.dist_end"]
    assert records[1].fields["elapsed_s"] == 0.3


def test_a_retraction_is_a_sample_of_its_own():
    (got,) = samples(
        "[2026-08-03 10:00:00] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_tokens_gained: 9"
    )
    assert got == {"retracted_reqs": 3}


def test_a_bar_with_carriage_returns_is_one_record_with_its_last_state():
    line = "\r".join(
        f"Loading safetensors checkpoint shards: {100 * i // 8:3d}% Completed | {i}/8 [00:0{i}<00:01,  1.0it/s]"
        for i in range(9)
    )
    _, (record,) = feed(line)
    assert record.kind == "progress.load_shards"
    assert (record.fields["done"], record.fields["progress"]) == (8, 1.0)
    assert record.lines == (line,)


def test_a_head_glued_to_the_end_of_a_bar_is_a_record_of_its_own():
    bar = "Loading safetensors checkpoint shards: 100% Completed | 3/3 [00:09<00:00,  3.1s/it]"
    _, records = feed(f"{bar}[2026-08-03 10:00:00 TP0] Load weight end. elapsed=9.10 s, type=X, mem usage=3.00 GB.")
    assert [r.kind for r in records] == ["progress.load_shards", "milestone.load_end"]


LINES = st.one_of(
    st.builds(
        decode,
        st.integers(0, 200).map(lambda s: f"10:{s // 60:02d}:{s % 60:02d}"),
        st.floats(0, 900),
        running=st.integers(0, 9),
        ranks=st.sampled_from(["", " DP0", " DP1 TP0"]),
        queue=st.integers(0, 3),
        spec=st.sampled_from(["", "accept len: 2.50, accept rate: 0.50, ", "accept len: 3.10, accept rate: 0.70, "]),
    ),
    st.builds(prefill, st.integers(0, 59).map(lambda s: f"10:01:{s:02d}"), running=st.integers(0, 2)),
    st.sampled_from(["[2026-08-03 10:02:00] Load weight begin.", "words"]),
)


@settings(max_examples=200, deadline=None)
@given(lines=st.lists(LINES, max_size=30), after=LINES)
def test_lines_that_came_together_tell_the_newest_of_each_figure_and_leave_the_reader_as_one_by_one(lines, after):
    one, all_at_once = new(), new()
    newest: dict[str, float] = {}
    records = []
    for line in lines:
        for record in one.feed(line):
            newest.update(one.sample(record))
        records += all_at_once.feed(line)
    told = all_at_once.samples(records)
    assert told.items() <= newest.items()
    # A rate is left out where the last line's is gated, a figure where the last line has none.
    assert set(newest) - set(told) <= {"gen_tps", "step_ms", "accept_len", "accept_rate"}
    assert [one.sample(r) for r in one.feed(after)] == [all_at_once.sample(r) for r in all_at_once.feed(after)]

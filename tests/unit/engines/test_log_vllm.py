"""vLLM's log: prefixes, colours, stamps without a year, and samples over engines and processes."""

# ruff: noqa: E501 - log lines are as long as they are
from __future__ import annotations

from itertools import pairwise

import pytest

from tokpit.engines.logkit.clock import Clock
from tokpit.engines.vllm.grammar import new


def stats(
    engine: str, tps: float, *, pid: int = 9, running: int = 2, ts: str = "08-03 10:00:00", kv: str = "10.0%"
) -> str:
    return (
        f"(APIServer pid={pid}) INFO {ts} [loggers.py:271] {engine}Avg prompt throughput: 5.0 tokens/s, "
        f"Avg generation throughput: {tps} tokens/s, Running: {running} reqs, Waiting: 1 reqs, "
        f"GPU KV cache usage: {kv}, Prefix cache hit rate: 25.0%"
    )


def samples(*lines: str):
    grammar = new()
    return [grammar.sample(record) for line in lines for record in grammar.feed(line)]


def test_colours_around_each_part_of_the_prefix_do_not_hide_the_values():
    line = (
        "\x1b[0;36m(APIServer pid=3) \x1b[0;0m \x1b[32mINFO \x1b[0m \x1b[90m08-03 13:15:43 \x1b[0m \x1b[90m[loggers.py:9] "
        "\x1b[0m Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 234.5 tokens/s, "
        "Running: 6 reqs, Waiting: 2 reqs, GPU KV cache usage: 7.5%, Prefix cache hit rate: 0.0%"
    )
    (record,) = new().feed(line)
    assert record.kind == "stats"
    assert (record.fields["gen_tps"], record.fields["running_reqs"], record.fields["kv_usage"]) == (234.5, 6, 0.075)
    assert "\x1b" not in record.text


@pytest.mark.parametrize(
    ("line", "process"),
    [
        (
            "(VllmWorker rank=0 pid=31) INFO 08-03 10:00:00 [monitor.py:33] torch.compile takes 5.50 s in total",
            "VllmWorker",
        ),
        (
            "(Worker_TP7_EP7 pid=31) INFO 08-03 10:00:00 [monitor.py:33] torch.compile took 5.50 s in total",
            "Worker_TP7_EP7",
        ),
        ("INFO 08-03 10:00:00 monitor.py:33] torch.compile takes 5.50 s in total", None),
        ("INFO 08-03 10:00:00 [monitor.py:33] torch.compile takes 5.50 s in total", None),
    ],
)
def test_every_prefix_of_a_process_is_read(line, process):
    for _ in range(2):
        (record,) = new().feed(line)
        assert record.kind == "milestone.compile_total"
        assert record.fields["elapsed_s"] == 5.5
        assert record.fields.get("process") == process


def test_stamps_without_a_year_keep_rising_over_new_year():
    clock = Clock(2026)
    times = [clock.seconds(s) for s in ("12-31 23:59:58", "01-01 00:00:03", "01-01 00:00:04", "02-28 12:00:00")]
    assert [b - a for a, b in pairwise(times)][:2] == [5, 1]
    assert times == sorted(times)


def test_the_clock_of_llama_server_is_minutes_and_seconds_since_start():
    assert Clock().seconds("0.34.250.125") == pytest.approx(34.250125)
    assert Clock().seconds("2.01.000.000") == 121
    assert Clock().seconds("no stamp") is None
    assert Clock().seconds("2026-02-31 10:00:00") is None


def test_engines_add_up_and_the_fullest_cache_counts():
    got = samples(stats("Engine 000: ", 100.0, kv="12.0%"), stats("Engine 001: ", 50.0, kv="97.0%"))
    assert got[1] == {
        "gen_tps": 150,
        "prompt_tps": 10,
        "running_reqs": 4,
        "queue_reqs": 2,
        "kv_usage": 0.97,
        "prefix_hit_rate": 0.25,
    }


def test_several_api_servers_share_the_tokens_but_not_the_requests():
    got = samples(stats("Engine 000: ", 100.0, pid=9), stats("Engine 000: ", 40.0, pid=10))[-1]
    assert got["gen_tps"] == 140
    assert got["running_reqs"] == 2


def test_an_engine_that_fell_silent_no_longer_counts():
    got = samples(stats("Engine 000: ", 100.0), stats("Engine 001: ", 50.0, ts="08-03 10:20:00"))
    assert got[-1]["gen_tps"] == 50


def test_the_aggregated_line_stands_for_all_engines():
    got = samples(stats("Engine 000: ", 100.0), stats("4 Engines Aggregated: ", 390.0, running=30))
    assert (got[-1]["gen_tps"], got[-1]["running_reqs"]) == (390, 30)


def test_deferred_requests_are_part_of_the_waiting_ones():
    line = stats("Engine 000: ", 1.0).replace("Waiting: 1 reqs", "Waiting: 8 reqs, Deferred: 3 reqs, Preemptions: 2")
    grammar = new()
    (record,) = grammar.feed(line)
    assert record.fields["deferred_reqs"] == 3
    got = grammar.sample(record)
    assert (got["queue_reqs"], got["preemptions"]) == (8, 2)


def test_vllm_prints_no_step_time_so_none_is_made_up():
    assert "step_ms" not in samples(stats("Engine 000: ", 100.0))[0]
    line = (
        "Engine 000: Iteration(7): 0 context requests, 0 context tokens, 4 generation requests, 4 generation tokens, "
        "iteration elapsed time: 19.50 ms"
    )
    assert samples(line)[0] == {"step_ms": 19.5}


def test_every_layout_of_the_speculation_line_gives_length_rate_and_positions():
    old = (
        "INFO 08-03 10:00:00 [metrics.py:9] SpecDecoding metrics: Draft acceptance rate: 80.0%, Mean acceptance length: "
        "3.40, Accepted: 240 tokens, Drafted: 300 tokens, Per-position acceptance rate: 0.950, 0.850, 0.600"
    )
    v0 = (
        "INFO 08-03 10:00:00 metrics.py:367] Speculative metrics: Draft acceptance rate: 0.571, System efficiency: 0.498, "
        "Number of speculative tokens: 2, Number of accepted tokens: 47, Number of draft tokens: 133, "
        "Number of emitted tokens: 106."
    )
    (one,), (two,) = new().feed(old), new().feed(v0)
    assert (one.fields["accept_rate"], one.fields["accept_len"]) == (0.8, 3.4)
    assert one.fields["per_position_accept"] == (0.95, 0.85, 0.6)
    assert (two.fields["accept_rate"], two.fields["num_spec_tokens"]) == (0.571, 2)


def test_unknown_figures_of_a_statistics_line_are_kept():
    (record,) = new().feed(stats("Engine 000: ", 1.0) + ", Widget load: 12.5%")
    assert record.extras == {"Widget load": "12.5%"}
    assert record.fields["prefix_hit_rate"] == 0.25


def test_two_processes_on_one_line_are_two_records():
    one = stats("Engine 000: ", 7.0)
    records = new().feed(one + "(EngineCore pid=11) INFO 08-03 10:00:00 [core.py:9] GPU KV cache size: 1,500 tokens")
    assert [r.kind for r in records] == ["stats", "milestone.kv_size"]
    assert records[0].fields["prefix_hit_rate"] == 0.25
    assert records[1].fields["kv_tokens"] == 1500


def test_an_empty_prefix_before_a_bar_is_text_and_the_last_bar_of_a_line_counts():
    grammar = new()
    (empty,) = grammar.feed("(Worker_TP0 pid=5) ")
    assert (empty.kind, empty.text) == ("text", "")
    bars = "\r".join(
        f"Loading safetensors checkpoint shards: {p}% Completed | {p}/100 [00:01<00:01]" for p in (2, 50, 100)
    )
    (bar,) = grammar.feed(bars)
    assert (bar.kind, bar.fields["progress"]) == ("progress.shards", 1.0)


def test_the_warning_about_open_files_is_no_failure():
    (record,) = new().feed(
        "(APIServer pid=9) WARNING 08-03 10:00:00 [system_utils.py:1] Found ulimit of 1024 and failed to automatically "
        "increase with error current limit exceeds maximum limit. This can cause fd limit errors like "
        "`OSError: [Errno 24] Too many open files`."
    )
    assert record.kind == "text"


def test_a_worker_that_does_not_answer_keeps_the_level_of_its_line():
    (record,) = new().feed(
        "(EngineCore pid=9) INFO 08-03 10:00:00 [shm_broadcast.py:1] No available shared memory broadcast block found in "
        "60 seconds. This typically happens when some processes are hanging"
    )
    assert (record.kind, record.level, record.fields["silent_s"]) == ("failure.shm_wait", "info", 60)

"""Lines that belong together become one record whose text is the line that says why."""

# ruff: noqa: E501 - log lines are as long as they are
from __future__ import annotations

from tokpit.engines.logkit.read import grammar_of


def records_of(engine: str, text: str):
    grammar = grammar_of(engine)
    records = [record for line in text.split("\n") for record in grammar.feed(line)]
    return [*records, *grammar.flush()]


def test_a_traceback_is_one_record_with_its_exception_as_text():
    text = """[2026-08-03 07:00:00] server_args=ServerArgs(model_path='/models/mix-a', tp_size=2)
Traceback (most recent call last):
  File "/env/lib/server_args.py", line 77, in check
    raise ValueError("no")
ValueError: The arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive and cannot be used."""
    args, failure = records_of("sglang", text)
    assert args.kind == "milestone.args"
    assert failure.kind == "failure.bad_config"
    assert failure.text.startswith("ValueError: The arguments enable-hierarchical-cache")
    assert (failure.line, len(failure.lines), failure.level) == (2, 4, "error")


def test_a_scheduler_crash_keeps_its_rank_and_names_the_exception():
    text = """[2026-08-03 07:00:09 DP1 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/env/lib/scheduler.py", line 40, in run
    self.pool.alloc(n)
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.61

[2026-08-03 07:00:10] Received sigquit from a child process. It usually means the child failed."""
    crash, after = records_of("sglang", text)
    assert crash.kind == "failure.gpu_mem_kv"
    assert crash.fields["dp_rank"] == 1
    assert crash.fields["tp_rank"] == 3
    assert crash.fields["mem_fraction_static"] == 0.61
    assert len(crash.lines) == 5
    assert after.kind == "failure.sigquit"


def test_an_exception_nobody_knows_is_still_one_record():
    text = """[2026-08-03 07:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/env/lib/scheduler.py", line 40, in run
    x = y[0]
TypeError: 'NoneType' object is not subscriptable"""
    (crash,) = records_of("sglang", text)
    assert crash.kind == "failure.sched_crash"
    assert crash.text == "TypeError: 'NoneType' object is not subscriptable"
    (bare,) = records_of("sglang", "\n".join(text.split("\n")[1:]))
    assert bare.kind == "failure.exception"


def test_a_chain_of_exceptions_is_one_record_and_the_known_cause_wins_over_the_last_exception():
    p = "(EngineCore pid=310) ERROR 08-03 07:00:00 [core.py:91] "
    text = "\n".join(
        p + line
        for line in (
            "EngineCore failed to start.",
            "Traceback (most recent call last):",
            '  File "/env/a.py", line 3, in load',
            "    allocate()",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 1 has a total capacity of 23 GiB",
            "",
            "The above exception was the direct cause of the following exception:",
            "",
            "Traceback (most recent call last):",
            '  File "/env/b.py", line 9, in warm_up',
            "    raise RuntimeError",
            "RuntimeError: warming up failed",
        )
    )
    start, chain = records_of("vllm", text)
    assert start.kind == "failure.engine_start"
    assert chain.kind == "failure.oom"
    assert chain.fields["requested"] == "3.00 GiB"
    assert chain.fields["process"] == "EngineCore"
    assert len(chain.lines) == 11
    assert chain.extras["last_exception"] == "RuntimeError: warming up failed"


def test_tracebacks_of_two_workers_line_by_line_become_two_records():
    def worker(rank: int, why: str) -> list[str]:
        p = f"(Worker_TP{rank} pid={700 + rank}) ERROR 08-03 07:00:00 [worker.py:5] "
        return [
            p + "Traceback (most recent call last):",
            p + f'  File "/env/w{rank}.py", line 1, in f',
            p + "    g()",
            p + why,
        ]

    one, two = worker(0, "ValueError: head_dim 192 is no good"), worker(1, "KeyError: 'b'")
    stats = (
        "(APIServer pid=9) INFO 08-03 07:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
        "Avg generation throughput: 2.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%"
    )
    mixed = [line for pair in zip(one, two, strict=True) for line in pair]
    mixed.insert(5, stats)
    records = sorted(records_of("vllm", "\n".join(mixed)), key=lambda r: r.line)
    assert [r.text[:10] for r in records if r.kind != "stats"] == ["ValueError", "KeyError: "]
    assert records[0].lines == tuple(one)
    assert records[1].lines == tuple(two)
    assert [r.line for r in records if r.kind == "stats"] == [6]


def test_a_statistics_line_inside_a_raw_traceback_is_not_swallowed():
    text = """Traceback (most recent call last):
  File "/env/a.py", line 3, in load
[2026-08-03 07:00:00 TP1] Decode batch, #running-req: 1, #token: 5, token usage: 0.00, cuda graph: True, gen throughput (token/s): 9.00, #queue-req: 0
    allocate()
ValueError: too bad"""
    stats, failure = records_of("sglang", text)
    assert stats.kind == "decode_batch"
    assert failure.text == "ValueError: too bad"
    assert len(failure.lines) == 4


def test_an_exception_group_names_the_exception_inside():
    text = """  + Exception Group Traceback (most recent call last):
  |   File "/env/a.py", line 3, in load
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/env/b.py", line 3, in work
    | torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB
    +------------------------------------"""
    (record,) = records_of("vllm", text)
    assert record.kind == "failure.oom"
    assert record.fields["requested"] == "1.50 GiB"


def test_a_message_of_several_lines_stays_with_its_exception():
    text = """Traceback (most recent call last):
  File "/env/config.py", line 1, in make
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, User-specified max_model_len (90000) is greater than the derived max_model_len (4096) [type=value_error]
    For further information visit the documentation"""
    (record,) = records_of("vllm", text)
    assert record.kind == "failure.mml_gt_cfg"
    assert record.fields["max_model_len"] == 90000
    assert len(record.lines) == 5


def test_a_usage_dump_of_hundreds_of_lines_is_one_record_with_the_reason():
    dump = ["usage: sglang serve [-h] [--model-path P]", *[f"                    [--flag-{i} N]" for i in range(400)]]
    reason = "sglang serve: error: unrecognized arguments: --no-such-thing"
    (record,) = records_of("sglang", "\n".join([*dump, reason]))
    assert record.kind == "failure.argparse"
    assert record.text == reason
    assert record.fields["message"] == "unrecognized arguments: --no-such-thing"
    assert len(record.lines) == 402


def test_help_text_without_an_error_is_no_failure():
    (record,) = records_of("vllm", "usage: vllm serve [-h]\n                  [--port PORT]")
    assert record.kind == "text"


def test_a_traceback_that_the_kill_cut_off_is_given_out_at_the_end():
    (record,) = records_of("sglang", 'Traceback (most recent call last):\n  File "/env/a.py", line 3, in load')
    assert record.kind == "failure.exception"
    assert len(record.lines) == 2


def test_the_argument_echo_is_kept_whole_in_its_field_with_secrets_masked_and_short_in_its_text():
    echo = "ServerArgs(model_path='/m', api_key='sk-very-secret', " + "x=1, " * 20_000 + "port=30001)"
    (record,) = records_of("sglang", f"[2026-08-03 07:00:00] server_args={echo}")
    text = record.fields["server_args_text"]
    assert "sk-very-secret" not in text
    assert text.endswith("port=30001)")
    assert len(record.text) < 1000


def test_token_ids_of_a_dumped_prompt_do_not_reach_the_text_of_the_record():
    ids = ", ".join(str(90_000 + i) for i in range(30_000))
    (record,) = records_of("sglang", f"[2026-08-03 07:00:00 DP2 TP2] debug info: reqs=[Req(rid=q1, input_ids=[{ids}])]")
    assert "90001" not in record.text
    assert record.fields["dp_rank"] == 2

"""llama-server's log: stacked prefixes, its own clock, and samples of one slot or all."""

# ruff: noqa: E501 - log lines are as long as they are
from __future__ import annotations

from tokpit.engines.llamacpp.grammar import new


def samples(*lines: str):
    grammar = new()
    return [grammar.sample(record) for line in lines for record in grammar.feed(line)]


def test_compose_router_and_clock_before_a_slot_line_are_stripped():
    text = """node-2          | [41999] 0.34.250.125 I slot print_timing: id  2 | task 5 | draft acceptance = 0.41000 (  410 accepted /  1000 generated)
node-2          | [41999] 0.34.250.150 I slot      release: id  2 | task 5 | stop processing: n_tokens = 99, truncated = 0
node-2          | [41999] 0.34.250.160 I srv  update_slots: all slots are idle"""
    grammar = new()
    records = [record for line in text.split("\n") for record in grammar.feed(line)]
    assert records[0].fields["accept_rate"] == 0.41
    assert records[0].fields["t"] == "0.34.250.125"
    assert records[0].fields["port"] == 41999
    assert (records[1].fields["slot"], records[1].fields["function"]) == (2, "release")
    assert grammar.sample(records[2]) == {"running_reqs": 0, "gen_tps": 0}


def test_a_dead_draft_is_rate_zero_not_unknown():
    (got,) = samples(
        "0.44.100.001 I slot print_timing: id  0 | task 3 | draft acceptance = 0.00000 (    0 accepted /   717 generated)"
    )
    assert got == {"accept_rate": 0}


def test_live_rates_of_the_slots_add_up_and_a_stopped_slot_falls_out():
    def live(t: str, slot: int, rate: float) -> str:
        return f"{t} I slot print_timing: id  {slot} | task 1 | n_gen =    512, tg =  1.0 t/s, tg_3s =  {rate} t/s"

    got = samples(live("0.10.000.000", 0, 30.5), live("0.11.000.000", 1, 20.5), live("0.40.000.000", 1, 22.0))
    assert [s["gen_tps"] for s in got] == [30.5, 51.0, 22.0]


def test_the_rate_of_one_finished_request_is_not_the_rate_of_a_busy_server():
    timing = "1.00.000.000 I slot print_timing: id  0 | task 1 |        eval time =    1000.00 ms /    50 tokens (   20.00 ms per token,    50.00 tokens per second)"
    launch = "0.59.000.000 I slot launch_slot_: id  {} | task 1 | processing task"
    assert samples(launch.format(0), timing)[-1]["gen_tps"] == 50
    assert "gen_tps" not in samples(launch.format(0), launch.format(1), timing)[-1]


def test_journald_lines_of_a_cuda_error_are_failures():
    text = """2026-08-03T19:17:07+02:00 llm.server[88]: /build/ggml-cuda.cu:97: CUDA error
2026-08-03T19:17:07+02:00 llm.server[88]: CUDA error: the provided PTX was compiled with an unsupported toolchain."""
    grammar = new()
    records = [record for line in text.split("\n") for record in grammar.feed(line)]
    assert [r.kind for r in records] == ["failure.cuda", "failure.ptx"]
    assert records[1].text.startswith("CUDA error: the provided PTX")


def test_a_request_line_is_an_access_record():
    (record,) = new().feed("1.02.123.456 I srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200")
    assert (record.kind, record.fields["path"], record.fields["status"]) == ("access", "/v1/chat/completions", 200)

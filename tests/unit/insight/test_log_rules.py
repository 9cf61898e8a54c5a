from __future__ import annotations

import msgspec

from insight_logs import access, decode, diagnosed, digest, prefill, spec, stamp, stats
from insight_tools import codes, engine_sweep, findings, one, sweep
from tokpit.insight.facts import Facts
from tokpit.insight.slots import pool_sizes, total_slots
from tokpit.ops.diagnose.run import Gathered, judge

_CAPPED = (
    "max_running_requests is capped to 7 by the mamba state cache (max_mamba_cache_size=38, 5 state slots per "
    "request). "
    "To raise it: increase --mamba-full-memory-ratio."
)


def test_cap_in_the_log_overrides_the_one_that_the_api_repeats() -> None:
    lines = [
        f"[{stamp(0)}] {_CAPPED}",
        *[decode(60 + i, 7, 330, queue=17, mamba=(28, 0.74), usage=0.12) for i in range(4)],
    ]
    found = diagnosed(lines, max_running_requests=24)
    claims = [f for f in found if f.code == "QUEUE_LIMITED_BY_STATE_SLOTS"]
    assert any("floor(38 state slots / 5 per request) = 7" in f.arithmetic for f in claims)
    assert any("7 requests run at once, not the 24" in f.claim for f in claims)
    assert not any("compute" in f.claim for f in found)


def test_reserved_slots_that_are_never_held_explain_a_queue_at_four_fifths_usage() -> None:
    lines = [
        decode(0, 1, 52, mamba=(4, 0.08)),
        *[decode(30 + i, 10, 410, queue=6, mamba=(40, 0.80), usage=0.3) for i in range(5)],
    ]
    found = one(diagnosed(lines), "QUEUE_LIMITED_BY_STATE_SLOTS")
    assert "floor(50 state slots / 5 per request) = 10" in found.arithmetic
    assert "holds 4 slots and 5 are reserved" in found.arithmetic
    assert found.figures["slots_held"] == 4


def test_pool_size_is_told_only_where_the_printed_usage_leaves_one() -> None:
    wide = digest([decode(0, 1, 50, mamba=(4, 0.02))]).busy
    narrow = digest([decode(0, 1, 50, mamba=(3, 0.43)), decode(1, 1, 50, mamba=(4, 0.57))]).busy
    assert len(pool_sizes(wide)) > 1
    assert total_slots(narrow) == 7


def test_speculation_that_costs_concurrency_on_vllm() -> None:
    lines = [line for i in range(3) for line in (stats(10 * i, 4, 75, waiting=9, kv=27.0), spec(10 * i, 1.7, 300, 210))]
    assert "4 running, 9 waiting" in one(diagnosed(lines), "SPEC_SHRINKS_CONCURRENCY").claim


def test_queue_with_a_full_kv_cache_is_kv() -> None:
    lines = [stats(10 * i, 40, 900, waiting=12, kv=98.7) for i in range(6)]
    assert codes(diagnosed(lines)) == ["QUEUE_LIMITED_BY_KV"]


def test_configured_cap_is_named_as_such() -> None:
    lines = [stats(10 * i, 16, 700, waiting=20, kv=31.0) for i in range(6)]
    assert one(diagnosed(lines, configured_max_running=16), "QUEUE_LIMITED_BY_MAX_RUNNING").severity == "warning"


def test_preemptions_printed_by_vllm_are_a_storm() -> None:
    lines = [stats(10 * i, 90, 1400, kv=99.2, extra=f", Preemptions: {8 + i}") for i in range(12)]
    assert one(diagnosed(lines), "PREEMPTION_STORM").figures["per_s"] > 0.5


def test_preemptions_by_the_counter_are_a_storm_only_with_a_full_cache() -> None:
    assert "640 preemptions in 160 s (4/s)" in diagnosed(preemptions=640, window_s=160, kv_usage="99%")[0].claim
    assert diagnosed(preemptions=640, window_s=160, kv_usage="40%") == ()


def _retract(t: float) -> str:
    return f"[{stamp(t)} TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 384"


def test_retractions_without_progress_are_a_livelock() -> None:
    found = one(diagnosed([_retract(i) for i in range(8)]), "RETRACTION_LIVELOCK")
    assert found.severity == "error"
    assert "8 retractions in 8 s" in found.claim


def test_retractions_with_progress_are_a_storm() -> None:
    lines = [line for i in range(20) for line in (_retract(i), decode(i, 60, 900, usage=0.99))]
    assert codes(diagnosed(lines)) == ["PREEMPTION_STORM"]


def test_graph_off_on_decode_counts_the_batch_of_all_ranks() -> None:
    lines = [decode(i, 40, 190, graph=False, rank=f" DP{r} TP{r}") for i in range(3) for r in range(4)]
    found = one(diagnosed(lines, dp=4, enable_dp_attention="true", cuda_graph_max_bs=128), "GRAPH_OFF")
    assert "40 x 4 = 160 > 128" in found.arithmetic
    assert "160" in found.next_action


def test_graph_off_where_speculation_is_suspended_is_no_dead_draft() -> None:
    found = diagnosed([decode(i, 56, 5100, spec=(1.0, 0.14), graph=False) for i in range(4)])
    assert codes(found) == ["GRAPH_OFF"]
    assert "suspended" in found[0].claim


def test_graph_false_on_prefill_lines_is_normal() -> None:
    assert diagnosed([prefill(i, 500 + 9 * i, running=3) for i in range(9)]) == ()


def test_prefill_batches_that_starve_decode_are_counted() -> None:
    lines = [prefill(i, 8192, seqs=2, running=48, queue=30 + i, pending=70_000) for i in range(14)]
    lines.append(decode(26, 48, 70, queue=44, usage=0.5))
    found = one(diagnosed(lines), "PREFILL_STARVES_DECODE")
    assert "14 prefill batches for 1 decode line in 26 s" in found.claim
    assert "48 running requests share 70 tok/s" in found.claim


def test_stall_that_ends_with_a_burst_of_prompt_tokens_is_prefill() -> None:
    rates = [(92.0, 0.0), (2.1, 0.0), (1.2, 0.0), (0.8, 0.0), (1.9, 0.0), (85.0, 8700.0)]
    lines = [stats(60 * i, 5, tps, kv=44.0, prompt=prompt) for i, (tps, prompt) in enumerate(rates)]
    found = one(diagnosed(lines), "PREFILL_STARVES_DECODE")
    assert "92 to 0.8 tok/s" in found.claim
    assert "lines 2 to 5" in found.arithmetic


def test_interference_experiment_gives_its_losses() -> None:
    found = one(
        diagnosed(decode_alone_tps=240, decode_mixed_tps=9.6, prefill_alone_tps=6400, prefill_mixed_tps=3200),
        "PREFILL_STARVES_DECODE",
    )
    assert "loses 96%, prefill -50%" in found.claim


def test_silence_in_which_requests_went_on_is_a_blocked_scheduler() -> None:
    lines = [decode(i, 3, 150) for i in range(5)] + [prefill(205, 90, running=3), decode(206, 4, 40)]
    found = one(diagnosed(lines), "SCHEDULER_BLOCKED")
    assert "201 s with 3 requests running" in found.claim
    assert "did not crash" in found.claim


def test_requests_that_wait_while_none_runs_are_told() -> None:
    assert one(diagnosed([stats(10 * i, 0, 0.0, waiting=3, prompt=0.0) for i in range(6)]), "SCHEDULER_BLOCKED")


def test_failed_health_check_during_prefill_must_not_lead_to_a_restart() -> None:
    health = (
        f"[{stamp(20)}] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
        "tic start time: 09:00:00. last_heartbeat time: 08:59:58"
    )
    found = one(diagnosed([health, prefill(21, 8192, running=2, queue=5, pending=150_000)]), "HEALTH_FALSE_NEGATIVE")
    assert "150,000 tokens pending" in found.claim
    assert "do not restart" in found.next_action


def test_health_of_200_is_not_life() -> None:
    lines = [access("/health_generate")] * 6
    found = one(diagnosed(lines, client_in_flight=12, tokens_last_minute=0), "HEALTH_FALSE_POSITIVE")
    assert "12 requests in flight produced 0 tokens" in found.claim


def test_dead_draft_is_constant_and_not_merely_weak() -> None:
    dead = diagnosed([decode(i, 1 + i % 3, 31, spec=(1.0, 0.0)) for i in range(4)])
    assert codes(dead) == ["DRAFT_DEAD"]
    assert diagnosed([decode(i, 1, 31, spec=(1.0, 0.0)) for i in range(2)]) == ()
    weak = diagnosed([decode(i, 1, 40, spec=(1.3 + 0.02 * (i % 3), 0.1)) for i in range(6)])
    assert codes(weak) == ["DRAFT_WASTEFUL"]


def test_dead_draft_by_counts_of_llama_server() -> None:
    line = (
        "0.44.100.001 I slot print_timing: id  0 | task 7 | draft acceptance = 0.00000 (    0 accepted /  2210 "
        "generated)"
    )
    assert "0 of 2,210 drafted tokens" in one(diagnosed([line]), "DRAFT_DEAD").claim


def test_acceptance_that_falls_with_context_names_both_lengths_and_the_draft() -> None:
    lines = [decode(0, 1, 140, tokens=1800, spec=(3.4, 0.8)), decode(300, 1, 66, tokens=41_000, spec=(1.6, 0.2))]
    found = one(diagnosed(lines), "LOW_ACCEPT_LONG_CONTEXT")
    assert "from 3.4 to 1.6" in found.claim
    assert "drafts of 3" in found.claim


def test_two_logs_with_and_without_speculation_give_the_cost_of_a_step() -> None:
    plain = [decode(i, 1, 150, tokens=100 + i) for i in range(3)]
    block = [decode(i, 1, 90, tokens=100 + i, spec=(2.1, 0.07)) for i in range(3)]
    found = one(diagnosed(plain, block), "SPEC_OVERHEAD")
    assert "3.5 plain ones" in found.claim
    assert "shorter block: 16 tokens" in found.next_action or "shorter block: 15 tokens" in found.next_action


def test_equal_prompts_that_find_nothing_in_the_cache() -> None:
    lines = [prefill(20 * i, 3000) for i in range(3)]
    assert one(diagnosed(lines), "PREFIX_CACHE_INEFFECTIVE").confidence == "possible"
    assert diagnosed(lines, prefix_cache="false") == ()


def test_prefix_shorter_than_a_block_is_never_reused() -> None:
    line = (
        "INFO 10-02 10:00:00 [config.py:281] Setting attention block size to 784 tokens to ensure that attention "
        "page size is >= mamba page size."
    )
    found = one(diagnosed([line], shared_prefix_tokens=600), "PREFIX_SHORTER_THAN_BLOCK")
    assert "600 tokens is shorter than a block of 784" in found.claim
    assert diagnosed([line], shared_prefix_tokens=1568) == ()


def test_jit_while_requests_run_voids_the_level() -> None:
    line = (
        "(EngineCore pid=9) WARNING 10-02 10:00:05 [jit_monitor.py:44] Triton kernel JIT compilation during inference: "
        "fused_kernel. This causes a latency spike"
    )
    assert codes(diagnosed([line, stats(10, 1, 8.0)])) == ["COLD_START"]


def test_own_all_reduce_switched_off_is_noted() -> None:
    line = f"[{stamp(0)} TP0] Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs."
    assert codes(diagnosed([line])) == ["CUSTOM_AR_OFF"]


def test_two_deployments_are_told_apart_by_what_could_explain_the_gap() -> None:
    def log(steps: int, quant: str, port: int, tps: float, length: float) -> list[str]:
        args = (
            f"[{stamp(0)}] server_args=ServerArgs(model_path='m', quantization='{quant}', port={port}, "
            f"speculative_num_steps={steps}, max_running_requests=8, attention_backend='flashinfer')"
        )
        return [args, *[decode(200 + i, 1, tps, spec=(length, (length - 1) / steps)) for i in range(5)]]

    found = one(diagnosed(log(3, "fp8", 30000, 74, 2.9), log(1, "none", 30001, 36, 1.75)), "GAP_CANDIDATES")
    assert "2 differences" in found.claim
    assert "quantization: fp8 -> none (bytes read a step)" in found.claim
    assert "speculative_num_steps: 3 -> 1" in found.evidence[1]
    assert "explains a factor of 0.603" in found.arithmetic
    assert not [line for line in found.evidence if "port" in line]


def test_log_beside_the_clients_own_figures() -> None:
    steady = [stats(10 * i, 64, 900, kv=40.0) for i in range(6)]
    assert codes(diagnosed(steady, concurrency=192)) == ["CLIENT_LIMIT"]
    assert diagnosed(steady, concurrency=64) == ()
    assert "900 tok/s while the client counted 300" in one(diagnosed(steady, client_tps=300), "CLIENT_BOUND").claim
    assert diagnosed(steady, client_tps=880) == ()
    idle = [*steady, stats(70, 0, 0.0, prompt=0.0)]
    assert "12 requests are in flight" in one(diagnosed(idle, client_in_flight=12), "LOST_REQUESTS").claim


def test_hit_rate_of_a_log_against_the_kind_of_prompts() -> None:
    warm = [stats(10 * i, 8, 300, hits=71.0) for i in range(5)]
    cold = [stats(10 * i, 8, 300, hits=0.0) for i in range(5)]
    assert codes(diagnosed(warm, prompt_kind="random")) == ["WARM_PREFIX"]
    assert diagnosed(warm, shared_prefix_tokens=3000) == ()
    assert codes(diagnosed(cold, shared_prefix_tokens=3000)) == ["PREFIX_CACHE_INEFFECTIVE"]
    assert diagnosed(cold, prompt_kind="random") == ()


def test_layers_left_on_the_processor_set_the_pace() -> None:
    part = "0.01.100.001 I load_tensors: offloaded 20/65 layers to GPU"
    assert "20 of 65 layers" in one(diagnosed([part]), "PARTIAL_OFFLOAD").claim
    assert diagnosed([part.replace("20/65", "65/65")]) == ()
    assert codes(diagnosed([part.replace("20/65", "0/65")])) == ["RUNNING_ON_CPU"]


def test_each_decode_line_after_a_row_of_prefills_counts() -> None:
    lines = [decode(i, 30, 900) for i in range(2)]
    for i in range(4):
        lines += [prefill(10 + 12 * i + j, 8192, running=30, queue=20, pending=60_000) for j in range(7)]
        lines.append(decode(20 + 12 * i, 30, 80))
    assert "28 prefill batches for 4 decode lines" in one(diagnosed(lines), "PREFILL_STARVES_DECODE").claim


def test_queue_far_below_the_stated_cap_has_another_cause() -> None:
    lines = [line for i in range(3) for line in (stats(10 * i, 3, 60, waiting=6, kv=30.0), spec(10 * i, 1.6, 400, 240))]
    assert codes(diagnosed(lines, configured_max_running=256)) == ["SPEC_SHRINKS_CONCURRENCY"]
    slots = [decode(i, 8, 370, queue=5, mamba=(32, 0.80), usage=0.35) for i in range(4)]
    assert codes(diagnosed(slots, configured_max_running=48)) == ["QUEUE_LIMITED_BY_STATE_SLOTS"]


def test_full_cache_is_named_while_the_number_that_runs_goes_up_and_down() -> None:
    lines = [stats(10 * i, 30 + 7 * (i % 3), 900, waiting=12, kv=97.0 + i % 3) for i in range(9)]
    assert codes(diagnosed(lines)) == ["QUEUE_LIMITED_BY_KV"]


def test_a_draft_that_is_right_by_chance_now_and_then_is_dead_all_the_same() -> None:
    lines = [spec(10 * i, 1.0, 2700, 2) for i in range(6)]
    dead = one(diagnosed(lines), "DRAFT_DEAD")
    assert "12 of 16,200 drafted tokens (0.074%) were accepted, no more than by chance" in dead.claim
    dead = one(diagnosed([decode(i, 2, 70, spec=(1.01, 0.0)) for i in range(6)]), "DRAFT_DEAD")
    assert "acceptance length of at most 1.01 on all 6 lines" in dead.claim


def test_a_weak_draft_is_not_dead() -> None:
    found = diagnosed([spec(10 * i, 1.06, 3000, 60) for i in range(6)])
    assert "DRAFT_DEAD" not in codes(found)


def test_counters_of_a_metrics_page_tell_a_dead_draft_without_a_log() -> None:
    dead = one(findings(drafted_tokens=52_000, accepted_tokens=11), "DRAFT_DEAD")
    assert "11 of 52,000 drafted tokens (0.021%)" in dead.claim
    assert codes(findings(drafted_tokens=52_000, accepted_tokens=31_000)) == []


def test_levels_of_a_run_tell_a_dead_draft() -> None:
    points = tuple(msgspec.structs.replace(p, accept_len=1.0) for p in sweep())
    dead = one(findings(points, draft_tokens=3), "DRAFT_DEAD")
    assert dead.evidence[:2] == ("C=1: acceptance length 1", "C=4: acceptance length 1")


def test_a_queue_of_levels_and_log_is_told_once() -> None:
    got = Gathered()
    got.sweeps.append(("sweep", engine_sweep(cap=4, fixed_s=10, each_s=0.5, levels=(1, 2, 4, 8, 16))))
    got.facts = Facts(max_running_requests=4, configured_max_running=4)
    lines = [stats(10 * i, 4, 300, waiting=6) for i in range(8)]
    got.logs.append(digest(lines))
    queue = [f for f in judge(got).findings if f.code.startswith("QUEUE_LIMITED")]
    assert len(queue) == 1
    assert queue[0].levels
    assert any("running, 6 queued" in line for line in queue[0].evidence)

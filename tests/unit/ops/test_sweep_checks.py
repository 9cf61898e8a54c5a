"""A level against the server's own figures: known ways in which a benchmark lies, retold with numbers of our own."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import cast

from sweep_tools import level_result, page, sample
from tokpit.domain.records import GpuProcess, GpuRecord, GpuSample
from tokpit.domain.server import ServerInfo
from tokpit.load.plan import Plan
from tokpit.load.results import Check, LevelResult
from tokpit.ops.session import Session
from tokpit.ops.sweep.checks import judged, level_of, void
from tokpit.ops.sweep.server import FIRST_S, SAMPLE_S, Sample, Seen, ServerSide, paced, slowed

PLAN = Plan(url="http://h", levels=(12,), max_tokens=500)
STEADY = tuple(sample(float(t)) for t in range(1, 11))


def check(code: str, seen: Seen, result: LevelResult | None = None, plan: Plan = PLAN) -> Check | None:
    found = [c for c in judged(result or level_result(), plan, seen).checks if c.code == code]
    found.sort(key=lambda c: c.ok is not False)  # the client is judged by its own figures and by the server's
    return found[0] if found else None


def failed(seen: Seen, result: LevelResult | None = None) -> set[str]:
    return {c.code for c in judged(result or level_result(), PLAN, seen).checks if c.ok is False}


def test_a_sound_level_on_a_sound_server_passes() -> None:
    seen = Seen(
        before=page(gen_tokens_total=5000, prefix_hits_total=0, prefix_queries_total=0),
        after=page(gen_tokens_total=23010, prefix_hits_total=90, prefix_queries_total=36000),
        samples=STEADY,
    )
    assert failed(seen) == set()
    assert not void(judged(level_result(), PLAN, seen))


def test_a_server_without_figures_costs_checks_and_no_more() -> None:
    assert failed(Seen()) == set()
    assert level_of(judged(level_result(), PLAN, Seen()), Seen()).result["server_running"] is None


def test_a_client_that_misses_tokens_is_the_bottleneck_and_its_level_is_void() -> None:
    seen = Seen(before=page(gen_tokens_total=0), after=page(gen_tokens_total=31000), samples=STEADY)
    found = check("CLIENT_BOUND", seen)
    assert found is not None
    assert found.ok is False
    assert "1.72 times" in found.sentence
    assert "output_tps" in found.distrust
    assert level_of(judged(level_result(), PLAN, seen), seen).result["void"] == found.sentence


def test_tokens_made_for_others_are_not_laid_at_the_clients_door() -> None:
    crowded = tuple(sample(float(t), running=17.0) for t in range(1, 11))
    seen = Seen(before=page(gen_tokens_total=0), after=page(gen_tokens_total=26000), samples=crowded)
    assert failed(seen) == {"OTHER_LOAD"}
    found = check("OTHER_LOAD", seen)
    assert found is not None
    assert "5 requests more" in found.sentence
    assert void(judged(level_result(), PLAN, seen)) == found.sentence


def test_a_busy_client_is_not_excused_by_others() -> None:
    crowded = tuple(sample(float(t), running=17.0) for t in range(1, 11))
    assert failed(Seen(samples=crowded), level_result(client_cpu=0.97)) == {"CLIENT_BOUND"}


def test_a_sweep_on_the_host_is_not_told_to_go_there() -> None:
    busy = level_result(client_cpu=0.97)
    here, there = (judged(busy, PLAN, Seen(), on_host=on_host) for on_host in (False, True))
    assert "run the sweep on the host" in void(here)
    assert void(there)
    assert "run the sweep on the host" not in void(there)


def test_tokens_that_the_server_never_made_are_a_mismatch() -> None:
    seen = Seen(before=page(gen_tokens_total=0), after=page(gen_tokens_total=4500), samples=STEADY)
    assert failed(seen) == {"COUNT_MISMATCH"}


def test_a_counter_that_went_back_is_a_restart_and_judges_nothing() -> None:
    seen = Seen(before=page(gen_tokens_total=90000), after=page(gen_tokens_total=300), samples=STEADY)
    found = check("SERVER_COUNT", seen)
    assert found is not None
    assert found.ok is None
    assert failed(seen) == set()


def test_a_connection_limit_shows_as_a_server_that_never_sees_more() -> None:
    result = level_result(concurrency=240, requests=480, ok=480, peak_in_flight=240, mean_in_flight=236.0)
    held = tuple(sample(float(t), running=96.0, in_flight=240) for t in range(1, 11))
    found = check("CLIENT_LIMIT", Seen(samples=held), result)
    assert found is not None
    assert found.ok is False
    assert "more than 96 running and 0 queued for C=240" in found.sentence
    assert void(judged(result, PLAN, Seen(samples=held)))


def test_a_queue_at_the_server_is_no_connection_limit() -> None:
    queued = tuple(sample(float(t), running=9.0, queued=3.0) for t in range(1, 11))
    found = check("CLIENT_LIMIT", Seen(samples=queued))
    assert found is not None
    assert found.ok is True


def test_samples_of_ramp_up_and_drain_do_not_make_a_limit() -> None:
    ramp = tuple(sample(float(t), running=4.0, in_flight=4) for t in range(1, 11))
    assert check("CLIENT_LIMIT", Seen(samples=ramp)) is None


def test_gauges_that_may_be_older_than_the_level_do_not_make_a_limit() -> None:
    stale = tuple(sample(100.0 + t / 4, running=1.0, in_flight=12) for t in range(1, 8))
    assert check("CLIENT_LIMIT", Seen(samples=stale, began=100.0)) is None
    late = (*stale, *(sample(102.0 + t / 4, running=1.0, in_flight=12) for t in range(8)))
    found = check("CLIENT_LIMIT", Seen(samples=late, began=100.0))
    assert found is not None
    assert found.ok is False


def test_prompts_out_of_the_prefix_cache_spoil_ttft() -> None:
    seen = Seen(
        before=page(prefix_hits_total=100, prefix_queries_total=70000),
        after=page(prefix_hits_total=57700, prefix_queries_total=134000),
    )
    found = check("WARM_PREFIX", seen)
    assert found is not None
    assert found.ok is False
    assert "90%" in found.sentence
    assert "ttft_s" in found.distrust


def test_a_shared_prefix_that_was_asked_for_is_no_warm_cache() -> None:
    seen = Seen(
        before=page(prefix_hits_total=0, prefix_queries_total=0),
        after=page(prefix_hits_total=57600, prefix_queries_total=64000),
    )
    found = check("WARM_PREFIX", seen, plan=replace(PLAN, prefix_share=0.9))
    assert found is not None
    assert found.ok is True


def test_requests_that_the_server_forgot_are_told() -> None:
    still = {"running": 0.0, "queued": 0.0, "made": 900.0, "received": 900.0, "in_flight": 3}
    silent = tuple(sample(float(t), **still) for t in range(1, 14))
    found = check("LOST_REQUESTS", Seen(samples=silent))
    assert found is not None
    assert "3 requests" in found.sentence
    assert found.ok is False


def test_a_long_prefill_and_a_late_gauge_are_no_lost_requests() -> None:
    short = tuple(sample(float(t), running=0.0, queued=0.0, made=900.0, received=900.0) for t in range(1, 8))
    assert check("LOST_REQUESTS", Seen(samples=short)) is None
    streaming = tuple(sample(float(t), running=0.0, queued=0.0) for t in range(1, 30))
    assert check("LOST_REQUESTS", Seen(samples=streaming)) is None


def test_a_hot_gpu_spoils_a_level_and_a_power_limit_does_not() -> None:
    hot = Seen(throttled={"hw-thermal": (0, 3), "sw-power-cap": (1,)})
    assert failed(hot) == {"THROTTLED"}
    found = check("THROTTLED", hot)
    assert found is not None
    assert "hw-thermal on GPU 0, 3" in found.sentence
    capped = check("POWER_CAP", hot)
    assert capped is not None
    assert capped.ok is True
    assert level_of(judged(level_result(), PLAN, hot), hot).result["throttled"] == ["hw-thermal"]


def test_only_the_servers_own_gpus_count() -> None:
    gpus = tuple(
        GpuSample(index=i, uuid=f"GPU-{i}", name="L40S", throttle=("hw-slowdown",) if i else ()) for i in range(3)
    )
    mine = (GpuProcess("GPU-0", 41), GpuProcess("GPU-1", 42), GpuProcess("GPU-2", 99))
    record = GpuRecord("h", 0.0, gpus, processes=mine)
    assert slowed(record, {41, 42}) == {"hw-slowdown": {1}}
    assert slowed(record, {7}) == {"hw-slowdown": {1, 2}}, "nothing says which GPUs it uses"


def test_a_server_that_was_not_idle_at_the_begin_is_told() -> None:
    assert failed(Seen(left_before=4.0)) == {"BUSY_SERVER"}


def test_answers_without_a_token_are_void_and_not_zero_tokens_a_second() -> None:
    result = level_result(output_tokens=0, output_tps=None, steady_tps=None, avg_output=0.0, itl_s=None, tpot_s=None)
    assert "ZERO_TOKENS_SUSPECT" in failed(Seen(), result)
    assert void(judged(result, PLAN, Seen()))


def test_acceptance_length_is_by_counters_where_there_are_some() -> None:
    counted = Seen(
        before=page(spec_drafts_total=100, spec_accepted_tokens_total=200),
        after=page(spec_drafts_total=300, spec_accepted_tokens_total=640),
        samples=(sample(1.0, accept_len=9.0),),
    )
    assert counted.accept_len == 3.2
    assert Seen(samples=(sample(1.0, accept_len=3.0), sample(2.0, accept_len=2.0), sample(3.0))).accept_len == 2.5
    assert Seen().accept_len is None


def test_samples_are_close_in_a_short_level_and_stay_evenly_spaced_in_a_long_one() -> None:
    kept: list[Sample] = []
    now, pace, seen = 0.0, FIRST_S, []
    while now < 60:
        now += pace
        kept, pace = paced([*kept, sample(now)], pace)
        seen.append(len(kept))
        gaps = {round(b.t - a.t, 6) for a, b in pairwise(kept)}
        assert len(gaps) < 2, (now, kept)
    assert seen[:3] == [1, 2, 3]
    assert pace == SAMPLE_S
    assert [s.t for s in kept] == [float(t) for t in range(1, 61)]


def test_every_request_of_a_load_says_what_the_engines_http_server_wants() -> None:
    def headers(engine: str) -> dict[str, str]:
        argv = ("serve", "--api-key", "sk-1")
        info = ServerInfo(host="h", engine=engine, pid=1, start_ticks=1, pgid=1, argv=argv)
        return ServerSide(cast(Session, None), None, info, "http://h:1", {"X-Asked": "1"}).headers

    assert headers("llamacpp") == {"Connection": "close", "Authorization": "Bearer sk-1", "X-Asked": "1"}
    assert headers("vllm") == {"Authorization": "Bearer sk-1", "X-Asked": "1"}

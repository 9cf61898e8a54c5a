"""Prometheus pages of the three engines in canonical tags, and what follows from two of them."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokpit.domain.metrics import REGISTRY
from tokpit.domain.records import MetricsPage
from tokpit.engines.llamacpp.metrics import page as llamacpp
from tokpit.engines.logkit.rates import accept_by_position, between
from tokpit.engines.sglang.metrics import page as sglang
from tokpit.engines.vllm.metrics import page as vllm

PAGES = {"sglang": sglang, "vllm": vllm, "llamacpp": llamacpp}


@pytest.mark.parametrize("engine", PAGES)
@pytest.mark.parametrize(
    "text",
    [
        "<html><body>404 Not Found</body></html>",
        '{"detail":"Not Found"}',
        '{"error":{"code":501}}',
        "Not Found",
        "a b c",
    ],
)
def test_what_is_no_metrics_page_is_refused(engine, text):
    with pytest.raises(ValueError, match="no Prometheus page"):
        PAGES[engine](text)


@pytest.mark.parametrize("engine", PAGES)
def test_a_page_of_something_else_is_empty_not_an_error(engine):
    got = PAGES[engine]("# HELP python_info x\n# TYPE python_info gauge\npython_info 1.0\n")
    assert got.values == {}
    assert PAGES[engine]("").values == {}


def sg(name: str, value: object, **labels: object) -> str:
    text = ",".join(
        f'{key}="{label}"' for key, label in {"model_name": "org/m", "engine_type": "unified", **labels}.items()
    )
    return f"sglang:{name}{{{text}}} {value}"


def test_ranks_that_export_the_same_requests_count_once_and_data_parallel_ranks_add_up():
    same = [sg("num_running_reqs", 14.0, tp_rank=i, pp_rank=0, dp_rank=0) for i in range(8)]
    other = [sg("num_running_reqs", 5.0, tp_rank=i, pp_rank=0, dp_rank=1) for i in range(8)]
    assert sglang("\n".join(same)).values["running_reqs"] == 14
    assert sglang("\n".join(same + other)).values["running_reqs"] == 19


def test_a_rate_that_stays_after_the_last_request_is_zero_when_nothing_runs():
    busy = sglang("\n".join((sg("num_running_reqs", 1.0), sg("gen_throughput", 21.5))))
    idle = sglang("\n".join((sg("num_running_reqs", 0.0), sg("gen_throughput", 21.5), sg("spec_accept_length", 2.5))))
    assert busy.values["gen_tps"] == 21.5
    assert idle.values["gen_tps"] == 0
    assert "accept_len" not in idle.values


def test_kv_usage_of_a_hybrid_model_is_that_of_its_full_pool():
    pools = (
        sg("token_usage", 0.81),
        sg("full_token_usage", 0.12),
        sg("mamba_usage", 0.81),
        sg("mamba_used_tokens", 26.0),
        sg("mamba_available_tokens", 6.0),
        sg("kv_used_tokens", 1200.0),
        sg("num_used_tokens", 9999.0),
    )
    got = sglang("\n".join(pools)).values
    assert (got["kv_usage"], got["state_usage"], got["state_slots"]) == (0.12, 0.81, 26)
    assert got["kv_tokens"] == 1200


def test_a_plain_model_has_no_state_slots_and_no_sliding_window():
    pools = (sg("token_usage", 0.3), sg("full_token_usage", 0.0), sg("mamba_usage", 0.0), sg("swa_token_usage", 0.0))
    got = sglang("\n".join(pools)).values
    assert got["kv_usage"] == 0.3
    assert {"state_usage", "state_slots", "swa_usage"}.isdisjoint(got)


def test_iteration_counters_win_over_those_of_finished_requests():
    text = "\n".join(
        (
            sg("generation_tokens_total", 100.0, is_streaming="True"),
            sg("realtime_tokens_total", 140.0, mode="decode", tp_rank=0),
            sg("realtime_tokens_total", 140.0, mode="decode", tp_rank=1),
            sg("realtime_tokens_total", 60.0, mode="prefill_compute", tp_rank=0),
            sg("realtime_tokens_total", 20.0, mode="prefill_cache", tp_rank=0),
        )
    )
    got = sglang(text).values
    assert got["gen_tokens_total"] == 140
    assert got["prompt_tokens_total"] == 60
    assert (got["prefix_hits_total"], got["prefix_queries_total"]) == (20, 80)


def test_streaming_and_other_requests_are_one_counter_and_one_histogram():
    lines = [sg("generation_tokens_total", n, is_streaming=s) for n, s in ((70.0, "True"), (30.0, "False"))]
    for streaming, counts in (("True", (1, 3, 4)), ("False", (0, 1, 2))):
        lines += [
            sg("time_to_first_token_seconds_bucket", float(count), is_streaming=streaming, le=bound)
            for bound, count in zip(("0.1", "0.5", "+Inf"), counts, strict=True)
        ]
        lines.append(sg("time_to_first_token_seconds_sum", 1.5, is_streaming=streaming))
    got = sglang("\n".join(lines))
    assert got.values["gen_tokens_total"] == 100
    ttft = got.histograms["ttft_s"]
    assert ttft.bounds == (0.1, 0.5, float("inf"))
    assert ttft.counts == (1, 4, 6)
    assert ttft.total == 3


def test_acceptance_is_weighted_by_the_running_requests_of_each_rank():
    text = "\n".join(
        (
            sg("num_running_reqs", 9.0, dp_rank=0),
            sg("num_running_reqs", 1.0, dp_rank=1),
            sg("spec_accept_length", 3.0, dp_rank=0),
            sg("spec_accept_length", 1.0, dp_rank=1),
            sg("spec_accept_rate", 0.6, dp_rank=0),
            sg("spec_num_draft_tokens", 5.0, dp_rank=0),
        )
    )
    got = sglang(text).values
    assert got["accept_len"] == pytest.approx(2.8)
    assert got["accept_rate"] == pytest.approx(1.8 / 4)


def test_host_cache_is_used_over_total_of_all_ranks():
    text = "\n".join(
        sg(f"hicache_host_{name}_tokens", value, dp_rank=rank)
        for rank, used in ((0, 10.0), (1, 30.0))
        for name, value in (("used", used), ("total", 100.0))
    )
    assert sglang(text).values["host_cache_usage"] == 0.2


VLLM = """# HELP vllm:gpu_prefix_cache_hits_total DEPRECATED: Use vllm:prefix_cache_hits instead.
# TYPE vllm:gpu_prefix_cache_hits_total counter
vllm:gpu_prefix_cache_hits_total{engine="0",model_name="org/q"} 3.0
vllm:prefix_cache_hits_total{engine="0",model_name="org/q"} 40.0
vllm:prefix_cache_queries_total{engine="0",model_name="org/q"} 160.0
vllm:prefix_cache_queries_created{engine="0",model_name="org/q"} 1.7537953269352946e+09
vllm:num_requests_running{engine="0",model_name="org/q"} 3.0
vllm:num_requests_running{engine="1",model_name="org/q"} 4.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="org/q"} 8.25010481363281e-06
vllm:request_params_n_bucket{le="+Inf",model_name="org/q"} 1.0
vllm:time_to_first_token_seconds_sum{engine="0"} NaN
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 700.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 620.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 400.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",position="0"} 1.7567367987343352e+09
vllm:spec_decode_num_drafts_total{engine="0"} 800.0
vllm:spec_decode_num_drafts_total{engine="1"} 700.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="900",kv_cache_size_tokens="14400"} 1.0
"""


def test_deprecated_twins_and_creation_times_are_not_counted():
    got = vllm(VLLM)
    assert got.values["prefix_hits_total"] == 40
    assert got.values["prefix_queries_total"] == 160
    assert got.values["running_reqs"] == 7
    assert got.values["kv_usage"] == pytest.approx(8.25e-06, rel=1e-3)
    assert got.labels["model_name"] == "org/q"
    assert got.labels["kv_cache_size_tokens"] == "14400"
    assert "ttft_s" not in got.histograms


def test_acceptance_by_position_is_over_the_verify_steps_of_all_engines():
    assert accept_by_position(vllm(VLLM)) == pytest.approx((1320 / 1500, 400 / 1500))
    assert accept_by_position(MetricsPage()) == ()


def test_the_usage_gauge_of_older_releases_is_the_same_quantity_and_processes_are_not_added():
    text = "\n".join(
        f'vllm:gpu_cache_usage_perc{{pid="{pid}",engine="0"}} {value}' for pid, value in ((7, 0.2), (8, 0.5))
    )
    assert vllm(text).values["kv_usage"] == 0.5


def test_llama_server_shows_its_own_average_since_its_counters_move_in_bursts():
    def scrape(total: int, running: int) -> MetricsPage:
        return llamacpp(
            f"llamacpp:tokens_predicted_total {total}\nllamacpp:predicted_tokens_seconds 23.4\n"
            f"llamacpp:requests_processing {running}\nllamacpp:requests_deferred 2\n"
        )

    before, after = scrape(4000, 1), scrape(5711, 1)
    assert after.values["gen_tps"] == 23.4
    assert after.values["queue_reqs"] == 2
    assert "gen_tps" not in between(before, after, 10.0)
    assert scrape(5711, 0).values["gen_tps"] == 0


def vllm_page(gen: int, drafts: int, accepted: int, steps: int, seconds: float) -> MetricsPage:
    buckets = "".join(
        f'vllm:inter_token_latency_seconds_bucket{{engine="0",le="{le}"}} {count}\n'
        for le, count in (("0.01", 0), ("0.05", steps), ("+Inf", steps))
    )
    return vllm(
        f'vllm:generation_tokens_total{{engine="0"}} {gen}\nvllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}\n'
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {3 * drafts}\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}\n'
        f'{buckets}vllm:inter_token_latency_seconds_sum{{engine="0"}} {seconds}\n'
    )


def test_two_scrapes_give_rates_acceptance_and_the_step_time():
    got = between(vllm_page(1000, 100, 150, 100, 2.0), vllm_page(1600, 300, 550, 300, 6.4), 5.0)
    assert got["gen_tps"] == 120
    assert got["accept_len"] == 3.0
    assert got["accept_rate"] == pytest.approx(400 / 600)
    assert got["step_ms"] == pytest.approx(22.0)
    assert 0.01 < got["itl_p50_s"] < 0.05


def test_a_restarted_server_gives_no_negative_rate():
    got = between(vllm_page(1000, 100, 150, 100, 2.0), vllm_page(10, 1, 1, 1, 0.02), 5.0)
    assert {"gen_tps", "accept_len", "accept_rate"}.isdisjoint(got)


def test_equal_counters_are_a_rate_of_zero_and_no_acceptance():
    page = vllm_page(1000, 100, 150, 100, 2.0)
    got = between(page, page, 5.0)
    assert got["gen_tps"] == 0
    assert "accept_len" not in got
    assert between(page, page, 0.0) == {}


def test_a_torn_line_costs_only_itself():
    got = vllm(VLLM + 'vllm:num_requests_waiting{engine="0"} 5.0\nvllm:num_requests_waiting{engine="1"')
    assert got.values["queue_reqs"] == 5
    assert vllm(VLLM + 'vllm:num_preemptions_total{engine="0 7').values["running_reqs"] == 7


@pytest.mark.parametrize("engine", PAGES)
def test_every_tag_of_a_page_is_registered(engine):
    text = "\n".join(
        f"{prefix}{name} 1.0"
        for prefix, module in (("sglang:", sglang), ("vllm:", vllm), ("llamacpp:", llamacpp))
        for name in module.__globals__["_WANTED"].series
        for name in [name.removeprefix(prefix)]
    )
    got = PAGES[engine](text)
    assert got.values
    assert set(got.values) <= set(REGISTRY)


NAMES = st.sampled_from(
    [
        "sglang:num_running_reqs",
        "sglang:gen_throughput",
        "sglang:time_to_first_token_seconds_bucket",
        "vllm:num_requests_running",
        "vllm:generation_tokens_total",
        "vllm:cache_config_info",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "vllm:e2e_request_latency_seconds_bucket",
        "vllm:e2e_request_latency_seconds_sum",
        "llamacpp:requests_processing",
        "llamacpp:tokens_predicted_total",
        "llamacpp:n_busy_slots_per_decode",
    ]
)
LABELS = st.sampled_from(
    [
        "",
        "{}",
        '{dp_rank="0",tp_rank="1"}',
        '{engine="1",model_name="a\\"b"}',
        '{le="0.5"}',
        '{le="+Inf",engine="0"}',
        '{le="x"}',
        '{position="0"}',
        '{position="many"}',
        '{mode="',
        '{num_gpu_blocks="None",block_size="16"}',
        "{=}",
    ]
)
VALUES = st.one_of(
    st.sampled_from(["1", "0.5", "NaN", "+Inf", "-Inf", "1e309", "-3", "", "x", "1_0", "0x1", "1 1700000000", "1 2 3"]),
    st.floats(allow_nan=False).map(repr),
)
ROW = st.tuples(NAMES, LABELS, VALUES).map(lambda parts: f"{parts[0]}{parts[1]} {parts[2]}")


@pytest.mark.parametrize("engine", PAGES)
@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(
        st.one_of(ROW, st.text(max_size=60), st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "replace"))),
        max_size=20,
    )
)
def test_any_page_gives_finite_known_values_or_says_that_it_is_none(engine, lines):
    try:
        got = PAGES[engine]("\n".join(lines))
    except ValueError as error:
        assert "no Prometheus page" in str(error)  # noqa: PT017 - it may as well be a page
        return
    assert all(math.isfinite(value) for value in got.values.values())
    assert all(isinstance(text, str) for text in got.labels.values())
    for histogram in got.histograms.values():
        assert list(histogram.bounds) == sorted(histogram.bounds)
        assert len(histogram.bounds) == len(histogram.counts)
        assert math.isfinite(histogram.total)
        assert histogram.quantile(0.5) is None or histogram.quantile(0.5) >= 0
    assert isinstance(between(got, got, 1.0), dict)


@pytest.mark.parametrize("engine", PAGES)
@settings(max_examples=100, deadline=None)
@given(lines=st.lists(ROW, max_size=12), torn=st.sampled_from(['vllm:x{a="', "sglang:num_running_reqs", "\x00", "{}"]))
def test_a_torn_line_costs_no_other_line(engine, lines, torn):
    def values(rows: list[str]) -> dict[str, float]:
        try:
            return PAGES[engine]("\n".join(rows)).values
        except ValueError:
            return {}

    assert values([*lines, torn]) == values(lines)


@pytest.mark.parametrize("engine", PAGES)
@pytest.mark.parametrize("piece", ["x", "#", "{", "vllm:num_requests_running{", 'sglang:a{b="c"} 1\n', "a 1 ", "\n"])
def test_a_page_of_a_megabyte_is_read_within_the_time_limit_of_a_test(engine, piece):
    try:
        PAGES[engine](piece * (1_000_000 // len(piece)))
    except ValueError as error:
        assert "no Prometheus page" in str(error)  # noqa: PT017


def test_polls_of_a_rate_that_sticks_show_zero_once_nothing_runs():
    polls = [(1, 0, 22.9), (0, 0, 18.3), (0, 0, 18.3), (0, 3, 18.3)]
    pages = [
        sglang("\n".join((sg("num_running_reqs", r), sg("num_queue_reqs", q), sg("gen_throughput", tps))))
        for r, q, tps in polls
    ]
    assert [page.values["gen_tps"] for page in pages] == [22.9, 0, 0, 0]
    assert all("gen_tps" not in between(a, b, 10.0) for a, b in pairwise(pages))

from __future__ import annotations

import pytest

from tokpit.collect.rates import WINDOW_S, Rates
from tokpit.domain.metrics import REGISTRY
from tokpit.domain.records import Histogram, MetricsPage


def page(**values: float) -> MetricsPage:
    return MetricsPage(values)


def waits(*counts: float) -> MetricsPage:
    return MetricsPage({}, {"ttft_s": Histogram((0.1, 0.2, float("inf")), counts, 1.0)})


def test_rates_need_two_scrapes_and_use_the_time_between() -> None:
    rates = Rates()
    assert rates.update(10.0, page(gen_tokens_total=1000, prompt_tokens_total=50, running_reqs=3)) == {
        "gen_tokens_total": 1000,
        "prompt_tokens_total": 50,
        "running_reqs": 3,
    }
    values = rates.update(14.0, page(gen_tokens_total=1800, prompt_tokens_total=50))
    assert (values["gen_tps"], values["prompt_tps"]) == (200.0, 0.0)


def test_a_gauge_of_the_server_wins_over_what_is_derived() -> None:
    rates = Rates()
    rates.update(1.0, page(gen_tokens_total=0, gen_tps=90.0))
    assert rates.update(2.0, page(gen_tokens_total=50, gen_tps=95.0))["gen_tps"] == 95.0


def test_a_restart_gives_no_rate_instead_of_a_wrong_one() -> None:
    rates = Rates()
    rates.update(1.0, page(gen_tokens_total=5000))
    assert "gen_tps" not in rates.update(2.0, page(gen_tokens_total=40))
    assert rates.update(4.0, page(gen_tokens_total=100))["gen_tps"] == 30.0


def test_a_clock_that_stood_still_gives_no_rate() -> None:
    rates = Rates()
    rates.update(1.0, page(gen_tokens_total=10))
    assert "gen_tps" not in rates.update(1.0, page(gen_tokens_total=20))


def test_quantiles_are_of_the_window_not_of_all_time() -> None:
    rates = Rates()
    assert rates.update(0.0, waits(1000, 1000, 1000)) == {}
    for second in range(1, 16):
        values = rates.update(second * 2.0, waits(1000, 1000 + second, 1000 + second))
    assert values["ttft_p50_s"] == pytest.approx(0.15)
    for second in range(16, 40):
        values = rates.update(second * 2.0, waits(1000, 1015, 1015))
    assert "ttft_p50_s" not in values


def test_the_window_keeps_few_scrapes_however_long_it_watches() -> None:
    rates = Rates()
    for second in range(3000):
        rates.update(float(second), page(gen_tokens_total=second))
    assert len(rates._pages) <= WINDOW_S + 2


def test_only_registered_metrics_leave() -> None:
    rates = Rates()
    rates.update(1.0, page(prefix_hits_total=0, prefix_queries_total=0, made_up=1))
    values = rates.update(2.0, page(prefix_hits_total=3, prefix_queries_total=4, made_up=2))
    assert values["prefix_hit_rate"] == 0.75
    assert set(values) <= set(REGISTRY)

"""Steady windows over invented levels whose true rate is known."""

from __future__ import annotations

import pytest

from tokpit.load.stream import Exchange
from tokpit.load.window import (
    chunk_tokens,
    closed_window,
    in_flight_profile,
    open_window,
    peak_and_mean,
    series,
    steady_rate,
)

S = 1_000_000_000


def exchange(sent_s: float, first_s: float, gap_s: float, chunks: int, tokens: int, outcome: str = "ok") -> Exchange:
    x = Exchange(0)
    x.t_start = x.t_sent = int(sent_s * S) + S  # 0 means never
    for position in range(chunks):
        x.stamps.append(int((first_s + position * gap_s) * S) + S)
    x.t_first = x.stamps[0] if chunks else 0
    x.t_end = x.stamps[-1] if chunks else x.t_sent
    x.completion_tokens = tokens
    x.outcome, x.finish = outcome, "length"
    return x


def waves(slots: int, requests: int, chunks: int = 100, gap_s: float = 0.05) -> list[Exchange]:
    """A server of `slots` slots fed by as many clients: every request takes `chunks` steps; the last wave is short."""
    found = []
    for number in range(requests):
        start = (number // slots) * chunks * gap_s
        found.append(exchange(start, start + gap_s, gap_s, chunks, chunks * 3))
    return found


def test_a_half_empty_last_wave_does_not_pull_the_steady_rate_down() -> None:
    level = waves(8, 18)
    true = 8 * 3 / 0.05
    window = closed_window(level, 8)
    assert window is not None
    assert window.kind == "busy"
    steady = steady_rate(level, window, 1.0)
    assert steady is not None
    assert steady.tokens_per_s == pytest.approx(true, rel=0.001)
    elapsed = 15.0
    whole = sum(x.tokens for x in level) / elapsed
    assert whole < 0.8 * true
    assert steady.half_width is not None
    assert steady.half_width < 0.1 * true


def test_at_one_in_flight_the_cold_first_request_is_left_out() -> None:
    level = [exchange(0, 4.05, 0.05, 100, 100)]
    for number in range(4):
        start = 9 + number * 5.0
        level.append(exchange(start, start + 0.05, 0.05, 100, 100))
    window = closed_window(level, 1)
    assert window is not None
    assert window.kind == "time"
    steady = steady_rate(level, window, 1.0)
    assert steady is not None
    assert steady.tokens_per_s == pytest.approx(20.0, rel=0.01)
    assert steady.completed == 4


def test_too_few_requests_have_no_steady_figure() -> None:
    assert closed_window(waves(1, 2), 1) is None
    assert closed_window([exchange(0, 1, 1, 3, 3)], 4) is None
    assert open_window(waves(2, 4)) is None


def test_few_chunks_have_a_rate_but_no_interval() -> None:
    level = waves(4, 8, chunks=10)
    window = closed_window(level, 4)
    assert window is not None
    steady = steady_rate(level, window, 1.0)
    assert steady is not None
    assert steady.half_width is None


def test_an_open_loop_is_measured_until_its_last_arrival() -> None:
    level = [exchange(number * 0.5, number * 0.5 + 0.1, 0.1, 20, 20) for number in range(40)]
    window = open_window(level)
    assert window is not None
    assert (window.start_ns - S, window.end_ns - S) == (2 * S, int(19.5 * S))
    steady = steady_rate(level, window, 1.0)
    assert steady is not None
    assert steady.tokens_per_s == pytest.approx(40, rel=0.02)


def test_failed_requests_make_no_output() -> None:
    level = waves(4, 8)
    level[3].outcome = level[7].outcome = "truncated"
    window = closed_window(level, 4)
    assert window is not None
    steady = steady_rate(level, window, 1.0)
    assert steady is not None
    assert steady.tokens_per_s == pytest.approx(3 * 3 / 0.05, rel=0.02)


def test_what_a_stopped_level_had_streamed_counts_by_its_chunks() -> None:
    cut = exchange(0, 0.1, 0.1, 50, 0, "cancelled")
    cut.completion_tokens = None
    assert chunk_tokens(cut, 3.2) == [3.2] * 50
    assert sum(series([cut], S, 7 * S, S, 3.2)) == pytest.approx(160)


def test_tokens_of_a_chunk_are_exact_where_usage_came_with_it() -> None:
    x = exchange(0, 1, 1, 3, 9)
    x.cum_tokens.extend([4, 5, 9])
    assert chunk_tokens(x, 1.0) == [4, 1, 4]


def test_peak_and_mean_in_flight_follow_the_requests() -> None:
    level = [exchange(0, 1, 1, 4, 4), exchange(2, 3, 1, 4, 4)]
    peak, mean = peak_and_mean(in_flight_profile(level), S, 7 * S)
    assert peak == 2
    assert mean == pytest.approx((4 + 4) / 6)


def test_a_request_that_follows_at_once_is_not_a_second_slot() -> None:
    level = [exchange(0, 1, 1, 4, 4), exchange(4, 5, 1, 4, 4)]
    assert peak_and_mean(in_flight_profile(level), S, 9 * S)[0] == 1

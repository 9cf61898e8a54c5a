from __future__ import annotations

from tokpit.domain.records import GpuRecord, GpuSample
from tokpit.store.live import HostState, Series


def test_points_from_a_log_read_later_are_put_in_their_place() -> None:
    series = Series(5)
    for t in (10.0, 20.0, 5.0, 15.0, 30.0):
        series.append(t, t, "log")
    assert list(series.times) == list(series.values) == [5.0, 10.0, 15.0, 20.0, 30.0]


def test_a_full_series_drops_the_oldest_whatever_comes_late() -> None:
    series = Series(3)
    for t in (10.0, 20.0, 30.0, 25.0, 1.0):
        series.append(t, t, "log")
    assert list(series.times) == [20.0, 25.0, 30.0]


def test_repeated_figures_of_a_late_poll_add_no_point() -> None:
    state = HostState("h", 10)
    record = GpuRecord("h", 7.0, (GpuSample(0, "u", "n", util=0.5),))
    state.add_gpus(record)
    state.add_gpus(record)
    assert list(state.gpu_util[0].times) == [7.0]

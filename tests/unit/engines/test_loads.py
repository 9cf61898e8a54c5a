"""What servers without metrics tell of their load on another page."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokpit.engines.registry import engine, names


def polled(running: float, waiting: float, rate: float) -> dict[str, float]:
    rank = {"num_running_reqs": running, "num_waiting_reqs": waiting, "gen_throughput": rate, "token_usage": 0.2}
    return engine("sglang").loads({"loads": [rank]})


def test_a_rate_that_sticks_after_the_last_request_is_zero() -> None:
    polls = [polled(1, 0, 22.9), polled(0, 0, 18.3), polled(0, 0, 18.3)]
    assert [values["gen_tps"] for values in polls] == [22.9, 0.0, 0.0]
    assert [values["running_reqs"] for values in polls] == [1, 0, 0]


def test_a_rate_that_is_never_filled_is_unknown_while_requests_run() -> None:
    assert "gen_tps" not in polled(3, 1, 0.0)
    assert polled(0, 0, 0.0)["gen_tps"] == 0.0


def test_ranks_add_up_and_usage_is_the_largest() -> None:
    rank = {"num_running_reqs": 2, "num_waiting_reqs": 1, "num_used_tokens": 10, "max_running_requests": 8}
    page = {"loads": [{**rank, "token_usage": 0.1, "gen_throughput": 5.0}, {**rank, "token_usage": 0.4}, "torn", None]}
    assert engine("sglang").loads(page) == {
        "running_reqs": 4,
        "queue_reqs": 2,
        "kv_tokens": 20,
        "max_running_reqs": 16,
        "kv_usage": 0.4,
        "gen_tps": 5.0,
    }


def test_slots_of_llama_server_tell_what_runs() -> None:
    page = [{"id": 0, "is_processing": True}, {"id": 1, "is_processing": False}, {"id": 2, "is_processing": True}]
    assert engine("llamacpp").loads(page) == {"running_reqs": 2.0, "max_running_reqs": 3.0}
    assert engine("llamacpp").loads({"error": {"code": 501}}) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["loads", "num_running_reqs", "gen_throughput", "is_processing", "x"]), inner)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("name", names())
@settings(max_examples=150, deadline=None)
@given(page=JSON)
def test_any_page_gives_finite_values_or_none(name: str, page: object) -> None:
    assert all(math.isfinite(value) for value in engine(name).loads(page).values())

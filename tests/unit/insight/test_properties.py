"""Whatever figures and lines come in, a diagnosis ends with findings, never with a fault."""

from __future__ import annotations

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from insight_logs import decode, diagnosed, prefill, stats
from tokpit.domain.finding import CONFIDENCES, SEVERITIES, Finding
from tokpit.insight.curve import read_curve
from tokpit.insight.diagnose import diagnose
from tokpit.insight.evidence import Evidence
from tokpit.insight.facts import FIELDS, parse_facts
from tokpit.insight.points import Point

_QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_NUMBER = st.one_of(st.integers(0, 200).map(str), st.floats(0, 1e6, allow_nan=False).map(lambda x: f"{x:.4g}"))
_SHARE = st.floats(0, 1).map(lambda x: round(x, 2))


def sound(found: tuple[Finding, ...]) -> bool:
    return all(
        f.code.isupper() and f.claim.endswith(".") and f.severity in SEVERITIES and f.confidence in CONFIDENCES
        for f in found
    )


@_QUICK
@given(st.dictionaries(st.sampled_from(FIELDS), _NUMBER, max_size=25))
@example({"max_running_requests": "1", "state_slots": "1", "slot_choices": "0"})
def test_any_facts(given_facts: dict[str, str]) -> None:
    facts, _ = parse_facts(given_facts)
    assert sound(diagnose(Evidence(facts=facts)))


_POINT = st.builds(
    Point,
    concurrency=st.integers(1, 512),
    requests=st.integers(0, 2000),
    ok=st.integers(0, 2000),
    err=st.integers(0, 50),
    elapsed_s=st.floats(0, 5000),
    output_tps=st.floats(0, 1e5),
    steady_tps=st.none() | st.floats(0.1, 1e5),
    e2e_mean_s=st.none() | st.floats(0.001, 1e4),
    running=st.none() | st.floats(0, 512),
    queued=st.none() | st.floats(0, 512),
)


@_QUICK
@given(st.lists(_POINT, max_size=9), st.none() | st.integers(1, 300))
def test_any_sweep(points: list[Point], cap: int | None) -> None:
    facts = parse_facts({} if cap is None else {"max_running_requests": str(cap)})[0]
    assert sound(diagnose(Evidence(facts=facts, points=tuple(points), curve=read_curve(points))))


_DECODE = st.builds(
    decode,
    st.integers(0, 9000),
    st.integers(0, 300),
    st.floats(0, 9000),
    queue=st.integers(0, 50),
    usage=_SHARE,
    mamba=st.none() | st.tuples(st.integers(0, 300), _SHARE),
    spec=st.none() | st.tuples(st.floats(1, 9), _SHARE),
    graph=st.booleans(),
)
_PREFILL = st.builds(
    prefill, st.integers(0, 9000), st.integers(0, 9000), running=st.integers(0, 60), pending=st.integers(0, 9)
)
_STATS = st.builds(stats, st.integers(0, 9000), st.integers(0, 300), st.floats(0, 9000), waiting=st.integers(0, 50))


@_QUICK
@given(st.lists(st.one_of(_DECODE, _PREFILL, st.text(max_size=60)), max_size=30), st.lists(_STATS, max_size=20))
def test_any_log(sglang: list[str], vllm: list[str]) -> None:
    assert sound(diagnosed(sglang, vllm, weights_gb=30, gpu="L40S", remembered_tps=90))

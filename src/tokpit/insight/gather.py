"""From what was given and read to the evidence that rules work on."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from tokpit.domain.records import GpuSample, Problem
from tokpit.domain.verdict import RuleAnswer, Verdict
from tokpit.insight.curve import Curve, read_curve
from tokpit.insight.digest import SPEC, STATS, Digest, Row
from tokpit.insight.evidence import Evidence, Setup, Trial
from tokpit.insight.facts import Facts, merged
from tokpit.insight.points import Point
from tokpit.insight.slots import pool_sizes


def gather(
    facts: Facts = Facts(),
    *,
    sweeps: Sequence[tuple[str, Sequence[Point]]] = (),
    logs: Sequence[Digest] = (),
    trials: Sequence[Trial] = (),
    gpus: Sequence[GpuSample] = (),
    problems: Sequence[Problem] = (),
    verdicts: Sequence[Verdict] = (),
    answers: Sequence[RuleAnswer] = (),
    setups: Sequence[Setup] = (),
    slot_choices: tuple[float, ...] | None = None,
) -> Evidence:
    """One record of everything. Facts given go before facts read, but the cap that a log states is the true one."""
    read = Facts()
    for log in logs:
        fits = pool_sizes(log.busy)
        if log.facts.state_slots is None and len(fits) == 1:
            read = merged(read, Facts(state_slots=fits[0], hybrid=True))
        read = merged(read, log.facts)
    logged, given = read.max_running_requests, facts.max_running_requests
    known = merged(read, facts)
    api_cap = None
    if logged is not None and given is not None and given != logged:
        known = msgspec.structs.replace(known, max_running_requests=logged)
        api_cap = given
    elif logged is not None and known.configured_max_running not in (None, logged):
        api_cap = known.configured_max_running
    if known.slot_choices is None and slot_choices:
        known = msgspec.structs.replace(known, slot_choices=slot_choices)
    curves = [(name, tuple(points), read_curve(points)) for name, points in sweeps]
    first: Curve | None = curves[0][2] if curves else None
    known = _streams(known, first, logs)
    return Evidence(
        facts=known,
        points=curves[0][1] if curves else (),
        curve=first,
        others=tuple((name, curve) for name, _, curve in curves[1:] if curve is not None),
        logs=tuple(logs),
        trials=tuple(trials),
        gpus=tuple(gpus),
        problems=tuple(problems),
        verdicts=tuple(verdicts),
        answers=tuple(answers),
        setups=(*setups, *(_setup(log) for log in logs if log.settings)),
        api_cap=api_cap,
    )


def single_stream(log: Digest) -> tuple[float, float | None, float | None, tuple[int, ...]] | None:
    """Median rate of one stream on a log, its acceptance length and rate (None: no speculation), and the lines."""
    rows = [r for r in log.busy if r.running == 1 and r.gen_tps and not r.gated and not r.queued]
    if not rows:
        return None
    spoken = [r for r in log.rows if r.accept_len is not None and (r.running in (1, None) or r.kind == SPEC)]
    length = median(r.accept_len or 1.0 for r in spoken) if spoken else None
    rates = [r.accept_rate for r in spoken if r.accept_rate is not None]
    return median(r.gen_tps or 0.0 for r in rows), length, median(rates) if rates else None, _lines(rows)


def _setup(log: Digest) -> Setup:
    """A log as a deployment."""
    stream = single_stream(log)
    settings = dict(log.settings)
    if log.engine is not None:
        settings.setdefault("engine", log.engine)
    if log.facts.engine_version is not None:
        settings.setdefault("version", log.facts.engine_version)
    rate, length = (stream[0], stream[1]) if stream is not None else (None, None)
    return Setup(name=log.name, settings=settings, single_tps=rate, accept_len=length)


def _lines(rows: Sequence[Row]) -> tuple[int, ...]:
    return tuple(row.line for row in rows[:3])


def _streams(facts: Facts, curve: Curve | None, logs: Sequence[Digest]) -> Facts:
    """Rates of one stream, with and without speculation, from logs and from the level C=1."""
    streams = [found for log in logs if (found := single_stream(log)) is not None]
    plain = [s for s in streams if s[1] is None]
    spec = [s for s in streams if s[1] is not None]
    changes: dict[str, float] = {}
    if facts.weights_each_gb:
        changes["weights_gb"] = facts.weights_each_gb * max(1, facts.tp or 1)
    pool = facts.kv_tokens or 0.0
    alone = [t for log in logs for r in log.busy if r.running == 1 and (t := r.tokens or (r.kv or 0.0) * pool)]
    if alone:
        changes["stream_tokens"] = median(alone)
    elif facts.input_tokens and (facts.concurrency or 1) == 1:
        changes["stream_tokens"] = facts.input_tokens + (facts.output_tokens or facts.requested_output or 0.0) / 2
    if spec:
        tps, length, rate, _ = spec[-1]
        changes |= {"spec_tps": tps, "single_tps": tps, "accept_len": length or 1.0}
        if rate is not None:
            changes["accept_rate"] = rate
        if plain:
            changes["baseline_tps"] = plain[-1][0]
    elif plain:
        changes["single_tps"] = plain[-1][0]
    elif curve is not None and curve.points[0].concurrency == 1:
        changes["single_tps"] = curve.points[0].tps
        if facts.accept_len:
            changes["spec_tps"] = curve.points[0].tps
    if facts.client_tps and (rates := [r.gen_tps for log in logs for r in log.busy if r.gen_tps and not r.gated]):
        changes["server_tps"] = median(rates)
    last = next((row for log in reversed(logs) for row in reversed(log.of(STATS))), None)
    if facts.client_in_flight and last is not None and last.running is not None and last.queued is not None:
        changes["server_running"], changes["server_queued"] = round(last.running), round(last.queued)
    if facts.single_tps and facts.accept_len and not facts.spec_tps and "spec_tps" not in changes:
        changes["spec_tps"] = facts.single_tps
    new = {name: value for name, value in changes.items() if getattr(facts, name) is None}
    if facts.spec_tps is not None and facts.single_tps is None:
        new["single_tps"] = facts.spec_tps
    return msgspec.structs.replace(facts, **new)

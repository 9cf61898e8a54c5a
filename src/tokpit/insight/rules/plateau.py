"""Throughput that no longer rises, with its cause."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight import plateau as why
from tokpit.insight.capacity import CONFIGURED, KV, LOGGED, STATE, Cap
from tokpit.insight.curve import Curve, advise, service_spread, slope
from tokpit.insight.evidence import Evidence
from tokpit.insight.fits import batch_fit
from tokpit.insight.plateau import Plateau, explain
from tokpit.insight.points import Point
from tokpit.insight.words import listed, num, percent, seconds

_CODES = {
    STATE: "QUEUE_LIMITED_BY_STATE_SLOTS",
    KV: "QUEUE_LIMITED_BY_KV",
    CONFIGURED: "QUEUE_LIMITED_BY_MAX_RUNNING",
    LOGGED: "QUEUE_LIMITED_BY_CAP",
}
_RAISE = {
    STATE: "Raise the state slots (--max-mamba-cache-size or --mamba-full-memory-ratio, or --mamba-ssm-dtype bfloat16 "
    "for states of half the size)",
    KV: "Give the KV cache more memory, or allow fewer tokens a request",
    CONFIGURED: "Raise the cap on running requests",
    LOGGED: "Find what sets the cap in the server's log and raise it",
}


def rule(evidence: Evidence) -> Sequence[Finding]:
    """The cause of the plateau of a sweep; quiet while throughput rises with concurrency."""
    curve = evidence.curve
    found = explain(curve, evidence.facts) if curve is not None else None
    if curve is None or found is None:
        return ()
    levels = tuple(p.concurrency for p in found.levels)
    if found.cause == why.CURVE_CAP and found.cap is not None and 95 <= found.cap.value <= 105:
        return (_usual_limit(curve, found, levels),)
    if found.cause in (why.CAP, why.CURVE_CAP, why.POLICY) and found.cap is not None:
        return (_capped(curve, found, found.cap),)
    if found.cause == why.COMPUTE:
        return (_compute(curve, found),)
    if found.cause == why.CLIENT:
        return (_client(found, levels),)
    if found.cause == why.THROTTLED:
        reasons = sorted({reason for p in found.levels for reason in p.throttled})
        return (
            Finding(
                code="GPU_THROTTLED",
                severity="warning",
                claim=f"Throughput stops rising at C={levels[0]} while the GPU is slowed down ({listed(reasons)}).",
                confidence="likely",
                next_action="Fix cooling or the power limit, let the clocks recover, and sweep again.",
                levels=levels,
            ),
        )
    if found.cause == why.UNKNOWN:
        return (_unknown(curve, found, levels),)
    return ()  # failed requests have a rule of their own


def _capped(curve: Curve, found: Plateau, cap: Cap) -> Finding:
    c = cap.value
    above = found.levels
    queue = listed(f"{p.concurrency - c} at C={p.concurrency}" for p in above)
    judged = [p for p in curve.points if p.concurrency >= 0.8 * c]
    times = ", ".join(f"{num(p.service_s(c) or 0)} s" for p in judged)
    rates = ", ".join(num(p.tps / min(p.concurrency, c)) for p in judged)
    where = ", ".join(f"C={p.concurrency}" for p in judged)
    arithmetic = [
        cap.arithmetic,
        f"time running = min(C, {c}) x elapsed / requests = {times} at {where}{_steadiness(judged, c)}",
        f"rate per running stream {rates} tok/s",
    ]
    name = f"max_running_requests = {c}" if found.cause == why.CAP else f"a cap of about {c} running requests"
    claim = f"The plateau is set by {name} ({c} running, queued C-{c}: {queue}), not by compute."
    figures: dict[str, float | str] = {"cap": float(c), "set_by": cap.by}
    evidence = [f"C={p.concurrency}: {num(p.tps, 4)} tok/s, {p.ok} requests in {num(p.elapsed_s, 4)} s" for p in judged]
    if cap.by == STATE and cap.per_request:
        claim += f" The cap is {cap.arithmetic.split(' = max')[0]}; KV tokens and the host cache add no running slots."
        figures["slots_per_request"] = float(cap.per_request)
    if found.cause == why.CURVE_CAP and curve.capped is not None:
        fitted = curve.capped.parameters["cap"]
        rivals = ", ".join(
            f"{percent(f.rms)} {n}" for n, f in (("without a cap", curve.batch), ("USL", curve.usl)) if f
        )
        arithmetic[0] = f"X(m) = m/(alpha + beta m), m = min(C, B): B = {num(fitted)}"
        arithmetic.append(f"rms error {percent(curve.capped.rms)}, against {rivals}")
        figures["fitted_cap"] = fitted
    elif curve.cap_in_curve is not None:
        evidence.append(f"the curve alone gives a cap of {num(curve.cap_in_curve)} (fit of min(C, B))")
        figures["fitted_cap"] = curve.cap_in_curve
    if found.cause == why.POLICY:
        claim += " The server's own limit is higher: its scheduler holds requests back."
    return Finding(
        code=_CODES[cap.by],
        severity="warning",
        claim=claim,
        arithmetic="; ".join(part for part in arithmetic if part),
        evidence=tuple(evidence),
        confidence="likely" if found.cause == why.CURVE_CAP else "sure",
        next_action=_advice(curve, found, cap),
        figures=figures,
        levels=tuple(p.concurrency for p in above),
    )


def _steadiness(judged: Sequence[Point], cap: int) -> str:
    spread = service_spread(judged, cap)
    return ": it does not grow with C" if spread is None or spread[1] <= 0.15 else ", too noisy to judge by"


def _advice(curve: Curve, found: Plateau, cap: Cap) -> str:
    best = advise(curve.points, curve.knee, cap.value).point.concurrency
    text = f"Run at C={min(best, cap.value)} as it is: levels above {cap.value} measure the queue. "
    text += f"{_RAISE[cap.by]}, then sweep again"
    fit = batch_fit([(float(p.concurrency), p.tps) for p in curve.points], cap.value)
    if fit is not None:
        p = fit.parameters
        double = 2 * cap.value / (p["alpha"] + p["beta"] * 2 * cap.value)
        gain = double / fit.at(cap.value) - 1
        if gain > 0.05:
            text += (
                f": by the step cost measured so far {2 * cap.value} at once would give about {num(double)} tok/s "
                f"(+{percent(gain)}, extrapolated)"
            )
    return text + "."


def _compute(curve: Curve, found: Plateau) -> Finding:
    first, last = curve.flat[0], curve.flat[-1]
    a, b = first.service_s() or 0.0, last.service_s() or 0.0
    times = last.concurrency / first.concurrency
    return Finding(
        code="PLATEAU_COMPUTE",
        severity="info",
        claim=(
            f"Past C={first.concurrency} the GPU is the limit: a step grows with the batch, so {num(times)} times the "
            f"requests bring {percent(last.tps / first.tps - 1)} more throughput and {num(b / a)} times the latency."
        ),
        arithmetic=(
            f"time running = C x elapsed / requests: {seconds(a)} at C={first.concurrency}, {seconds(b)} at "
            f"C={last.concurrency} ({num(b / a)} times for {num(times)} times C)"
        ),
        evidence=tuple(f"C={p.concurrency}: {num(p.tps, 4)} tok/s" for p in curve.points),
        confidence="likely",
        next_action=f"Run at C={curve.advice.point.concurrency}; more throughput needs another GPU, fewer bytes or "
        "operations a token, or shorter contexts.",
        levels=tuple(p.concurrency for p in found.levels),
    )


def _client(found: Plateau, levels: tuple[int, ...]) -> Finding:
    told = [text for p in found.levels for text in p.sentences]
    return Finding(
        code="CLIENT_BOUND",
        severity="error",
        claim=f"From C={levels[0]} on the client is the limit, not the server.",
        evidence=tuple(dict.fromkeys(told)),
        next_action="Run the client on the host or on more cores, without a connection limit, and sweep again.",
        levels=levels,
    )


def _usual_limit(curve: Curve, found: Plateau, levels: tuple[int, ...]) -> Finding:
    fitted = curve.cap_in_curve or 100.0
    return Finding(
        code="CLIENT_LIMIT",
        severity="warning",
        claim=f"No more than about {num(fitted)} requests run at once, whatever C is: 100 is the usual connection "
        f"limit of "
        "HTTP clients.",
        arithmetic=f"X(m) = m/(alpha + beta m), m = min(C, B): B = {num(fitted)}",
        confidence="possible",
        next_action="Look at the server: running 100 with an empty queue is the client's limit, a queue the server's "
        "cap.",
        figures={"fitted_cap": fitted},
        levels=levels,
    )


def _unknown(curve: Curve, found: Plateau, levels: tuple[int, ...]) -> Finding:
    first, last = curve.flat[0], curve.flat[-1]
    return Finding(
        code="PLATEAU_UNEXPLAINED",
        severity="info",
        claim=(
            f"Throughput does not rise from C={first.concurrency} to C={last.concurrency} "
            f"({num(first.tps)} to {num(last.tps)} tok/s); the curve alone does not say why."
        ),
        arithmetic=f"log-log slope {num(slope(first, last), 2)}; {_models(curve)}",
        confidence="possible",
        next_action="Read max_running_requests and the queue from the server's log: a cap of running requests and a "
        "saturated GPU look alike in so few points.",
        levels=levels,
    )


def _models(curve: Curve) -> str:
    fits = (("capped batch", curve.capped), ("batch", curve.batch), ("USL", curve.usl))
    return ", ".join(f"{name} fits to {percent(fit.rms)}" for name, fit in fits if fit is not None) or "too few points"


def flagged(evidence: Evidence) -> tuple[Point, ...]:
    """Levels whose figures measure the queue."""
    found = explain(evidence.curve, evidence.facts) if evidence.curve is not None else None
    return found.levels if found is not None and found.cap is not None else ()

"""What a capped sweep's own figures hide: latency, the emptier last wave, and the level to run at."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.curve import advise, latency_of
from tokpit.insight.evidence import Evidence
from tokpit.insight.plateau import Plateau, explain
from tokpit.insight.points import Point
from tokpit.insight.words import num, percent, seconds


def _plateau(evidence: Evidence) -> Plateau | None:
    return explain(evidence.curve, evidence.facts) if evidence.curve is not None else None


def operating_point(evidence: Evidence) -> Sequence[Finding]:
    """The level to run at, with its rule and its latency; quiet while throughput still rises."""
    curve, plateau = evidence.curve, _plateau(evidence)
    if curve is None or plateau is None:
        return ()
    advice = advise(curve.points, curve.knee, plateau.cap.value if plateau.cap else None)
    chosen, last = advice.point, curve.points[-1]
    own, beyond = advice.latency_s, latency_of(last)
    if own is None or beyond is None or chosen is last:
        return ()
    if plateau.cap is not None and chosen.concurrency > plateau.cap.value:
        return ()  # no level within the cap was measured
    return (
        Finding(
            code="OPERATING_POINT",
            severity="info",
            claim=(
                f"C={chosen.concurrency} is the level to run at: {num(chosen.tps, 4)} tok/s, {percent(advice.share)} "
                f"of the best, at {seconds(own, 2)} a request; C={last.concurrency} takes {seconds(beyond, 2)} a "
                f"request for {num(last.tps, 4)} tok/s."
            ),
            arithmetic=f"{advice.rule}: {num(chosen.tps, 4)} / {num(curve.peak.tps, 4)} = {num(100 * advice.share)}%",
            next_action=f"Keep at most {chosen.concurrency} requests in flight.",
            figures={"concurrency": float(chosen.concurrency), "latency_s": own, "share_of_peak": advice.share},
            levels=(chosen.concurrency,),
        ),
    )


def latency(evidence: Evidence) -> Sequence[Finding]:
    """Latencies by Little's law beside elapsed / requests, which is none; quiet without a queue."""
    curve, plateau = evidence.curve, _plateau(evidence)
    if curve is None or plateau is None or plateau.cap is None or not plateau.levels:
        return ()
    last = plateau.levels[-1]
    if last.e2e_mean_s is not None or last.little_s is None:
        return ()
    chosen = advise(curve.points, curve.knee, plateau.cap.value).point
    running = _running_s(plateau, last)
    queued = last.little_s - running
    shown = (chosen, last) if chosen is not last else (last,)
    words = ", ".join(
        f"C={p.concurrency}: {p.concurrency} / ({p.ok} / {num(p.elapsed_s, 4)} s) = {seconds(p.little_s or 0, 2)}"
        for p in shown
    )
    ratios = " and ".join(f"{num(p.elapsed_s / p.ok)} s at C={p.concurrency}" for p in shown)
    return (
        Finding(
            code="LATENCY_BY_LITTLE",
            severity="info",
            claim=(
                f"A request takes {seconds(last.little_s, 2)} at C={last.concurrency}, of which about "
                f"{seconds(queued, 2)} is queueing; elapsed / requests ({ratios}) is not a latency."
            ),
            arithmetic=f"Little's law, W = C / (requests / elapsed): {words}; running {seconds(running, 2)}",
            confidence="likely",
            next_action="Measure TTFT and end-to-end latency per request, and compare them with these.",
            figures={"latency_s": last.little_s, "queueing_s": queued, "running_s": running},
            levels=tuple(p.concurrency for p in shown),
        ),
    )


def last_wave(evidence: Evidence) -> Sequence[Finding]:
    """The rise of whole-run rates past a cap is the shrinking share of the last, emptier wave."""
    plateau = _plateau(evidence)
    if plateau is None or plateau.cap is None or plateau.waves is None or len(plateau.levels) < 2:
        return ()
    first, last = plateau.levels[0], plateau.levels[-1]
    if first.steady_tps is not None or last.steady_tps is not None:
        return ()
    rise = last.output_tps / first.output_tps - 1
    model = plateau.waves
    tokens = last.tokens
    a, b = (model.output_tps(p.concurrency, p.ok, tokens) for p in (first, last))
    holds = all(abs(model.elapsed_s(p.concurrency, p.ok) / p.elapsed_s - 1) < 0.1 for p in plateau.levels)
    if rise < 0.02 or b <= a or not holds:
        return ()
    return (
        Finding(
            code="LAST_WAVE",
            severity="info",
            claim=(
                f"The {percent(rise)} more throughput from C={first.concurrency} to C={last.concurrency} is the share "
                f"of the last, half-empty wave, which shrinks as requests grow; the steady rate is flat at about "
                f"{num(model.steady_tps(last.concurrency, tokens))} tok/s past the cap."
            ),
            arithmetic=(
                f"{_waves(model.waves(first.concurrency, first.ok), first)}, "
                f"{_waves(model.waves(last.concurrency, last.ok), last)}; predicted elapsed "
                + ", ".join(
                    f"{num(model.elapsed_s(p.concurrency, p.ok))} s for {num(p.elapsed_s, 4)} s measured at "
                    f"C={p.concurrency}"
                    for p in plateau.levels
                )
                + f"; predicted rise {percent(b / a - 1)}"
            ),
            confidence="likely",
            next_action="Compare steady-window rates (all C slots occupied, no ramp-up and drain), not whole runs.",
            figures={"rise": rise, "predicted_rise": b / a - 1},
            levels=(first.concurrency, last.concurrency),
        ),
    )


def _running_s(plateau: Plateau, last: Point) -> float:
    if plateau.waves is not None and plateau.cap is not None:
        return plateau.waves.service_s(min(last.concurrency, plateau.cap.value))
    return plateau.service_s or 0.0


def _waves(counts: tuple[int, int], p: Point) -> str:
    full, rest = counts
    return f"{p.ok} requests at C={p.concurrency} are {full} full waves" + (f" and one of {rest}" if rest else "")

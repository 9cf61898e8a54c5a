"""Up to how many requests at once draft tokens pay, predicted where no second sweep has measured it.

A step of m requests without drafts takes alpha + beta m; with k draft tokens it verifies m (k+1) tokens and drafts
besides: D + alpha + beta m (k+1), if what a request adds grows with its tokens. It brings L tokens a request, so it
pays while m < ((L-1) alpha - D) / (beta (k+1-L)). What a request adds is in part KV that is read once whatever is
verified, so drafts stop paying there at the earliest. At the latest they do where verifying takes the GPU's arithmetic
as long as L steps that read the weights: a step reads them in T_w, a token computes in t_c, and
m = (T_w / t_c) (L - (r-1)) / (k+1), r the cost of a speculative step of one stream in plain ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tokpit.domain.finding import Finding
from tokpit.insight.capacity import running_cap
from tokpit.insight.evidence import Evidence
from tokpit.insight.fits import batch_fit
from tokpit.insight.parameters import is_mixture
from tokpit.insight.prefill import compute
from tokpit.insight.roofline import roofline
from tokpit.insight.speculation import draft_length, step_ratio
from tokpit.insight.words import num, seconds

_FEWEST = 3
_GOOD_FIT = 0.1


class Limit(msgspec.Struct, frozen=True):
    """Requests at once, and how they follow."""

    requests: float
    arithmetic: str


def rule(evidence: Evidence) -> Sequence[Finding]:
    """The concurrency at which drafts stop paying, as a range of what is known."""
    f = evidence.facts
    k, length = draft_length(f), f.accept_len
    if not k or length is None or not 1.02 < length < k + 1 or _both_measured(evidence):
        return ()
    if not f.spec_tps or not f.baseline_tps:
        return ()
    ratio = step_ratio(length, f.spec_tps, f.baseline_tps)
    if ratio >= length:
        return ()  # it does not pay for one stream: another rule says so
    least = _from_sweep(evidence, length, k, ratio)
    most = _from_roofline(evidence, length, k, ratio)
    if least is None and most is None:
        return ()
    cap = running_cap(f)
    said = []
    if least is not None:
        said.append(
            f"not before about {num(max(1.0, least.requests), 2)} requests at once (what a request adds to a step)"
        )
    if most is not None:
        said.append(f"at about {num(most.requests, 2)} at the latest (verifying then takes the GPU's arithmetic)")
    reached = cap is not None and least is not None and least.requests >= cap.value
    claim = f"Draft tokens (acceptance length {num(length)} of {k + 1} verified) stop paying {', and '.join(said)}."
    if reached and cap is not None:
        claim += f" No more than {cap.value} run here, so they pay at any load."
    return (
        Finding(
            code="SPEC_LIMIT",
            severity="info",
            claim=claim,
            arithmetic="; ".join(limit.arithmetic for limit in (least, most) if limit is not None),
            confidence="possible",
            next_action="Keep them on."
            if reached
            else "Measure it there: one sweep with draft tokens and one without.",
            figures={
                **({"pays_up_to": least.requests} if least is not None else {}),
                **({"stops_paying_at": most.requests} if most is not None else {}),
            },
        ),
    )


def _both_measured(evidence: Evidence) -> bool:
    """Whether there are sweeps with and without drafts, which say it better."""
    curves = [curve for curve in (evidence.curve, *(other for _, other in evidence.others)) if curve is not None]
    drafts = [any((p.accept_len or 1.0) > 1.0 for p in curve.points) for curve in curves]
    return any(drafts) and not all(drafts)


def _from_sweep(evidence: Evidence, length: float, k: int, ratio: float) -> Limit | None:
    f, curve = evidence.facts, evidence.curve
    if curve is None or not f.baseline_tps or not f.spec_tps:
        return None
    cap = running_cap(f)
    limit = float(cap.value) if cap is not None else curve.cap_in_curve
    points = [(float(p.concurrency), p.tps) for p in curve.points if limit is None or p.concurrency <= limit]
    fit = batch_fit(points) if len(points) >= _FEWEST else None
    if fit is None or fit.rms > _GOOD_FIT or fit.parameters["beta"] <= 0:
        return None
    alpha, beta = fit.parameters["alpha"], fit.parameters["beta"]
    first = 1 / (alpha + beta)
    drafted = any((p.accept_len or 1.0) > 1.0 for p in curve.points) or (
        abs(first - f.spec_tps) < abs(first - f.baseline_tps)
    )
    if drafted:  # fitted is (D + alpha) / L and beta (k+1) / L
        beta, whole = beta * length / (k + 1), alpha * length
        alpha = 1 / f.baseline_tps - beta
        draft = whole - alpha
    else:
        draft = ratio * (alpha + beta) - alpha - beta * (k + 1)
    draft = max(0.0, draft)
    if alpha <= 0 or beta <= 0:
        return None
    requests = ((length - 1) * alpha - draft) / (beta * (k + 1 - length))
    sums = (
        f"a plain step takes {seconds(alpha)} + {seconds(beta)} a request (fitted to the sweep), drafting "
        f"{seconds(draft)}: (({num(length)} - 1) x {seconds(alpha)} - {seconds(draft)}) / ({seconds(beta)} x "
        f"({k + 1} - {num(length)})) = {num(requests, 2)}"
    )
    return Limit(requests, sums) if requests >= 1 else None


def _from_roofline(evidence: Evidence, length: float, k: int, ratio: float) -> Limit | None:
    roof, arithmetic = roofline(evidence.facts), compute(evidence.facts)
    if roof is None or arithmetic is None or is_mixture(evidence.facts):
        return None  # verifying more tokens reads more experts: the weights are no fixed cost
    reading = roof.each_gb / roof.bandwidth_gbps
    ridge = reading * arithmetic.tps
    extra = max(0.0, ratio - 1)
    requests = ridge * (length - extra) / (k + 1)
    drafting = f" - {num(extra)}" if extra else ""
    sums = (
        f"reading the weights takes {num(1000 * reading)} ms ({num(roof.each_gb)} GB / "
        f"{num(roof.bandwidth_gbps, 4)} GB/s), in which {num(ridge)} tokens can be computed ({arithmetic.words()}): "
        f"{num(ridge)} x ({num(length)}{drafting}) / {k + 1} = {num(requests, 2)}"
    )
    return Limit(requests, sums) if requests >= 1 else None

"""Two sweeps of one server, with draft tokens and without: up to how many requests at once do they pay?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tokpit.domain.finding import Finding
from tokpit.insight.curve import Curve
from tokpit.insight.evidence import Evidence
from tokpit.insight.words import listed, num

_CLEAR = 0.05
"""Less than this is no difference, whatever the intervals say."""


class Pair(msgspec.Struct, frozen=True):
    """One concurrency in both sweeps. `length`: tokens a speculative step brings; `doubt`: half width of `gain`."""

    concurrency: int
    drafts_tps: float
    plain_tps: float
    length: float
    doubt: float

    @property
    def gain(self) -> float:
        """Rate with draft tokens / rate without."""
        return self.drafts_tps / self.plain_tps

    @property
    def cost(self) -> float:
        """Time of a speculative step / time of a plain one. It pays while this is below `length`."""
        return self.length / self.gain

    @property
    def verdict(self) -> int:
        """1: pays, -1: costs, 0: no difference that can be told."""
        if abs(self.gain - 1) <= max(_CLEAR, self.doubt):
            return 0
        return 1 if self.gain > 1 else -1


def rule(evidence: Evidence) -> Sequence[Finding]:
    """Where draft tokens pay and where they cost, level by level."""
    if evidence.curve is None:
        return ()
    found = []
    for _, other in evidence.others:
        pairs = _pairs(evidence.curve, other) or _pairs(other, evidence.curve)
        if pairs:
            found.append(_finding(pairs))
    return found


def _pairs(drafts: Curve, plain: Curve) -> list[Pair]:
    """The common levels; empty where these two are not a sweep with draft tokens and one without."""
    if any((p.accept_len or 1.0) > 1.0 for p in plain.points):
        return []
    # A dead draft has an acceptance length of 1, which without drafts is not measured.
    if not any((p.accept_len or 1.0) > 1.0 for p in drafts.points) and any(p.accept_len for p in plain.points):
        return []
    known = {p.concurrency: p for p in plain.points}
    pairs = []
    for p in drafts.points:
        other = known.get(p.concurrency)
        if other is None or p.accept_len is None:
            continue
        doubt = sum(((q.steady_ci or 0.0) / q.tps) ** 2 for q in (p, other) if q.steady_tps) ** 0.5
        pairs.append(Pair(p.concurrency, p.tps, other.tps, p.accept_len, doubt * p.tps / other.tps))
    return pairs


def _finding(pairs: Sequence[Pair]) -> Finding:
    pays = [p for p in pairs if p.verdict > 0]
    costs = [p for p in pairs if p.verdict < 0]
    even = [p for p in pairs if not p.verdict]
    parts = []
    if pays:
        parts.append(f"pay at {_told(pays)}")
    if costs:
        parts.append(f"cost more than they bring at {_told(costs)}")
    if even:
        parts.append(f"make no difference that can be told at {_told(even)}")
    claim = f"Draft tokens {listed(parts)}."
    action = "Keep them on."
    code, severity = "SPEC_PAYS", "info"
    last = max((p.concurrency for p in pays), default=0)
    first = min((p.concurrency for p in costs), default=0)
    if pays and costs and first > last:
        code = "SPEC_STOPS_PAYING"
        claim += f" They stop paying between C={last} and C={first}."
        action = (
            f"Choose by the load that is served: with {first} or more at once switch them off or draft fewer tokens."
        )
    elif costs and not pays:
        code, severity = "SPEC_OVERHEAD", "warning"
        action = "Switch them off, or draft fewer tokens a step."
    elif not costs and not pays:
        code, action = "SPEC_NO_DIFFERENCE", "Measure longer levels, or decide by latency."
    elif costs:
        code, action = "SPEC_UNCLEAR", "The levels contradict one another: measure again, longer."
    return Finding(
        code=code,
        severity=severity,
        claim=claim,
        arithmetic="; ".join(
            f"C={p.concurrency}: {num(p.drafts_tps, 4)} / {num(p.plain_tps, 4)} tok/s = {num(p.gain)}, a step of "
            f"{num(p.length)} tokens costs {num(p.length)} / {num(p.gain)} = {num(p.cost)} plain ones"
            for p in pairs
        ),
        confidence="likely",
        next_action=action,
        figures={f"gain_at_{p.concurrency}": p.gain for p in pairs},
        levels=tuple(p.concurrency for p in pairs),
    )


def _told(pairs: Sequence[Pair]) -> str:
    return listed(f"C={p.concurrency} ({num(p.gain)} times the rate)" for p in pairs)

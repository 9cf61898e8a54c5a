"""Apply every rule and order what they say."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules import RULES


def diagnose(evidence: Evidence) -> tuple[Finding, ...]:
    """All findings, the gravest and surest first, notes after causes; of one code, level and place the first."""
    found: dict[tuple[object, ...], Finding] = {}
    for rule in RULES:
        for finding in rule(evidence):
            found.setdefault((finding.code, finding.levels, finding.evidence[:1]), finding)
    return tuple(sorted(_once(found.values()), key=_order))


def _once(found: Iterable[Finding]) -> list[Finding]:
    """A queue that levels of a sweep and a log show is told once, by the levels, with the lines as more evidence."""
    told = list(found)
    for finding in told[:]:
        if finding.levels or not finding.code.startswith("QUEUE_LIMITED"):
            continue
        same = next((f for f in told if f.levels and f.code == finding.code), None)
        if same is not None:
            told.remove(finding)
            told[told.index(same)] = msgspec.structs.replace(same, evidence=(*same.evidence, *finding.evidence))
    return told


NOTES = frozenset(
    {
        *("OPERATING_POINT", "LATENCY_BY_LITTLE", "LAST_WAVE", "ROOFLINE", "PREFILL_CEILING", "TTFT_PREFILL_BOUND"),
        *("SPEC_LIMIT", "HOST_CACHE_PAYS", "HOST_CACHE_UNUSED"),
    }
)
"""What holds for any sweep or server: a cause goes before it, be it less sure."""


def _order(finding: Finding) -> tuple[int, bool, int]:
    gravity, doubt = finding.rank
    return gravity, finding.code in NOTES, doubt

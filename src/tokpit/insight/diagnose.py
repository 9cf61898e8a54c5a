"""Apply every rule and order what they say."""

from __future__ import annotations

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules import RULES


def diagnose(evidence: Evidence) -> tuple[Finding, ...]:
    """All findings, the gravest and surest first, notes after causes; of one code, level and place the first."""
    found: dict[tuple[object, ...], Finding] = {}
    for rule in RULES:
        for finding in rule(evidence):
            found.setdefault((finding.code, finding.levels, finding.evidence[:1]), finding)
    return tuple(sorted(found.values(), key=_order))


_NOTES = frozenset({"OPERATING_POINT", "LATENCY_BY_LITTLE", "LAST_WAVE", "ROOFLINE"})
"""What holds for any sweep or server: a cause goes before it, be it less sure."""


def _order(finding: Finding) -> tuple[int, bool, int]:
    gravity, doubt = finding.rank
    return gravity, finding.code in _NOTES, doubt

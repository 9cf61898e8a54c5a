"""Apply every rule and order what they say."""

from __future__ import annotations

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules import RULES


def diagnose(evidence: Evidence) -> tuple[Finding, ...]:
    """All findings, the gravest and surest first; of those with one code, level and place the first."""
    found: dict[tuple[object, ...], Finding] = {}
    for rule in RULES:
        for finding in rule(evidence):
            found.setdefault((finding.code, finding.levels, finding.evidence[:1]), finding)
    return tuple(sorted(found.values(), key=lambda finding: finding.rank))

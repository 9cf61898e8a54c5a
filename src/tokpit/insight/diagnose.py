"""Apply every rule and order what they say."""

from __future__ import annotations

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules import RULES


def diagnose(evidence: Evidence) -> tuple[Finding, ...]:
    """All findings, the gravest and surest first; of one code and level the first."""
    found: dict[tuple[str, tuple[int, ...], str], Finding] = {}
    for rule in RULES:
        for finding in rule(evidence):
            found.setdefault((finding.code, finding.levels, finding.claim), finding)
    return tuple(sorted(found.values(), key=lambda finding: finding.rank))

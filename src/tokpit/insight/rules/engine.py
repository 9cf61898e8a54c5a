"""What the engines' own knowledge says: why a start or run failed, and rules between settings, model and host."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence


def verdicts(evidence: Evidence) -> Sequence[Finding]:
    """Verdicts on logs of failed starts and runs."""
    return [
        Finding(
            code=verdict.code,
            severity="error" if verdict.fatal else "warning",
            claim=verdict.sentence,
            arithmetic=verdict.arithmetic,
            evidence=verdict.evidence,
            next_action=verdict.next_action,
            figures=verdict.figures,
            fixes=verdict.fixes,
        )
        for verdict in evidence.verdicts
    ]


def answers(evidence: Evidence) -> Sequence[Finding]:
    """Rules between settings, model and host that found something wrong."""
    return [
        Finding(
            code=answer.code,
            # A server that was measured has started all the same.
            severity="warning" if evidence.curve is not None or evidence.logs else answer.severity,
            claim=answer.sentence,
            arithmetic=answer.arithmetic,
            next_action=f"Change: {answer.fixes[0].label}." if answer.fixes else "",
            fixes=answer.fixes,
        )
        for answer in evidence.answers
        if answer.severity != "info"
    ]

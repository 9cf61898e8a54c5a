"""The rules: small pure functions from evidence to findings, one line each here.

A rule without its evidence stays quiet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules import plateau, sweep_faults, sweep_notes

Rule = Callable[[Evidence], Sequence[Finding]]

RULES: tuple[Rule, ...] = (
    plateau.rule,
    sweep_notes.operating_point,
    sweep_notes.latency,
    sweep_notes.last_wave,
    sweep_faults.errors,
    sweep_faults.cliff,
    sweep_faults.no_tokens,
    sweep_faults.checks,
)

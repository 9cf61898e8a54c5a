"""A finding: what figures say, the arithmetic behind it, and what to do next."""

from __future__ import annotations

import msgspec

from tokpit.domain.verdict import Fix

SEVERITIES = ("error", "warning", "info")
CONFIDENCES = ("sure", "likely", "possible")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the figures say. Sentences are plain text; numbers in them carry units.

    `severity`: `error` (it does not work or figures are void), `warning` (it costs something) or `info` (worth
    knowing, nothing is wrong). `confidence`: `sure` (the figures leave nothing else), `likely` or `possible`.
    """

    code: str
    severity: str
    claim: str
    arithmetic: str = ""
    evidence: tuple[str, ...] = ()
    """What the claim rests on: printed figures with their place (line, level, fact)."""
    confidence: str = "sure"
    next_action: str = ""
    figures: dict[str, float | str] = {}
    """The numbers of the claim by name, with units in the names."""
    levels: tuple[int, ...] = ()
    """Concurrency of the sweep levels that it is about."""
    fixes: tuple[Fix, ...] = ()

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key: the gravest and surest first."""
        return SEVERITIES.index(self.severity), CONFIDENCES.index(self.confidence)

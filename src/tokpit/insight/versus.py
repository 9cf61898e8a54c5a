"""Two runs side by side, whole: the figures judged, and what else differs, ranked."""

from __future__ import annotations

import msgspec

from tokpit.domain.run import Run
from tokpit.insight.baseline import Baseline
from tokpit.insight.changes import Change, ranked
from tokpit.insight.comparison import Comparison, compare


class Versus(msgspec.Struct, frozen=True, kw_only=True):
    """One run beside the reference: figures, and what else differs, the likeliest explanation first."""

    before: Run
    after: Run
    comparison: Comparison
    changes: tuple[Change, ...]
    baseline: Baseline | None = None


def versus(before: Run, after: Run, baseline: Baseline | None = None) -> Versus:
    """Judge one run by another."""
    found = compare(before, after, baseline)
    return Versus(
        before=before, after=after, comparison=found, changes=ranked(before, after, found.gap), baseline=baseline
    )

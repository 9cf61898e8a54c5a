"""All that rules look at, in one frozen record."""

from __future__ import annotations

import msgspec

from tokpit.insight.curve import Curve
from tokpit.insight.facts import Facts
from tokpit.insight.points import Point


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known. Empty or None: not looked at."""

    facts: Facts = Facts()
    points: tuple[Point, ...] = ()
    """Levels of the sweep as they came, unusable ones included."""
    curve: Curve | None = None

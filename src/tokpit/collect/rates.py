"""From scrapes to metric values: gauges as they are, rates since the last one, quantiles of the last window. Pure."""

from __future__ import annotations

from collections import deque

from tokpit.domain.metrics import REGISTRY
from tokpit.domain.records import MetricsPage
from tokpit.engines.logkit.rates import between

WINDOW_S = 30.0
"""Quantiles are over the observations of this many seconds: a scrape interval alone holds too few."""


class Rates:
    """Holds the last scrapes of one server."""

    def __init__(self) -> None:
        self._pages: deque[tuple[float, MetricsPage]] = deque()

    def update(self, t: float, page: MetricsPage) -> dict[str, float]:
        """Values by registered tag for a scrape at `t` (seconds); gauges win over what is derived from counters."""
        if self._pages and (t <= self._pages[-1][0] or _restarted(self._pages[-1][1], page)):
            self._pages.clear()
        values: dict[str, float] = {}
        if self._pages:
            first_t, first = self._pages[0]
            last_t, last = self._pages[-1]
            values.update(_quantiles(between(first, page, t - first_t)))
            values.update(_but_quantiles(between(last, page, t - last_t)))
        values.update(page.values)
        self._pages.append((t, page))
        # The newest scrape that is old enough stays, as the base of the window.
        while len(self._pages) > 2 and self._pages[1][0] <= t - WINDOW_S:
            self._pages.popleft()
        return {tag: value for tag, value in values.items() if tag in REGISTRY}


def _is_quantile(tag: str) -> bool:
    return tag.endswith(("_p50_s", "_p99_s"))


def _quantiles(values: dict[str, float]) -> dict[str, float]:
    return {tag: value for tag, value in values.items() if _is_quantile(tag)}


def _but_quantiles(values: dict[str, float]) -> dict[str, float]:
    return {tag: value for tag, value in values.items() if not _is_quantile(tag)}


def _restarted(before: MetricsPage, after: MetricsPage) -> bool:
    """Whether a counter fell: then nothing before it may be subtracted."""
    return any(
        after.values[name] < value
        for name, value in before.values.items()
        if name.endswith("_total") and name in after.values
    )

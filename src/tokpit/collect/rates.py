"""From scrapes to metric values: rates of counters, quantiles of the last window, gauges gated where they lie. Pure."""

from __future__ import annotations

from collections import deque

from tokpit.domain.metrics import REGISTRY
from tokpit.domain.records import Histogram, MetricsPage

WINDOW_S = 30.0
"""Quantiles are over the observations of this many seconds: a scrape interval alone holds too few."""
_RATES = {"gen_tokens_total": "gen_tps", "prompt_tokens_total": "prompt_tps"}
_DELTAS = {"preemptions_total": "preemptions"}
_QUANTILES = (("p50", 0.5), ("p99", 0.99))


class Rates:
    """Holds what the last scrapes said of one server."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}
        self._windows: dict[str, deque[tuple[float, Histogram]]] = {}

    def update(self, t: float, page: MetricsPage) -> dict[str, float]:
        """Values by registered tag for a scrape at `t` (seconds, rising); empty where the page says nothing."""
        values = {tag: value for tag, value in page.values.items() if tag in REGISTRY}
        running = page.values.get("running_reqs")
        for counter, tag in _RATES.items():
            rate = self._rate(counter, t, page, spread=tag == "gen_tps" and bool(running))
            if tag not in page.values and rate is not None:
                values[tag] = rate
        for counter, tag in _DELTAS.items():
            if (added := self._added(counter, t, page)) is not None:
                values[tag] = added
        if running == 0 and "gen_tps" in values:
            values["gen_tps"] = 0.0  # gauges keep the last rate for ever once the server is idle
        for name, histogram in page.histograms.items():
            values.update(self._quantiles(name.removesuffix("_s"), t, histogram))
        if "step_ms" not in values and running and values.get("gen_tps") and "accept_len" in values:
            values["step_ms"] = 1000.0 * running * values["accept_len"] / values["gen_tps"]
        return values

    def _rate(self, counter: str, t: float, page: MetricsPage, *, spread: bool) -> float | None:
        """Per second since the last scrape. None on the first one and after a reset (the server restarted).

        With `spread`, a counter that stands still while requests run is one that moves only when a request ends: no
        rate is given then, and what it adds later counts for the whole time since it moved last.
        """
        value = page.values.get(counter)
        if value is None:
            return None
        before = self._last.get(counter)
        if before is None or value < before[1] or t <= before[0]:
            self._last[counter] = (t, value)
            return None
        added = value - before[1]
        if added == 0 and spread:
            return None
        self._last[counter] = (t, value)
        return added / (t - before[0])

    def _added(self, counter: str, t: float, page: MetricsPage) -> float | None:
        value = page.values.get(counter)
        if value is None:
            return None
        before = self._last.get(counter)
        self._last[counter] = (t, value)
        return value - before[1] if before is not None and value >= before[1] else None

    def _quantiles(self, name: str, t: float, histogram: Histogram) -> dict[str, float]:
        window = self._windows.setdefault(name, deque())
        if window and (window[-1][1].bounds != histogram.bounds or _went_back(window[-1][1], histogram)):
            window.clear()
        window.append((t, histogram))
        # The newest entry that is old enough stays, as the base of the window.
        while len(window) > 2 and window[1][0] <= t - WINDOW_S:
            window.popleft()
        if len(window) < 2:
            return {}
        recent = histogram.minus(window[0][1])
        found = {}
        for word, q in _QUANTILES:
            tag = f"{name}_{word}_s"
            if tag in REGISTRY and (value := recent.quantile(q)) is not None:
                found[tag] = value
        return found


def _went_back(earlier: Histogram, later: Histogram) -> bool:
    return any(b < a for a, b in zip(earlier.counts, later.counts, strict=True))

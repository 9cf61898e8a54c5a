"""Prometheus pages: only the wanted lines are parsed, and series of several ranks become one value.

A rank's value is the largest over its replicas (tensor, pipeline, context parallel ranks and processes export the
same figure); a server's value is the sum of its data-parallel ranks, or the largest for usages.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress

from prometheus_client.parser import text_string_to_metric_families

from tokpit.domain.records import Histogram

_SAMPLE_LINE = re.compile(r"^[A-Za-z_:][\w:]*(?:\{[^\n]*\})? +[-+\dNI]", re.MULTILINE)
_COMMENT = re.compile(r"^# (?:HELP|TYPE|EOF)", re.MULTILINE)
_RANKS = ("dp_rank", "engine")
_REPLICAS = ("tp_rank", "pp_rank", "moe_ep_rank", "attn_cp_rank", "cp_rank", "pid")
_BUCKET, _SUM = "_bucket", "_sum"

Labels = Mapping[str, str]
_SPLIT = ("mode", "position", "pool", "cache_source", "source", "transfer_type")
"""Labels whose values are wanted apart as well."""


def _labelled(name: str, label: str) -> str:
    return f"{name}{{{label}="


class Wanted:
    """The names that an engine's page is searched for: plain series by exact name, histograms by base name."""

    def __init__(self, prefix: str, series: Iterable[str], histograms: Iterable[str]) -> None:
        self.series = frozenset(prefix + name for name in series)
        self.histograms = frozenset(prefix + name for name in histograms)
        names = sorted(self.series) + [h + end for h in sorted(self.histograms) for end in (_BUCKET, _SUM)]
        inner = "|".join(re.escape(name) for name in names)
        self.lines = re.compile(rf"^(?:{inner})[{{ ][^\n]*$", re.MULTILINE)


class Page:
    """What one scrape holds of the wanted names, by name, rank and replica."""

    def __init__(self) -> None:
        self._series: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
        self._buckets: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
        self._totals: dict[str, float] = defaultdict(float)
        self.labels: dict[str, Labels] = {}
        """Labels of the last series of each name."""

    def add(self, name: str, labels: Labels, value: float) -> None:
        """One sample; NaN and infinity are no data."""
        self.labels[name] = labels
        if not math.isfinite(value):
            return
        rank = next((labels[key] for key in _RANKS if key in labels), "")
        replica = ",".join([labels.get(key, "") for key in _REPLICAS])
        names = [name] + [_labelled(name, key) + labels[key] for key in _SPLIT if key in labels]
        for each in names:
            slots = self._series[each][rank]
            slots[replica] = slots.get(replica, 0.0) + value

    def add_bucket(self, name: str, bound: float, count: float) -> None:
        """One bucket of one series; buckets of several series add up."""
        self._buckets[name][bound] += count

    def add_total(self, name: str, value: float) -> None:
        """The sum of the observations of one series."""
        if math.isfinite(value):
            self._totals[name] += value

    def ranks(self, name: str) -> dict[str, float]:
        """Value of each rank; empty where the page does not have the name."""
        return {rank: max(slots.values()) for rank, slots in self._series.get(name, {}).items() if slots}

    def sum(self, *names: str) -> float | None:
        """Sum over ranks of the first of these names that the page has."""
        for name in names:
            values = self.ranks(name)
            if values:
                return sum(values.values())
        return None

    def largest(self, *names: str) -> float | None:
        """Largest over ranks of the first of these names that the page has."""
        for name in names:
            values = self.ranks(name)
            if values:
                return max(values.values())
        return None

    def weighted(self, name: str, weights: str) -> float | None:
        """Mean over ranks, weighted by another series (plain mean where no rank has weight)."""
        values, shares = self.ranks(name), self.ranks(weights)
        if not values:
            return None
        total = sum(shares.get(rank, 0.0) for rank in values)
        if total <= 0:
            return sum(values.values()) / len(values)
        return sum(value * shares.get(rank, 0.0) for rank, value in values.items()) / total

    def labelled(self, name: str, label: str) -> dict[str, float]:
        """Sums by the values of a label (`mode`, `position`)."""
        start = _labelled(name, label)
        return {key[len(start) :]: self.sum(key) or 0.0 for key in self._series if key.startswith(start)}

    def histogram(self, *names: str) -> Histogram | None:
        """The first of these histograms that the page has, all series added up."""
        for name in names:
            buckets = self._buckets.get(name)
            if buckets:
                bounds = tuple(sorted(buckets))
                return Histogram(bounds, tuple(buckets[bound] for bound in bounds), self._totals.get(name, 0.0))
        return None


def read(text: str, wanted: Wanted) -> Page:
    """The wanted series of a page in the text format. Raises ValueError where `text` is no such page."""
    lines = wanted.lines.findall(text)
    page = Page()
    if not lines:
        if text.strip() and not _COMMENT.search(text) and not _SAMPLE_LINE.search(text):
            raise ValueError(f"this is no Prometheus page: it starts with {text.strip()[:60]!r}")
        return page
    try:
        _take(page, wanted, lines)
    except (ValueError, IndexError):  # a torn line: keep what can be read
        page = Page()
        for line in lines:
            with suppress(ValueError, IndexError):
                _take(page, wanted, [line])
    return page


def _take(page: Page, wanted: Wanted, lines: list[str]) -> None:
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            name, labels, value = sample.name, sample.labels, float(sample.value)
            if name in wanted.series:
                page.add(name, labels, value)
            elif name.endswith(_BUCKET):
                page.add_bucket(name[: -len(_BUCKET)], float(labels.get("le", "inf")), value)
            elif name.endswith(_SUM):
                page.add_total(name[: -len(_SUM)], value)

"""Two runs against each other: every metric at every level with its interval and noise band, and one verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import msgspec

from tokpit.domain.run import Level, Run
from tokpit.insight.baseline import Baseline
from tokpit.insight.intervals import SHARE, t_quantile
from tokpit.insight.measures import METRICS, Key, Metric, estimate, grouped, key_name, steady_everywhere
from tokpit.insight.words import listed, num, percent, seconds

_BY_NAME = {metric.name: metric for metric in METRICS}
BETTER, WORSE, SAME, OPEN = "better", "worse", "same", "within noise"
_MANY = 10_000
"""Degrees of freedom at which Student's t is the normal distribution."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One metric at one level in both runs. Ratios are after / before."""

    metric: str
    level: str
    before: float
    after: float
    ratio: float
    interval: tuple[float, float] | None
    """95 % interval of the ratio; None where neither run says how well it knows its figure."""
    band: float
    """How far the ratio of two runs of an unchanged server may lie from 1, as a share."""
    band_runs: int
    """Runs behind the band; 0: it is the usual one, taken for want of a baseline."""
    verdict: str
    steady: bool = True
    """Throughput of the steady window, else of the whole run."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One metric over all common levels: the mean ratio (geometric) and what it says."""

    metric: str
    label: str
    unit: str
    higher_is_better: bool
    levels: int
    ratio: float
    interval: tuple[float, float] | None
    band: float
    band_runs: int
    verdict: str
    confidence: str
    """`sure`: the whole interval lies outside the band. `likely`: the ratio does, and the interval excludes 1."""
    sentence: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The second run seen from the first."""

    before: str
    after: str
    verdict: str
    """`regression`, `improvement`, `no change`, `mixed` or `not comparable`."""
    confidence: str
    sentence: str
    metrics: tuple[Judged, ...]
    pairs: tuple[Pair, ...]
    cautions: tuple[str, ...] = ()
    """Why the two may not be comparable as they are."""

    @property
    def told(self) -> str:
        """The sentence, with the confidence where it is not sure."""
        return self.sentence if self.confidence == "sure" else f"{self.sentence} ({self.confidence})"

    @property
    def regressed(self) -> bool:
        """Whether something that is judged got worse."""
        return self.verdict in ("regression", "mixed")

    @property
    def gap(self) -> float:
        """The ratio to explain: of throughput, else of the first metric there is; 1 for none."""
        return self.metrics[0].ratio if self.metrics else 1.0


def compare(before: Run, after: Run, baseline: Baseline | None = None) -> Comparison:
    """Judge `after` by `before`; noise bands come from `baseline` where it knows the level."""
    left, right = grouped(before), grouped(after)
    common = [key for key in left if key in right]
    metrics, pairs = [], []
    for metric in METRICS:
        rows = [row for key in common if (row := _pair(metric, key, before, after, baseline, len(common))) is not None]
        pairs += [row for row, _, _ in rows]
        if rows:
            metrics.append(_judge(metric, rows))
    cautions = _cautions(before, after, common)
    failed = _more_failures(before, after, common)
    verdict, confidence = _overall(metrics, pairs, failed)
    return Comparison(
        before=before.id,
        after=after.id,
        verdict=verdict,
        confidence=confidence,
        sentence=_sentence(verdict, metrics, pairs, failed),
        metrics=tuple(metrics),
        pairs=tuple(pairs),
        cautions=(*failed, *cautions),
    )


_Row = tuple[Pair, float, float | None]
"""A pair, its log ratio and the half width of that; None: not known."""


def _pair(metric: Metric, key: Key, before: Run, after: Run, baseline: Baseline | None, count: int) -> _Row | None:
    one, other = grouped(before)[key], grouped(after)[key]
    steady = steady_everywhere((*one, *other))
    a, b = estimate(one, metric, steady=steady), estimate(other, metric, steady=steady)
    if a is None or b is None:
        return None
    log = math.log(b.value / a.value)
    halves = [half for half in (a.log_half, b.log_half) if half is not None]
    half = math.hypot(*halves) if halves else None
    known = baseline.band(key, metric.name) if baseline is not None else None
    band = known.half if known is not None else math.log1p(metric.noise)
    # Several levels are looked at, so each has to be that much surer (Bonferroni).
    strict = t_quantile(_MANY, 1 - (1 - SHARE) / count) / t_quantile(_MANY) if count > 1 else 1.0
    pair = Pair(
        metric=metric.name,
        level=key_name(key),
        before=a.value,
        after=b.value,
        ratio=math.exp(log),
        interval=_interval(log, half),
        band=math.expm1(band),
        band_runs=known.runs if known is not None else 0,
        verdict=_verdict(log, None if half is None else half * strict, band, metric),
        steady=steady or metric.name != "output_tps",
    )
    return pair, log, half


def _verdict(log: float, half: float | None, band: float, metric: Metric) -> str:
    if abs(log) > band and (half is None or abs(log) > half):
        return BETTER if (log > 0) == metric.higher_is_better else WORSE
    near = min(band, math.log1p(metric.noise))
    return SAME if half is not None and abs(log) + half <= near else OPEN


def _judge(metric: Metric, rows: Sequence[_Row]) -> Judged:
    log = fmean(log for _, log, _ in rows)
    halves = [half for _, _, half in rows if half is not None]
    half = math.hypot(*halves) / len(rows) if len(halves) == len(rows) else None
    # What two runs differ in (heat, another kernel choice) moves all levels alike, so the band does not shrink.
    band = math.log1p(max(pair.band for pair, _, _ in rows))
    verdict = _verdict(log, half, band, metric)
    sure = half is not None and abs(log) - half > band
    ratio, interval = math.exp(log), _interval(log, half)
    runs = min(pair.band_runs for pair, _, _ in rows)
    return Judged(
        metric=metric.name,
        label=metric.label,
        unit=metric.unit,
        higher_is_better=metric.higher_is_better,
        levels=len(rows),
        ratio=ratio,
        interval=interval,
        band=math.expm1(band),
        band_runs=runs,
        verdict=verdict,
        confidence="sure" if sure or verdict == SAME else "likely" if verdict in (BETTER, WORSE) else "possible",
        sentence=_metric_words(metric, rows, ratio, interval, math.expm1(band), runs, verdict),
    )


def _interval(log: float, half: float | None) -> tuple[float, float] | None:
    return None if half is None else (math.exp(log - half), math.exp(log + half))


def change(ratio: float) -> str:
    """`-12%`, `+3.1%`."""
    text = percent(abs(ratio - 1))
    return text if text == "0%" else f"{'+' if ratio >= 1 else '-'}{text}"


def figure(value: float, unit: str) -> str:
    """A value with its unit."""
    return seconds(value) if unit == "s" else f"{num(value, 4)} {unit}"


def cells(pair: Pair, runs: str) -> tuple[str | None, ...]:
    """A row of a table: metric, level, before, after, change, 95 % interval, noise, verdict.

    `runs` says behind the noise how many runs it is of, where there are any: a pattern such as `" of {} runs"`.
    """
    metric = _BY_NAME[pair.metric]
    return (
        metric.label + ("" if pair.steady else " (whole run)"),
        pair.level,
        figure(pair.before, metric.unit),
        figure(pair.after, metric.unit),
        change(pair.ratio),
        f"{change(pair.interval[0])} to {change(pair.interval[1])}" if pair.interval is not None else None,
        f"±{pair.band:.0%}" + (runs.format(pair.band_runs) if pair.band_runs else ""),
        pair.verdict,
    )


def _metric_words(
    metric: Metric,
    rows: Sequence[_Row],
    ratio: float,
    interval: tuple[float, float] | None,
    band: float,
    runs: int,
    verdict: str,
) -> str:
    where = rows[0][0].level if len(rows) == 1 else f"{len(rows)} levels"
    within = f", 95% interval {change(interval[0])} to {change(interval[1])}" if interval is not None else ""
    noise = f"noise band ±{percent(band)}" + (f" from {runs} runs" if runs else ", the usual one: no baseline")
    return f"{metric.label} {change(ratio)} over {where}{within}; {noise}: {verdict}"


def _overall(metrics: Sequence[Judged], pairs: Sequence[Pair], failed: Sequence[str]) -> tuple[str, str]:
    judged = {metric.name for metric in METRICS if metric.judged}
    if not metrics and not failed:
        return "not comparable", "sure"
    worse = [m for m in metrics if m.verdict == WORSE and m.metric in judged]
    better = [m for m in metrics if m.verdict == BETTER and m.metric in judged]
    single = [p for p in pairs if p.verdict == WORSE and p.metric == "output_tps"]
    sure = "sure" if failed or any(m.confidence == "sure" for m in worse) else "likely"
    if worse or single or failed:
        return ("mixed" if better else "regression"), sure
    if better:
        return "improvement", "sure" if any(m.confidence == "sure" for m in better) else "likely"
    return "no change", "sure" if all(m.verdict == SAME for m in metrics if m.metric in judged) else "likely"


def _sentence(verdict: str, metrics: Sequence[Judged], pairs: Sequence[Pair], failed: Sequence[str]) -> str:
    if verdict == "not comparable":
        return "The runs have no level in common that measured anything in both."
    told = [f"{m.label} {change(m.ratio)}" for m in metrics if m.verdict in (WORSE, BETTER)]
    alone = [p for p in pairs if p.metric == "output_tps" and p.verdict == WORSE]
    if alone and len(alone) < metrics[0].levels:
        told.append(f"throughput falls at {listed(p.level for p in alone)} ({listed(change(p.ratio) for p in alone)})")
    told += failed
    name = {"regression": "Regression", "improvement": "Improvement", "mixed": "Better and worse", "no change": ""}
    if not told:
        return "No change beyond the noise: " + ", ".join(f"{m.label} {change(m.ratio)}" for m in metrics) + "."
    return f"{name[verdict]}: {', '.join(told)}."


def _more_failures(before: Run, after: Run, common: Sequence[Key]) -> tuple[str, ...]:
    left, right = grouped(before), grouped(after)
    told = []
    for key in common:
        a, b = (_failure_share(group[key]) for group in (left, right))
        if b > a + 0.02:
            told.append(f"{percent(b)} of the requests fail at {key_name(key)} ({percent(a)} before)")
    return tuple(told)


def _failure_share(levels: Sequence[Level]) -> float:
    ended = sum(level.ok + level.err for level in levels)
    return sum(level.err for level in levels) / ended if ended else 0.0


def _cautions(before: Run, after: Run, common: Sequence[Key]) -> tuple[str, ...]:
    told = []
    left, right = grouped(before), grouped(after)
    for run, mine, theirs in ((before, left, right), (after, right, left)):
        only = [key_name(key) for key in mine if key not in theirs]
        if only:
            told.append(f"only {run.id} has {listed(only)}")
        if void := [level for level in run.levels if level.result.get("void")]:
            told.append(f"{len(void)} void levels of {run.id} are left out ({void[0].result['void']})")
        if run.status not in ("done", "failed"):
            told.append(f"{run.id} is {run.status}")
    lengths = [
        (key, a, b)
        for key in common
        if (a := _length(left[key])) and (b := _length(right[key])) and abs(b / a - 1) > 0.1
    ]
    if lengths:
        key, a, b = lengths[0]
        told.append(
            f"answers have another length ({num(a)} tokens, then {num(b)} at {key_name(key)}): E2E is of other work"
        )
    if any(p for p in common if not steady_everywhere((*left[p], *right[p]))):
        told.append("whole-run throughput is compared where a level has no steady window: ramp-up and drain are in it")
    return tuple(told)


def _length(levels: Sequence[Level]) -> float:
    known = [level.avg_output for level in levels if level.avg_output]
    return fmean(known) if known else 0.0

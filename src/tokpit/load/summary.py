"""From the raw requests of a level to its figures. Pure but for reading the run's attributes."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from .checks import run_checks
from .clock import Clock
from .plan import Plan, Slo
from .results import CHUNKS, USAGE, LevelResult, Outcome
from .stats import Dist, dist, percentile, shifted, weighted_dist
from .stream import Exchange
from .window import (
    Steady,
    Window,
    chunk_tokens,
    closed_window,
    in_flight_profile,
    open_window,
    peak_and_mean,
    series,
    steady_rate,
)

MAX_ROWS = 2000
MAX_BLUR = 0.05
"""Up to this share of the usual gap it does not matter when a chunk came."""


class Measured(Protocol):
    """What a level left to be summed up, of one process (`level.LevelRun`) or of several (`crew.CrewRun`)."""

    plan: Plan
    clock: Clock
    level: int
    concurrency: int | None
    rate: float | None
    exchanges: list[Exchange]
    t_begin: int
    t_end: int
    lag_s: array[float]
    cpu_s: float
    cut: str
    held_back: int

    @property
    def busiest_s(self) -> float:
        """CPU seconds of the busiest process."""
        ...

    @property
    def processes(self) -> int:
        """Processes that made the load."""
        ...

    @property
    def unique_prompt_share(self) -> float | None:
        """Different bodies / all of them."""
        ...

    def elapsed_s(self) -> float:
        """How long the level lasted, on the host's clock."""
        ...


@dataclass(frozen=True)
class Times:
    """The latencies of one good request in host seconds; TPOT is None for a single token."""

    ttft_s: float | None
    answer_s: float | None
    e2e_s: float
    tpot_s: float | None


def times(x: Exchange, clock: Clock) -> Times:
    """TTFT, E2E to the last token and TPOT of `x`."""
    last = x.t_last or x.t_end
    ttft = clock.host_s(x.t_first - x.t_sent) if x.t_first else None
    answer = clock.host_s(x.t_answer - x.t_sent) if x.t_answer else None
    e2e = clock.host_s(last - x.t_sent)
    tokens = x.tokens
    tpot = (e2e - ttft) / (tokens - 1) if ttft is not None and tokens > 1 and len(x.stamps) > 1 else None
    return Times(ttft, answer, e2e, tpot)


def meets(found: Times, slo: Slo) -> bool:
    """Whether a good request kept every limit that was asked for; what cannot be measured does not keep one."""
    pairs = ((found.ttft_s, slo.ttft_s), (found.tpot_s, slo.tpot_s), (found.e2e_s, slo.e2e_s))
    return all(limit is None or (value is not None and value <= limit) for value, limit in pairs)


def settle_usage(exchanges: Sequence[Exchange]) -> str:
    """Decides what counts tokens on this level, and returns `usage` or `chunks`.

    Where no good answer had usage, the server does not give it: chunks stand in and the level is labelled. Where
    some had it, an answer without is incomplete, and becomes `truncated`.
    """
    good = [x for x in exchanges if x.outcome == "ok"]
    if good and all(x.estimated for x in good):
        return CHUNKS
    for x in good:
        if x.estimated:
            x.outcome, x.detail = "truncated", "the stream ended without usage, which other answers had"
    return USAGE


def per_chunk_mean(exchanges: Iterable[Exchange]) -> float | None:
    """Output tokens per chunk of text, over the requests whose usage is known."""
    known = [x for x in exchanges if x.completion_tokens is not None and x.stamps]
    chunks = sum(len(x.stamps) for x in known)
    return sum(x.completion_tokens or 0 for x in known) / chunks if chunks else None


def summarize(run: Measured) -> LevelResult:
    """Every figure of a finished or stopped level, with its checks."""
    plan, clock, everything = run.plan, run.clock, run.exchanges
    source = settle_usage(everything)
    good = [x for x in everything if x.outcome == "ok"]
    bad = [x for x in everything if x.outcome not in ("ok", "cancelled")]
    cancelled = len(everything) - len(good) - len(bad)
    per_chunk = per_chunk_mean(good)
    ratio = per_chunk or 1.0
    elapsed_s = run.elapsed_s()
    real_s = elapsed_s / clock.factor
    window, steady = _steady(run, ratio)
    note = _note(run, window, steady)
    found = [times(x, clock) for x in good]
    settled = [one for x, one in zip(good, found) if _settled(x, run, window)]
    tokens = sum(x.tokens for x in good)
    prompts = [x.prompt_tokens for x in good if x.prompt_tokens is not None]
    prompt_tokens = sum(prompts) if good and len(prompts) == len(good) else None
    cached = [x.cached_tokens for x in good if x.cached_tokens is not None]
    profile = in_flight_profile(everything)
    peak, mean = peak_and_mean(profile, run.t_begin, run.t_end)
    bucket_s = max(1.0, math.ceil(elapsed_s / 240))
    bucket_ns = bucket_s * 1e9 / clock.factor
    sums = series(everything, run.t_begin, run.t_end, bucket_ns, ratio)
    gaps, bounds, itl, itl_source = _gaps(good, clock, source)
    chunks = sum(len(x.stamps) for x in everything)
    blurred = _blurred(everything, gaps.p50 if gaps else 0.0, clock)
    reads = sum(x.reads for x in everything)
    keeps = sum(meets(one, plan.slo) for one in found) if plan.slo.asked else None
    lag = sorted(run.lag_s)
    result = LevelResult(
        level=run.level,
        label=f"C={run.concurrency}" if run.rate is None else f"{run.rate:g} req/s",
        concurrency=run.concurrency,
        rate=run.rate,
        requests=len(everything),
        ok=len(good),
        err=len(bad),
        cancelled=cancelled,
        outcomes=_outcomes(everything),
        elapsed_s=elapsed_s,
        partial=run.cut,
        output_tokens=tokens,
        prompt_tokens=prompt_tokens,
        cached_tokens=sum(cached) if cached else None,
        token_source=source,
        output_tps=tokens / elapsed_s if good and tokens and elapsed_s > 0 else None,
        total_tps=(tokens + prompt_tokens) / elapsed_s if prompt_tokens is not None and elapsed_s > 0 else None,
        request_tps=len(good) / elapsed_s if elapsed_s > 0 else 0.0,
        steady_tps=steady.tokens_per_s / clock.factor if steady else None,
        steady_ci=steady.half_width / clock.factor if steady and steady.half_width is not None else None,
        steady_note=note,
        steady_window_s=_span(run, window) if steady else None,
        steady_completed=steady.completed if steady else 0,
        peak_tps=max(sums[:-1]) / bucket_s if len(sums) >= 5 else None,
        avg_output=tokens / len(good) if good else None,
        tokens_per_chunk=per_chunk,
        goodput_rps=keeps / elapsed_s if keeps is not None and elapsed_s > 0 else None,
        goodput_share=keeps / (len(good) + len(bad)) if keeps is not None and good + bad else None,
        ttft_s=dist(one.ttft_s for one in found if one.ttft_s is not None),
        answer_s=dist(one.answer_s for one in found if one.answer_s is not None),
        e2e_s=dist(one.e2e_s for one in found),
        ttft_settled_s=dist(one.ttft_s for one in settled if one.ttft_s is not None),
        e2e_settled_s=dist(one.e2e_s for one in settled),
        tpot_s=dist(one.tpot_s for one in found if one.tpot_s is not None),
        icl_s=gaps,
        itl_s=itl,
        itl_source=itl_source,
        request_output_tps=dist(x.tokens / one.e2e_s for x, one in zip(good, found) if one.e2e_s > 0),
        send_delay_s=dist(clock.host_s(x.t_sent - (x.t_due or x.t_start)) for x in everything if x.t_sent),
        peak_in_flight=peak,
        mean_in_flight=mean,
        finish_reasons=_tally(x.finish for x in good),
        no_done=sum(not x.done for x in good),
        no_answer=sum(bool(x.stamps) and not x.t_answer for x in good),
        stale_retries=sum(x.stale_retries for x in everything),
        merged_share=blurred / chunks if chunks else 0.0,
        kernel_share=sum(x.kernel_reads for x in everything) / reads if reads else 0.0,
        loop_lag_p99_s=clock.host_s(percentile(lag, 0.99) * 1e9) if lag else None,
        loop_lag_max_s=clock.host_s(lag[-1] * 1e9) if lag else None,
        client_cpu=run.busiest_s / real_s if real_s > 0 else 0.0,
        processes=run.processes,
        client_cpu_all=run.cpu_s / real_s if real_s > 0 else 0.0,
        clock_steps=clock.steps,
        unique_prompt_share=run.unique_prompt_share,
        held_back=run.held_back,
        series_s=bucket_s,
        tps_series=tuple(round(value / bucket_s, 3) for value in sums),
        rows=_rows(everything, run, clock),
        icl_bounds=bounds,
    )
    return replace(result, checks=run_checks(result, plan))


def _settled(x: Exchange, run: Measured, window: Window | None) -> bool:
    if run.concurrency is not None:
        return x.index >= run.concurrency
    return window is not None and window.start_ns <= x.t_sent <= window.end_ns


def _steady(run: Measured, ratio: float) -> tuple[Window | None, Steady | None]:
    if run.rate is not None:
        window = open_window(run.exchanges)
    else:
        window = closed_window(run.exchanges, run.concurrency or 1)
    return window, steady_rate(run.exchanges, window, ratio) if window else None


def _note(run: Measured, window: Window | None, steady: Steady | None) -> str:
    if window is None or steady is None:
        return "not enough samples for a steady window"
    names = {
        "busy": "while at least 80% of the slots were busy",
        "time": "from the end of the first request to the end of the last",
        "offered": "from one request time after the start to the last arrival",
    }
    text = names[window.kind]
    if steady.half_width is None:
        text += "; not enough samples for an interval"
    return text


def _span(run: Measured, window: Window | None) -> tuple[float, float] | None:
    if window is None:
        return None
    return run.clock.host_s(window.start_ns - run.t_begin), run.clock.host_s(window.end_ns - run.t_begin)


def _gaps(
    good: Sequence[Exchange], clock: Clock, source: str
) -> tuple[Dist | None, dict[str, tuple[float, float]], Dist | None, str]:
    gaps: list[float] = []
    pairs: list[tuple[float, float]] = []
    exact = bool(good)
    for x in good:
        stamps = x.stamps
        own = clock.gaps_s(stamps)
        gaps.extend(own)
        if len(stamps) > 1:
            exact = exact and len(x.cum_tokens) == len(stamps)
            weights = chunk_tokens(x, 1.0)[1:]
            pairs.extend([(gap / weight, weight) for gap, weight in zip(own, weights) if weight > 0])
    name = CHUNKS if source == CHUNKS else "usage per chunk" if exact else "mean per chunk"
    gaps.sort()
    # A chunk whose time is not known makes one gap too long and one too short.
    found = dist(gaps)
    share = _blurred(good, found.p50, clock) / found.n if found else 0.0
    return found, shifted(gaps, share), weighted_dist(pairs), name


def _blurred(exchanges: Iterable[Exchange], gap_s: float, clock: Clock) -> int:
    """Chunks whose arrival is not known to within MAX_BLUR of the usual gap."""
    return sum(clock.host_s(blur) > MAX_BLUR * gap_s for x in exchanges for blur in x.blur)


def _outcomes(exchanges: Iterable[Exchange]) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for x in exchanges:
        name = x.outcome or "cancelled"
        before = found.get(name)
        example = before.example if before else ("" if name == "ok" else x.detail or name)
        found[name] = Outcome((before.count if before else 0) + 1, example)
    return found


def _tally(values: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts


def _rows(
    exchanges: Sequence[Exchange], run: Measured, clock: Clock
) -> tuple[tuple[float | int | str | None, ...], ...]:
    rows: list[tuple[float | int | str | None, ...]] = []
    for x in exchanges[:MAX_ROWS]:
        if not x.t_sent:
            rows.append((None, None, None, 0, x.outcome))
            continue
        one = times(x, clock)
        ttft = None if one.ttft_s is None else round(one.ttft_s, 6)
        sent = round(clock.host_s(x.t_sent - run.t_begin), 6)
        rows.append((sent, ttft, round(one.e2e_s, 6), x.tokens, x.outcome))
    return tuple(rows)

"""Points of a sweep: what one concurrency level measured, from a stored level or from a plain table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tokpit.domain.run import Level


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One level. Seconds and tok/s; None: not measured."""

    concurrency: int
    requests: int
    ok: int
    err: int
    elapsed_s: float
    """0: not known."""
    output_tps: float
    """Whole run, ramp-up and drain included."""
    steady_tps: float | None = None
    steady_ci: float | None = None
    """Half width of its 95 % interval."""
    avg_output: float | None = None
    """Output tokens a request."""
    e2e_mean_s: float | None = None
    """Measured; of a standing load where the level knows it."""
    ttft_p50_s: float | None = None
    prompt_tokens: float | None = None
    """Prompt tokens a request that had to be computed: those known to be from a cache are left out."""
    running: float | None = None
    """Most requests that the server ran at once."""
    queued: float | None = None
    """Most requests that waited at the server."""
    accept_len: float | None = None
    failed_checks: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    """What those checks say, in the same order."""
    void: bool = False
    """Of no use for a curve: a void level, or one with a rate of arrivals instead of a concurrency."""
    throttled: tuple[str, ...] = ()
    """Slowdown reasons that were active during the level."""

    @property
    def tps(self) -> float:
        """The figure to stand by: steady where there is one, else whole run."""
        return self.steady_tps if self.steady_tps is not None else self.output_tps

    @property
    def timed(self) -> bool:
        """Whether the run time is known."""
        return self.elapsed_s > 1e-6

    @property
    def tokens(self) -> float:
        """Output tokens a request; from rate, time and ok requests where it was not counted."""
        if self.avg_output:
            return self.avg_output
        return self.output_tps * self.elapsed_s / self.ok if self.ok else 0.0

    @property
    def rps(self) -> float:
        """Completed requests per second of the whole run."""
        return self.ok / self.elapsed_s if self.timed else 0.0

    @property
    def little_s(self) -> float | None:
        """Latency by Little's law, W = C / (requests/s): what a request takes where C are in flight all the time."""
        return self.concurrency / self.rps if self.rps > 0 else None

    @property
    def error_share(self) -> float:
        """Failed / all requests that ended."""
        judged = self.ok + self.err
        return self.err / judged if judged else 0.0

    def service_s(self, cap: float | None = None) -> float | None:
        """Time that a request spends running: min(C, cap) / (requests/s)."""
        return (min(self.concurrency, cap) if cap else self.concurrency) / self.rps if self.rps > 0 else None


def usable(points: Iterable[Point]) -> tuple[Point, ...]:
    """Points with a rate, by rising concurrency; of several at one concurrency the last."""
    found = {p.concurrency: p for p in points if p.tps > 1e-6 and p.ok > 0 and p.concurrency > 0 and not p.void}
    return tuple(found[c] for c in sorted(found))


def point_of(level: Level) -> Point:
    """A stored level as a point; reads the load generator's summary where the level carries one."""
    result: Mapping[str, Any] = level.result
    failed = [check for check in result.get("checks") or () if check.get("ok") is False]
    settled, e2e = result.get("e2e_settled_s"), result.get("e2e_s")
    return Point(
        concurrency=level.concurrency,
        requests=level.requests,
        ok=level.ok,
        err=level.err,
        elapsed_s=level.elapsed_s,
        output_tps=level.output_tps,
        steady_tps=level.steady_tps,
        steady_ci=_number(result.get("steady_ci")),
        avg_output=level.avg_output or None,
        e2e_mean_s=_mean(settled) if settled else _mean(e2e),
        ttft_p50_s=level.ttft_p50_s,
        prompt_tokens=_computed(result, level.ok),
        running=_number(result.get("server_running")),
        queued=_number(result.get("server_queued")),
        accept_len=_number(result.get("accept_len")),
        failed_checks=tuple(str(check.get("code", "")) for check in failed),
        sentences=tuple(str(check.get("sentence", "")) for check in failed),
        void=bool(result.get("void") or result.get("rate")),
        throttled=tuple(map(str, result.get("throttled") or ())),
    )


def _computed(result: Mapping[str, Any], ok: int) -> float | None:
    prompt, cached = _number(result.get("prompt_tokens")), _number(result.get("cached_tokens"))
    return max(0.0, prompt - (cached or 0.0)) / ok if prompt and ok else None


def _mean(dist: object) -> float | None:
    return _number(dist.get("mean")) if isinstance(dist, Mapping) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

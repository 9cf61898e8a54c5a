"""Do the figures of another tool's result hold? The load generator's own checks, on what the file tells. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.run import Level

if TYPE_CHECKING:
    from tokpit.load.results import Check

MAX_ERROR_SHARE = 0.01
LONG_ENOUGH_S = 3.0
"""A best second says something only of a level of several."""
ALL = ("output_tps", "ttft_s", "e2e_s")


def judged(level: Level, plan: Mapping[str, Any]) -> Level:
    """`level` with a check for each figure that may contradict another, after those of its reader."""
    own = (_errors(level), _tokens(level), _peak(level), _gaps(level), _length(level, plan))
    found = [{**asdict(check), "distrust": list(check.distrust)} for check in own if check is not None]
    if not found:
        return level
    result = {**level.result, "checks": [*(level.result.get("checks") or ()), *found]}
    return msgspec.structs.replace(level, result=result)


def _errors(level: Level) -> Check | None:
    from tokpit.load.results import Check

    share = level.err / (level.ok + level.err) if level.ok + level.err else 0.0
    if share <= MAX_ERROR_SHARE:
        return None
    sentence = f"{level.err} of {level.ok + level.err} requests failed ({share:.0%}): averages flatter the server"
    return Check("REJECTED", False, sentence, ALL, share, MAX_ERROR_SHARE)


def _tokens(level: Level) -> Check | None:
    from tokpit.load.results import Check

    if not level.ok or level.output_tps > 0:
        return None
    sentence = f"{level.ok} requests are ok without a token: a fault of the measurement, not 0 tok/s"
    return Check("ZERO_TOKENS_SUSPECT", False, sentence, ALL, 0)


def _peak(level: Level) -> Check | None:
    from tokpit.load.foreign import peak_vs_mean

    peak = level.result.get("peak_tps")
    if not peak or level.elapsed_s < LONG_ENOUGH_S:
        return None
    return peak_vs_mean(float(peak), level.output_tps, level.result.get("accept_len"))


def _gaps(level: Level) -> Check | None:
    from tokpit.load.foreign import itl_vs_throughput

    gap, whole, first = (_mean(level, name) for name in ("itl_s", "e2e_s", "ttft_s"))
    if not gap or not level.ok or level.elapsed_s <= 0 or level.output_tps <= 0:
        return None
    streams = float(level.concurrency)
    if whole is not None and first is not None:
        streams = level.ok * (whole - first) / level.elapsed_s
    tokens = (level.avg_output - 1) * level.ok / level.elapsed_s  # first tokens have no gap before them
    found = itl_vs_throughput(gap, streams, tokens) if streams > 0 and tokens > 0 else None
    # Too many gaps are no fault here: some tools count the end of a stream as one.
    return found if found is not None and (found.ok or (found.value or 0.0) > 1) else None


def _length(level: Level, plan: Mapping[str, Any]) -> Check | None:
    from tokpit.load.foreign import length_vs_nominal

    wanted = plan.get("max_tokens")
    if not isinstance(wanted, (int, float)) or wanted <= 0 or not level.avg_output:
        return None
    return length_vs_nominal(float(wanted), level.avg_output)


def _mean(level: Level, name: str) -> float | None:
    found = level.result.get(name)
    value = found.get("mean") if isinstance(found, Mapping) else None
    return float(value) if isinstance(value, (int, float)) else None

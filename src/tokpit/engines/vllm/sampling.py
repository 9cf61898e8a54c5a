"""Metric values from vLLM's records.

Each engine (data-parallel rank) has a line of its own, and with several API servers each process prints its share of
the tokens: rates add up over both, requests over engines, KV usage is the largest. vLLM prints no step time; it is
given only where the iteration line does.
"""

from __future__ import annotations

from tokpit.domain.records import LogRecord, Value
from tokpit.engines.logkit.clock import Clock

_STALE_S = 60.0
"""An engine whose line is older than this against the newest one adds nothing."""


class _Line:
    def __init__(self, t: float | None, values: dict[str, float]) -> None:
        self.t = t
        self.values = values


def _numbers(fields: dict[str, Value]) -> dict[str, float]:
    return {n: float(v) for n, v in fields.items() if v is not None and not isinstance(v, (str, tuple))}


class Sampler:
    """State of one log's samples."""

    def __init__(self) -> None:
        self._clock = Clock()
        self._lines: dict[tuple[int, int], _Line] = {}

    def sample(self, record: LogRecord) -> dict[str, float]:
        """Server-wide values after this record; empty for records that carry none."""
        kind = record.kind
        if kind == "stats":
            return self._stats(record)
        values = _numbers(record.fields) if kind in _PLAIN else {}
        return {tag: values[name] for name, tag in _PLAIN.get(kind, ()) if name in values}

    def _stats(self, record: LogRecord) -> dict[str, float]:
        values = _numbers(record.fields)
        t = self._clock.seconds(record.fields.get("ts"))
        if "engines_aggregated" in values:
            self._lines.clear()
        key = (int(values.get("engine", 0)), int(values.get("pid", 0)))
        self._lines[key] = _Line(t, values)
        lines = {
            k: line for k, line in self._lines.items() if t is None or line.t is None or abs(t - line.t) <= _STALE_S
        }
        self._lines = dict(lines)
        out: dict[str, float] = {}
        for name in ("gen_tps", "prompt_tps", "preemptions"):
            found = [line.values[name] for line in lines.values() if name in line.values]
            if found:
                out[name] = sum(found)
        for name in ("running_reqs", "queue_reqs"):
            engines: dict[int, float] = {}
            for (engine, _), line in lines.items():  # the newest last: a dict keeps the place of a key it knows
                if name in line.values:
                    engines[engine] = max(engines.get(engine, 0.0), line.values[name])
            if engines:
                out[name] = sum(engines.values())
        usages = [line.values["kv_usage"] for line in lines.values() if "kv_usage" in line.values]
        if usages:
            out["kv_usage"] = max(usages)
        if "prefix_hit_rate" in values:
            out["prefix_hit_rate"] = values["prefix_hit_rate"]
        return out


_PLAIN: dict[str, tuple[tuple[str, str], ...]] = {
    "spec": (("accept_len", "accept_len"), ("accept_rate", "accept_rate")),
    "spec_v0": (("accept_rate", "accept_rate"),),
    "stats_v0_prefix": (("prefix_hit_rate", "prefix_hit_rate"),),
    "iteration": (("iteration_ms", "step_ms"),),
}

"""Metric values from llama-server's records. Its lines speak of one request each; what is server-wide is added up.

Only the live lines (every 3 s per generating slot, builds of late 2026) say what the whole server does now; the
timing at the end of a request stands for the server only while no other slot is at work.
"""

from __future__ import annotations

from tokpit.domain.records import LogRecord, Value
from tokpit.engines.logkit.clock import Clock

_STALE_S = 10.0
"""A slot prints its live line every 3 s; without one for this long it has stopped."""


class Sampler:
    """State of one log's samples."""

    def __init__(self) -> None:
        self._clock = Clock()
        self._busy: set[int] = set()
        self._live: dict[int, tuple[float | None, float]] = {}

    def sample(self, record: LogRecord) -> dict[str, float]:
        """Values after this record; empty for records that carry none."""
        fields = record.fields
        out: dict[str, float] = {}
        slot = fields.get("slot")
        if isinstance(slot, int):
            self._follow(slot, str(fields.get("function", "")), out)
        if record.kind == "milestone.idle":
            self._busy.clear()
            self._live.clear()
            return {"running_reqs": 0.0, "gen_tps": 0.0}
        if record.kind == "milestone.slots":
            return _copied(fields, (("n_slots", "max_running_reqs"),))
        out |= _copied(
            fields, (("prompt_tps", "prompt_tps"), ("accept_rate", "accept_rate"), ("accept_len", "accept_len"))
        )
        if isinstance(slot, int):
            self._rates(slot, fields, out)
        return out

    def _follow(self, slot: int, function: str, out: dict[str, float]) -> None:
        if function.startswith("launch"):
            self._busy.add(slot)
        elif function == "release":
            self._busy.discard(slot)
            self._live.pop(slot, None)
        else:
            return
        out["running_reqs"] = float(len(self._busy))

    def _rates(self, slot: int, fields: dict[str, Value], out: dict[str, float]) -> None:
        recent = fields.get("gen_tps_3s")
        t = self._clock.seconds(fields.get("t"))
        if isinstance(recent, float):
            self._live[slot] = (t, recent)
            self._live = {
                k: (seen, rate)
                for k, (seen, rate) in self._live.items()
                if t is None or seen is None or t - seen <= _STALE_S
            }
            out["gen_tps"] = sum(rate for _, rate in self._live.values())
        elif "gen_ms" in fields and not self._live and self._busy <= {slot}:
            out |= _copied(fields, (("gen_tps", "gen_tps"),))


def _copied(fields: dict[str, Value], names: tuple[tuple[str, str], ...]) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, tag in names:
        value = fields.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            out[tag] = float(value)
    return out

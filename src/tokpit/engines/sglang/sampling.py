"""Metric values from SGLang's records, with what would mislead left out.

Each data-parallel rank prints lines of its own, so a server's value is the sum (rates, requests, slots) or the
maximum (usages) over the newest line of each rank. The rate on a decode line is tokens since that rank's previous
decode line / wall time since, so the first line after an idle gap says nothing and is gated.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median

from tokpit.domain.records import LogRecord, Value
from tokpit.engines.logkit.clock import Clock
from tokpit.engines.logkit.derived import hit_rate, plain_accept_rate, step_ms

_STALE_S = 120.0
"""A rank that has printed nothing for this long adds nothing: it is idle or gone."""
_GAP_S = 30.0
_SHORT_S = 3.0
"""Stamps have whole seconds, so shorter gaps cannot be judged."""
_DRAFT_TOKENS = re.compile(r"speculative_num_draft_tokens['\"]?[=:] ?(\d+)")


class _Rank:
    """What one data-parallel rank printed last."""

    def __init__(self, *, fresh: bool) -> None:
        self.t: float | None = None
        self.gaps: deque[float] = deque(maxlen=16)
        self.idle_seen = fresh
        self.fresh = fresh
        self.prefill_t: float | None = None
        self.gated = False
        self.decoded = False
        self.values: dict[str, float] = {}
        self.unread: Mapping[str, Value] | None = None
        """Fields of the newest decode line, until they are wanted as `values`."""

    def read(self) -> None:
        """`values` of the newest decode line."""
        if self.unread is None:
            return
        values: dict[str, float] = {}
        for tag, names in _TAGS:
            for name in names:
                value = self.unread.get(name)
                if isinstance(value, (int, float)):
                    values[tag] = float(value)
                    break
        self.values, self.unread = values, None

    def polluted(self, t: float | None) -> bool:
        """Whether the rate of a decode line at `t` includes time in which nothing ran."""
        if self.fresh:
            return True
        if t is None or self.t is None:
            return False
        gap = t - self.t
        if not self.idle_seen or gap <= _SHORT_S:
            return False
        return gap > 2 * (median(self.gaps) if self.gaps else 0.0)

    def silent(self, t: float | None) -> bool:
        """No line of any sort came between, for far longer than usual."""
        last = max(self.t or 0.0, self.prefill_t or 0.0)
        if t is None or not last or t - last <= _GAP_S:
            return False
        return t - last > 5 * (median(self.gaps) if self.gaps else 0.0)


def _others(values: dict[str, float]) -> dict[str, float]:
    """Those that no decode line tells: what an earlier one told must not stand for a later one that tells it not."""
    return {tag: value for tag, value in values.items() if tag not in _DECODED}


def _number(value: Value) -> float | None:
    return None if value is None or isinstance(value, (str, tuple)) else float(value)


class Sampler:
    """State of one log's samples."""

    def __init__(self) -> None:
        self._clock = Clock()
        self._ranks: dict[int, _Rank] = {}
        self._starting = False
        self._draft_tokens: float | None = None

    def sample(self, record: LogRecord) -> dict[str, float]:
        """Server-wide values after this record; empty for records that carry none."""
        kind = record.kind
        if kind == "decode_batch":
            return self._together(self._decode(record))
        if kind == "prefill_batch":
            return self._prefill(record)
        if kind == "failure.retract":
            count = _number(record.fields.get("retracted_reqs"))
            return {} if count is None else {"retracted_reqs": count}
        if kind.startswith("milestone."):
            return self._milestone(record)
        return {}

    def samples(self, records: Sequence[LogRecord]) -> dict[str, float]:
        """Server-wide values after records that came together, of each the newest.

        Each decode line is judged, but only the last of each rank before a line of another sort is read: in a flood
        that is one of hundreds.
        """
        out: dict[str, float] = {}
        decoded, t = False, None
        for record in records:
            if record.kind == "decode_batch":
                decoded, t = True, self._decode(record)
            elif record.kind in _TELLING or record.kind.startswith("milestone."):
                if decoded:
                    out = {**_others(out), **self._together(t)}
                    decoded = False
                out.update(self.sample(record))
        return {**_others(out), **self._together(t)} if decoded else out

    def _milestone(self, record: LogRecord) -> dict[str, float]:
        self._starting = record.kind != "milestone.ready" or self._starting
        if record.kind == "milestone.args":
            self._ranks.clear()
            match = _DRAFT_TOKENS.search(str(record.fields.get("server_args_text", "")))
            self._draft_tokens = float(match[1]) if match else None
        cap = _number(record.fields.get("max_running_requests"))
        return {"max_running_reqs": cap} if record.kind == "milestone.limits" and cap is not None else {}

    def _rank(self, record: LogRecord) -> _Rank:
        index = record.fields.get("dp_rank")
        key = index if isinstance(index, int) else 0
        rank = self._ranks.get(key)
        if rank is None:
            rank = self._ranks[key] = _Rank(fresh=self._starting)
        return rank

    def _decode(self, record: LogRecord) -> float | None:
        """Take in a decode line; its time."""
        rank, fields = self._rank(record), record.fields
        t = self._clock.seconds(fields.get("ts"))
        rank.gated = rank.polluted(t) or rank.silent(t)
        if not rank.gated and t is not None and rank.t is not None and t > rank.t:
            rank.gaps.append(t - rank.t)
        rank.fresh = rank.idle_seen = False
        rank.t, rank.decoded, rank.unread = t, True, fields
        return t

    def _together(self, now: float | None) -> dict[str, float]:
        ranks = [r for r in self._ranks.values() if r.decoded and (now is None or r.t is None or now - r.t <= _STALE_S)]
        out: dict[str, float] = {}
        rated = True
        for rank in ranks:
            rank.read()
            for tag, value in rank.values.items():
                if tag in _LARGEST:
                    out[tag] = max(value, out.get(tag, value))
                elif tag not in _SPECULATION:
                    out[tag] = out.get(tag, 0.0) + value
            rated = rated and not rank.gated and "gen_tps" in rank.values
        self._speculation(ranks, out)
        if not rated:
            out.pop("gen_tps", None)
            return out
        tokens = sum(r.values.get("running_reqs", 0.0) * r.values.get("accept_len", 1.0) for r in ranks)
        step = step_ms(tokens, 1.0, out["gen_tps"])
        if step is not None:
            out["step_ms"] = step
        return out

    def _speculation(self, ranks: list[_Rank], out: dict[str, float]) -> None:
        weight = length = rated = rate = 0.0
        for rank in ranks:
            values = rank.values
            running, accept_len = values.get("running_reqs", 0.0), values.get("accept_len")
            if accept_len is None or running <= 0:
                continue
            weight += running
            length += accept_len * running
            if "accept_rate" in values:
                rated += running
                rate += plain_accept_rate(accept_len, values["accept_rate"], self._draft_tokens) * running
        if weight:
            out["accept_len"] = length / weight
        if rated:
            out["accept_rate"] = rate / rated

    def _prefill(self, record: LogRecord) -> dict[str, float]:
        rank, fields = self._rank(record), record.fields
        t = self._clock.seconds(fields.get("ts"))
        before, rank.prefill_t = rank.prefill_t, t
        rank.read()
        idle = fields.get("running_reqs") == 0
        rank.idle_seen = rank.idle_seen or idle
        if fields.get("probe"):
            return {}
        out: dict[str, float] = {}
        rate = _number(fields.get("prompt_tps"))
        known = before is not None and t is not None and t - before <= _SHORT_S
        if rate is not None and (known or not idle):
            out["prompt_tps"] = rate
        queue = _number(fields.get("queue_reqs"))
        if queue is not None:
            rank.values["queue_reqs"] = queue
            out["queue_reqs"] = sum(r.values.get("queue_reqs", 0.0) for r in self._ranks.values())
        new, cached = _number(fields.get("new_tokens")), _number(fields.get("cached_tokens"))
        if new is not None and cached is not None:
            share = hit_rate(new, cached)
            if share is not None:
                out["prefix_hit_rate"] = share
        return out


_TAGS = (
    ("running_reqs", ("running_reqs",)),
    ("queue_reqs", ("queue_reqs",)),
    ("kv_tokens", ("full_tokens", "tokens_used")),
    ("state_slots", ("mamba_num",)),
    # `token usage` is the larger of several pools where a model has several; there the full pool is printed too.
    ("kv_usage", ("full_token_usage", "token_usage")),
    ("swa_usage", ("swa_usage",)),
    ("state_usage", ("mamba_usage",)),
    ("accept_len", ("accept_len",)),
    ("accept_rate", ("accept_rate",)),
    ("gen_tps", ("gen_tps",)),
)
"""Tags of a decode line and the fields that they are read from, the first that it carries."""
_DECODED = frozenset(tag for tag, _ in _TAGS) | {"step_ms"}
_TELLING = frozenset({"prefill_batch", "failure.retract"})
"""Kinds beside decode lines and milestones that carry values."""
_LARGEST = frozenset({"kv_usage", "swa_usage", "state_usage"})
_SPECULATION = frozenset({"accept_len", "accept_rate"})

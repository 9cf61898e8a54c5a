"""What differs between two runs, ranked by whether it could explain how far apart they are, with the arithmetic."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tokpit.domain.run import Run
from tokpit.domain.text import mask_secrets
from tokpit.insight.gpus import lookup
from tokpit.insight.measures import grouped, number
from tokpit.insight.rules.gap_causes import weigh
from tokpit.insight.words import num

ALL, PART, AGAINST, NOTHING, UNKNOWN = "explains it", "explains part", "works against it", "no effect", "size not known"
_RANK = {ALL: 0, PART: 1, UNKNOWN: 2, NOTHING: 3, AGAINST: 4}
_PLAIN = ("engine", "version", "driver", "kernel", "gpus", "power_limit_w", "from", "client", "link", "label", "source")
_WORK = frozenset(
    {
        *("max_tokens", "dataset", "prefix_share", "turns", "temperature", "top_p", "api", "extra_body"),
        *("prompt tokens", "answer tokens", "prompts from cache"),
    }
)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One difference. `factor`: the range of throughput ratios it could make by itself; None: not to be computed."""

    name: str
    before: str
    after: str
    kind: str
    """`setting`, `work` (what was asked for), `place` (engine, GPU, driver, client) or `figure` (what was measured)."""
    effect: str = ""
    """What it changes, in words."""
    factor: tuple[float, float] | None = None
    arithmetic: str = ""
    fits: str = UNKNOWN
    weight: float = 0.0

    @property
    def text(self) -> str:
        """`name: before -> after`."""
        return f"{self.name}: {self.before} -> {self.after}"


def differences(before: Run, after: Run) -> list[tuple[str, str, str]]:
    """Name, value before, value after of everything in the frozen contexts that differs, secrets masked."""
    rows = [("target", before.target, after.target), ("model", before.model, after.model)]
    for name in ("settings", "plan"):
        left, right = _table(before.context.get(name)), _table(after.context.get(name))
        rows += [(key.replace("_", " "), _text(left.get(key)), _text(right.get(key))) for key in {**left, **right}]
    rows += [(name, _text(before.context.get(name)), _text(after.context.get(name))) for name in (*_PLAIN, "command")]
    return [row for row in rows if row[1] != row[2]]


def ranked(before: Run, after: Run, gap: float) -> tuple[Change, ...]:
    """Every difference that could change speed, the likeliest explanation of `gap` (ratio of throughput) first."""
    found: list[Change] = []
    left, right = _table(before.context.get("settings")), _table(after.context.get("settings"))
    for name in dict.fromkeys((*left, *right)):
        if left.get(name) != right.get(name) and weigh(name)[0] > 0:
            found.append(_change(name, left.get(name), right.get(name), "setting"))
    mine, theirs = _table(before.context.get("plan")), _table(after.context.get("plan"))
    for name in dict.fromkeys((*mine, *theirs)):
        if mine.get(name) != theirs.get(name) and name in _WORK:
            found.append(_change(name, mine.get(name), theirs.get(name), "work"))
    if before.model != after.model and "model" not in {one.name for one in found}:
        found.append(_change("model", before.model, after.model, "setting"))
    for name in _PLAIN:
        a, b = before.context.get(name), after.context.get(name)
        if a != b and (name in ("from", "client") or (a and b)) and not (name == "link" and _same_link(a, b)):
            found.append(_change(name, a, b, "place"))
    if before.host != after.host and before.host and after.host:
        found.append(_change("host", before.host, after.host, "place"))
    found += _figures(before, after)
    sized = [_sized(one, before, after, gap) for one in found]
    return tuple(sorted(sized, key=lambda one: (_RANK[one.fits], -_share(one, gap), -one.weight)))


def _change(name: str, before: object, after: object, kind: str) -> Change:
    weight, effect = weigh(name)
    if kind == "work":
        weight, effect = 0.7, "another kind of work: prompts and answers decide as much as the server"
    elif kind == "place" and name in _PLACES:
        weight, effect = _PLACES[name]
    return Change(
        name=name.replace("_", " "), before=_text(before), after=_text(after), kind=kind, effect=effect, weight=weight
    )


def _same_link(before: object, after: object) -> bool:
    """Whether two round trips differ by no more than one measurement of them does from the next."""
    a, b = (re.search(r"^(.*?)([\d.]+) ms$", str(value)) for value in (before, after))
    if a is None or b is None or a[1] != b[1]:
        return False
    return abs(float(a[2]) - float(b[2])) <= max(_LINK_MS, 0.5 * min(float(a[2]), float(b[2])))


_LINK_MS = 10.0
_PLACES = {
    "gpus": (0.95, "memory bandwidth and compute"),
    "engine": (0.75, "another engine"),
    "version": (0.6, "another release"),
    "driver": (0.45, "kernels and clocks of another driver"),
    "power_limit_w": (0.7, "clocks under load"),
    "kernel": (0.2, "scheduling on the host"),
    "client": (0.3, "another client, or another version of it"),
    "source": (0.5, "another benchmark tool counts and times in its own way"),
    "from": (0.3, "where the load comes from: the link is in TTFT"),
    "link": (0.2, "the link is in TTFT"),
    "label": (0.5, "another kind of host"),
    "host": (0.5, "another machine"),
}


def _figures(before: Run, after: Run) -> list[Change]:
    """Measured figures that are causes rather than results: acceptance, lengths, prompts from the cache, slowdowns."""
    found = []
    for name, of, effect, weight, kind in _MEASURED:
        a, b = of(before), of(after)
        if a is not None and b is not None and abs(b - a) > 0.05 * max(abs(a), abs(b)) and abs(b - a) > 0.02:
            found.append(Change(name=name, before=num(a), after=num(b), kind=kind, effect=effect, weight=weight))
    slow = (_slowed(before), _slowed(after))
    if slow[0] != slow[1]:
        found.append(
            Change(
                name="slowed-down GPUs",
                before=slow[0] or "none",
                after=slow[1] or "none",
                kind="figure",
                effect="clocks under load",
                weight=0.9,
            )
        )
    return found


def _mean_of(name: str) -> Callable[[Run], float | None]:
    def of(run: Run) -> float | None:
        found = [v for levels in grouped(run).values() for level in levels if (v := number(level.result.get(name)))]
        return sum(found) / len(found) if found else None

    return of


def _per_request(name: str) -> Callable[[Run], float | None]:
    def of(run: Run) -> float | None:
        levels = [
            level for group in grouped(run).values() for level in group if number(level.result.get(name)) is not None
        ]
        ok = sum(level.ok for level in levels)
        return sum(number(level.result.get(name)) or 0.0 for level in levels) / ok if ok else None

    return of


def _cached(run: Run) -> float | None:
    hits, asked = _per_request("cached_tokens")(run), _per_request("prompt_tokens")(run)
    return hits / asked if hits is not None and asked else None


def _answer(run: Run) -> float | None:
    found = [level.avg_output for levels in grouped(run).values() for level in levels if level.avg_output]
    return sum(found) / len(found) if found else None


def _slowed(run: Run) -> str:
    return ", ".join(sorted({str(r) for level in run.levels for r in level.result.get("throttled") or ()}))


_MEASURED: tuple[tuple[str, Callable[[Run], float | None], str, float, str], ...] = (
    ("acceptance length", _mean_of("accept_len"), "tokens that come out of a step", 0.9, "figure"),
    ("answer tokens", _answer, "longer answers: more of a request is decoding, and its context grows", 0.6, "work"),
    ("prompt tokens", _per_request("prompt_tokens"), "prefill work and bytes of context", 0.7, "work"),
    ("prompts from cache", _cached, "share of prompt tokens that need no prefill", 0.7, "work"),
)


# --- how much a difference could make


def _sized(one: Change, before: Run, after: Run, gap: float) -> Change:
    estimator = _ESTIMATORS.get(one.name)
    sized = estimator(one, before, after) if estimator is not None else None
    if sized is None:
        return one
    factor, arithmetic = sized
    return msgspec.structs.replace(one, factor=factor, arithmetic=arithmetic, fits=_fits(factor, gap))


def _fits(factor: tuple[float, float], gap: float) -> str:
    low, high = factor
    if abs(math.log(gap)) < 0.01:
        return UNKNOWN
    if max(abs(math.log(low)), abs(math.log(high))) < 0.01:
        return NOTHING
    if low * 0.95 <= gap <= high * 1.05:
        return ALL
    best = min(low, high) if gap < 1 else max(low, high)
    if (gap < 1) != (best < 1):
        return AGAINST
    return PART if abs(math.log(best)) < abs(math.log(gap)) else ALL


def _share(one: Change, gap: float) -> float:
    """Share of the gap (of its logarithm) that a difference could make at most."""
    if one.factor is None or abs(math.log(gap)) < 0.01:
        return 0.0
    best = one.factor[0] if gap < 1 else one.factor[1]
    return min(1.0, max(0.0, math.log(best) / math.log(gap)))


_Sized = tuple[tuple[float, float], str] | None


def _span(a: float, b: float = 1.0) -> tuple[float, float]:
    return (a, b) if a <= b else (b, a)


def _of_gpus(one: Change, before: Run, after: Run) -> _Sized:
    a, b = lookup(one.before.split(",")[0]), lookup(one.after.split(",")[0])
    if a is None or b is None:
        return None
    ratio = b.bandwidth_gbps / a.bandwidth_gbps
    words = f"memory bandwidth {num(b.bandwidth_gbps, 4)} / {num(a.bandwidth_gbps, 4)} GB/s = {num(ratio)}"
    return _span(ratio, ratio), f"{words}, for what is limited by it"


def _of_tp(one: Change, before: Run, after: Run) -> _Sized:
    a, b = _digits(one.before, 1.0), _digits(one.after, 1.0)
    words = f"weights on each GPU 1/{num(b)} instead of 1/{num(a)}: a factor of at most {num(b / a)} for one stream"
    return _span(b / a), words


_BYTES = (
    (r"fp4|nvfp4|mxfp4", 0.56), (r"awq|gptq|int4|4bit|w4|q4|bnb|bitsandbytes", 0.55), (r"q5", 0.69), (r"q6", 0.82),
    (r"fp8|int8|w8|8bit|q8|e4m3|e5m2", 1.0), (r"bf16|bfloat16|fp16|float16|half|not given|none|auto", 2.0),
    (r"float32|fp32", 4.0),
)  # fmt: skip
"""Bytes a weight, scales included."""


def _of_weights(one: Change, before: Run, after: Run) -> _Sized:
    a, b = _weight_bytes(one.before), _weight_bytes(one.after)
    if a is None or b is None:
        return None
    return _span(a / b), f"bytes a weight {num(a)} -> {num(b)}: a step can be {num(a / b)} times as fast at most"


def _weight_bytes(text: str) -> float | None:
    return next((size for pattern, size in _BYTES if re.search(pattern, text.lower())), None)


def _of_length(one: Change, before: Run, after: Run) -> _Sized:
    ratio = _digits(one.after, 1.0) / _digits(one.before, 1.0)
    return _span(ratio, ratio), f"tokens a step {one.after} / {one.before} = {num(ratio)}, at the same step time"


def _of_draft(one: Change, before: Run, after: Run) -> _Sized:
    """A draft token makes a step longer by nothing at best, and at worst by as much as a plain step takes."""
    lengths = [_mean_of("accept_len")(run) for run in (before, after)]
    if lengths[0] is None and lengths[1] is None:
        return None
    a, b = (length or 1.0 for length in lengths)
    k, m = _drafts(before), _drafts(after)
    costs = sorted((1.0, (1 + k) / (1 + m)))
    low, high = (b / a * cost for cost in costs)
    words = f"tokens a step {num(a)} -> {num(b)}, drafted {num(k)} -> {num(m)}: a step with drafts takes 1 to "
    words += f"{num(1 + max(k, m))} plain ones, so a factor of {num(low)} to {num(high)}"
    return (low, high), words


def _drafts(run: Run) -> float:
    """Draft tokens a step; 0 without speculation."""
    settings = _table(run.context.get("settings"))
    known = next((v for name in ("spec_steps", "spec_draft_tokens") if (v := number(settings.get(name)))), None)
    return known or (_USUAL_DRAFTS if settings.get("spec_method") else 0.0)


def _of_cap(one: Change, before: Run, after: Run) -> _Sized:
    caps = (_digits(one.before, math.inf), _digits(one.after, math.inf))
    levels = [key[1] for key in grouped(before) if key[0] == "C" and key in grouped(after)]
    if not levels or min(caps) == math.inf:
        return None
    ratios = [min(c, caps[1]) / min(c, caps[0]) for c in levels]
    top = max(levels)
    a, b = (min(top, cap) for cap in caps)
    words = f"running at C={num(top)}: min(C, cap) = {num(a)} -> {num(b)}; below both caps nothing changes"
    return _span(min(*ratios, 1.0), max(*ratios, 1.0)), words


def _of_power(one: Change, before: Run, after: Run) -> _Sized:
    ratio = _digits(one.after, 1.0) / _digits(one.before, 1.0)
    return _span(ratio), f"power {one.after} / {one.before} W = {num(ratio)}: clocks, and so compute, by that at most"


_USUAL_DRAFTS = 4.0
"""Where a method is set and its draft length is left to the engine."""


_ESTIMATORS: dict[str, Callable[[Change, Run, Run], _Sized]] = {
    "gpus": _of_gpus,
    "tp": _of_tp,
    "quantization": _of_weights,
    "dtype": _of_weights,
    "acceptance length": _of_length,
    "spec steps": _of_draft,
    "spec method": _of_draft,
    "spec draft tokens": _of_draft,
    "max running": _of_cap,
    "power limit w": _of_power,
}


def _digits(text: str, default: float) -> float:
    match = re.search(r"\d+(?:\.\d+)?", text.replace(",", ""))
    return float(match[0]) if match and float(match[0]) > 0 else default


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    if value is None or value == "":
        return "not given"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return mask_secrets(f"{value:g}" if isinstance(value, float) else str(value))


def explained(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Those that could have made the gap or part of it, and those of unknown size, as they stand."""
    return tuple(one for one in changes if one.fits in (ALL, PART, UNKNOWN))

"""What a sanity check concludes from answers, settings, log records and speeds. Pure."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tokpit.domain.records import LogRecord
from tokpit.domain.run import Run
from tokpit.domain.settings import Settings
from tokpit.engines.base import Engine
from tokpit.insight.baseline import Band

SLOWER = 0.85
"""Below this share of the stored speed a server counts as slower than it was."""
_SHORT = 0.08
"""How far the few requests of a check may stray by themselves."""
LONGEST_CYCLE = 12
SHORTEST_ANSWER = 8
"""Words: shorter answers cannot be told from repetition."""
_NOT_COMPARED = frozenset({"listen", "model", "raw"})
_SAME = (frozenset({"mtp", "eagle"}),)
"""SGLang shows the method that it runs a model's own draft head with."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was checked. `ok` None: could not be looked at, or there is nothing to compare with."""

    name: str
    ok: bool | None
    sentence: str


def sense(text: str) -> str:
    """What is wrong with an answer: it is empty, has undecodable characters or repeats itself; empty where nothing is.

    Whether an answer is true is not judged.
    """
    if not text.strip():
        return "empty"
    broken = text.count("\ufffd")
    if broken > 0.1 * len(text):
        return f"{broken} of {len(text)} characters are no text"
    words = text.split()
    if len(words) <= 2 and len(text) >= 40 and len(set(text)) <= 3:
        return f"one character over and over: {text[:20]!r}"
    if len(words) < SHORTEST_ANSWER:
        return ""
    for period in range(1, min(LONGEST_CYCLE, len(words) // 4) + 1):
        tail = words[-max(4 * period, len(words) // 2) :]
        if all(tail[i] == tail[i - period] for i in range(period, len(tail))):
            return f"the same {'word' if period == 1 else f'{period} words'} over and over: {' '.join(tail[:period])!r}"
    return ""


def model_item(wanted: Settings | None, listed: Sequence[str]) -> Item:
    """Whether the server answers to the name that its command line gives it."""
    if not listed:
        return Item(name="model", ok=False, sentence="the server names no model")
    name = listed[0]
    expected = wanted.served_name or wanted.model if wanted is not None else None
    if not expected:
        return Item(name="model", ok=None, sentence=f"the server names {name}; nothing says what it should be")
    same = expected in listed or posixpath.basename(expected.rstrip("/")) == posixpath.basename(name.rstrip("/"))
    sentence = f"the server names {name}" + ("" if same else f", its command line {expected}")
    return Item(name="model", ok=same, sentence=sentence)


def settings_of_page(engine: Engine, page: Mapping[str, Any], version: str | None) -> Settings:
    """The settings that a page with the server's resolved arguments shows, by way of the engine's own flags."""
    words: list[str] = []
    for name, value in page.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif isinstance(value, (str, int, float)) and value is not False and value != "":
            words += [flag, str(value)]
    return engine.from_flags(words, version)


def effects(page: Mapping[str, Any], facts: Mapping[str, object], max_context: object) -> dict[str, object]:
    """Values in effect by setting, beyond the arguments: what the server worked out and its pages or log say."""
    found: dict[str, object] = {"max_running": facts.get("max_running_requests") or facts.get("n_slots")}
    found["context_len"] = max_context
    states = page.get("internal_states")
    if isinstance(states, list) and states and isinstance(states[0], Mapping):
        found["max_running"] = states[0].get("effective_max_running_requests_per_dp") or found["max_running"]
    if page.get("total_slots"):
        found["max_running"] = page["total_slots"]
    return {name: value for name, value in found.items() if value is not None}


def flags_item(given: Settings, shown: Settings | None, effect: Mapping[str, object]) -> Item:
    """Whether what the command line asks for is in effect, by what the server shows and what it made of it."""
    same, other, silent = [], [], []
    told = shown.given() if shown is not None else {}
    for name, wanted in given.given().items():
        if name in _NOT_COMPARED:
            continue
        seen = effect.get(name, told.get(name))
        if seen is None:
            silent.append(name)
        elif _equal(wanted, seen):
            same.append(name)
        else:
            other.append(f"{name} {wanted} asked, {seen} in effect")
    if other:
        return Item(name="flags", ok=False, sentence="; ".join(other))
    if not same:
        return Item(name="flags", ok=None, sentence="the server shows nothing of its settings")
    rest = f"; not shown: {', '.join(silent)}" if silent else ""
    return Item(name="flags", ok=True, sentence=f"{len(same)} settings in effect as asked ({', '.join(same)}){rest}")


def _equal(wanted: object, seen: object) -> bool:
    if isinstance(wanted, (int, float)) and isinstance(seen, (int, float)):
        return abs(float(wanted) - float(seen)) <= 1e-6 * max(1.0, abs(float(wanted)))
    first, second = str(wanted).lower(), str(seen).lower()
    return first == second or any({first, second} <= group for group in _SAME)


def log_item(records: Sequence[LogRecord], path: str) -> Item:
    """Whether the last part of the log is free of errors."""
    bad = [record for record in records if record.level == "error" or record.kind.startswith("failure.")]
    if not bad:
        return Item(name="log", ok=True, sentence=f"no error in the last {len(records)} records of {path}")
    text = bad[-1].text.strip()[:160]
    return Item(name="log", ok=False, sentence=f"{len(bad)} errors in the last {len(records)} records; newest: {text}")


def stream_tps(run: Run) -> float | None:
    """Decode speed of one stream in a stored sweep: 1 / TPOT of its level with C=1; None where it has none."""
    for level in run.levels:
        dist = level.result.get("tpot_s")
        if level.concurrency == 1 and level.ok and isinstance(dist, Mapping) and dist.get("p50"):
            return 1.0 / float(dist["p50"])
    return None


def speed_item(
    tps: float | None,
    *,
    min_tps: float | None,
    baseline: Run | None,
    others: float | None,
    band: Band | None = None,
) -> Item:
    """Decode speed of one stream against a floor and against the stored baseline.

    `band`: scatter of its TPOT over the runs of the baseline; for want of it anything below SLOWER is slower.
    """
    if tps is None:
        return Item(name="speed", ok=False, sentence="no speed could be measured")
    said = f"{tps:.1f} tok/s, one stream"
    if others:
        said += f" beside {others:.0f} other requests"
    if min_tps is not None:
        ok = tps >= min_tps
        return Item(name="speed", ok=ok, sentence=f"{said}, {'at least' if ok else 'below'} the {min_tps:g} asked for")
    stored = stream_tps(baseline) if baseline is not None else None
    if baseline is None or stored is None:
        why = "the stored run has no level C=1" if baseline is not None else "no sweep of this model here is stored"
        return Item(name="speed", ok=None, sentence=f"{said}; nothing to compare with: {why}")
    share, least = tps / stored, SLOWER
    said += f", {share:.0%} of the {stored:.1f} of run {baseline.id}"
    if band is not None:
        # A check is a few seconds of one stream: it scatters more than a level does, so the band is a lower bound.
        share, least = tps * band.mean, math.exp(-max(band.half, _SHORT))
        said += f"; {band.runs} runs of its baseline made {1 / band.mean:.1f} ±{max(band.half, _SHORT):.0%}"
    if share < least and others:
        return Item(name="speed", ok=None, sentence=f"{said}: not judged, the server is in use")
    return Item(name="speed", ok=share >= least, sentence=said)

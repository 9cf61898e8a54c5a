"""The space of an experiment: settings, their values, and a candidate as settings of a launch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, get_args, get_type_hints

import msgspec

from tokpit.domain.settings import Settings
from tokpit.domain.tuning import Choice, Value
from tokpit.errors import UsageError

ALIASES = {
    "mtp_steps": "spec_steps", "context": "context_len", "kv_offload_gb": "kv_offload_gib",
    "batched_tokens": "chunked_prefill",
}  # fmt: skip
"""Names that people use for canonical settings."""
LIVE = ("temperature", "top_p")
"""What is varied without a restart: sampling of the requests. Concurrency is varied by the levels of each sweep."""
ZERO_IS_OFF = frozenset({"spec_steps", "hicache_gb"})
"""Settings whose 0 takes the flags away."""
MOST = 20_000
"""Candidates: beyond it a person has to say which values matter."""
_TYPES = get_type_hints(Settings)
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:([x*+])(\d+))?")
_OFF = {"off", "none", "default", "auto"}


class Axis(msgspec.Struct, frozen=True):
    """One setting and its values, in the order given. `name`: canonical, one of LIVE, or a flag with its dashes."""

    name: str
    values: tuple[Value, ...]


class Space(msgspec.Struct, frozen=True):
    """The settings that are varied."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Candidates that need a start each."""
        size = 1
        for axis in self.starting:
            size *= len(axis.values)
        return size

    @property
    def told(self) -> str:
        """`1 candidate`, `45 candidates`."""
        return f"{self.size} candidate{'' if self.size == 1 else 's'}"

    @property
    def starting(self) -> tuple[Axis, ...]:
        """Axes that need a restart."""
        return tuple(axis for axis in self.axes if axis.name not in LIVE)

    def candidates(self) -> Iterator[Choice]:
        """Every combination of the settings that need a restart; the last axis turns fastest."""
        names = [axis.name for axis in self.starting]
        for values in product(*(axis.values for axis in self.starting)):
            yield dict(zip(names, values, strict=True))

    def live(self) -> list[Choice]:
        """Every combination of the settings that need none; [{}] where there are none."""
        axes = [axis for axis in self.axes if axis.name in LIVE]
        return [dict(zip((a.name for a in axes), values, strict=True)) for values in product(*(a.values for a in axes))]


def read_space(vary: Mapping[str, object]) -> Space:
    """The space of `{"mtp_steps": [0, 1, 3], "max_running": "8..48+8"}`. Raises UsageError with one sentence."""
    axes: list[Axis] = []
    for given, values in vary.items():
        name = canonical(given)
        if any(axis.name == name for axis in axes):
            raise UsageError(f"{given!r} is varied twice")
        axes.append(Axis(name, _values(given, name, values)))
    space = Space(tuple(axes))
    if not axes:
        raise UsageError("nothing is varied", hint="name a setting and its values, such as --vary mtp_steps=0..3")
    if space.size > MOST:
        raise UsageError(
            f"{space.size:,} combinations are more than the {MOST:,} that can be planned",
            hint="give fewer values, or vary fewer settings at once",
        )
    return space


def canonical(given: str) -> str:
    """The canonical name of a setting, or the flag itself. Raises UsageError with the nearest names."""
    if given.startswith("-"):
        return given
    name = given.strip().replace("-", "_")
    name = ALIASES.get(name, name)
    if name in LIVE or (name in _TYPES and name not in {"raw", "model", "port", "listen", "served_name"}):
        return name
    if name in {"concurrency", "levels"}:
        raise UsageError(
            "concurrency is not varied: each candidate is measured at every level of the workload",
            hint="name the levels with -c 1,8,32, or levels under [workload]",
        )
    from difflib import get_close_matches

    known = [*_TYPES, *ALIASES, *LIVE]
    near = get_close_matches(name, known, n=2, cutoff=0.5)
    raise UsageError(
        f"{given!r} is no setting that can be varied",
        hint=f"did you mean {' or '.join(near)}? A flag is named with its dashes."
        if near
        else "see tokpit launch --help for the settings; a flag is named with its dashes",
    )


def _values(given: str, name: str, values: object) -> tuple[Value, ...]:
    words: Sequence[Any]
    if isinstance(values, str):
        words = [word for word in re.split(r"\s*,\s*", values.strip()) if word]
    elif isinstance(values, (list, tuple)):
        words = values
    else:
        words = [values]
    found: list[Value] = []
    for word in words:
        for value in _expand(given, name, word):
            if any(v == value and type(v) is type(value) for v in found):
                raise UsageError(f"{given}: the value {value!r} is given twice")
            found.append(value)
    if not found:
        raise UsageError(f"{given}: no value is given", hint=f"such as --vary {given}=1,2,4")
    return tuple(found)


def _expand(given: str, name: str, word: object) -> list[Value]:
    if isinstance(word, str) and (match := _RANGE.fullmatch(word.replace(" ", ""))):
        low, high, sign, step = int(match[1]), int(match[2]), match[3], int(match[4] or 1)
        if low > high or step < 1 or (sign in ("x", "*") and (step < 2 or low < 1)):
            raise UsageError(f"{given}: the range {word!r} gives no values", hint="write 1..4, 8..48+8 or 8..64x2")
        steps: list[Value] = []
        while low <= high and len(steps) <= 1000:
            steps.append(_typed(given, name, low))
            low = low * step if sign in ("x", "*") else low + step
        return steps
    return [_typed(given, name, word)]


def _typed(given: str, name: str, word: object) -> Value:
    if name.startswith("-"):
        return word if isinstance(word, (bool, int, float)) else str(word)
    kinds = (float,) if name in LIVE else tuple(k for k in get_args(_TYPES[name]) if k is not type(None))
    if isinstance(word, str) and word.lower() in _OFF and str not in kinds:
        if bool in kinds and word.lower() == "off":
            return False
        return 0 if name in ZERO_IS_OFF and word.lower() == "off" else None
    try:
        value: Value
        if bool in kinds:
            value = _truth(word)
        elif int in kinds:
            value = int(str(word))
        elif float in kinds:
            value = float(str(word))
        else:
            value = None if str(word).lower() in {"none", "default"} else str(word)
    except ValueError:
        kind = "a whole number" if int in kinds else "a number" if float in kinds else "on or off"
        raise UsageError(f"{given}: {word!r} is not {kind}") from None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0:
        raise UsageError(f"{given}: {word} is below 0")
    return value


def _truth(word: object) -> bool:
    text = str(word).strip().lower()
    if text not in {"true", "yes", "on", "1", "false", "no", "off", "0"}:
        raise ValueError(text)
    return text in {"true", "yes", "on", "1"}


def settings_of(base: Settings, choice: Mapping[str, Value]) -> Settings:
    """`base` with the values of a candidate. 0 MTP steps, or 0 GB of host cache, switch the thing off."""
    changes: dict[str, Any] = {}
    raw = base.raw
    for name, value in choice.items():
        if name.startswith("-"):
            raw = with_flag(raw, name, value)
        elif name == "spec_steps":
            changes |= _speculation(base, value)
        elif name == "hicache_gb":
            changes |= {"hicache_gb": value or None, "hicache_ratio": None, "hicache": bool(value) or None}
        elif name not in LIVE:
            changes[name] = value
    return msgspec.structs.replace(base, raw=raw, **changes)


def _speculation(base: Settings, steps: Value) -> dict[str, Any]:
    if not steps:
        # Not given is not off for an engine that speculates by itself, but no engine here does.
        return dict.fromkeys(("spec_method", "spec_steps", "spec_topk", "spec_draft_tokens", "draft_model"))
    assert isinstance(steps, int)
    changes: dict[str, Any] = {"spec_method": base.spec_method or "mtp", "spec_steps": steps}
    if base.spec_draft_tokens is not None and base.spec_topk in (None, 1):
        changes["spec_draft_tokens"] = steps + 1  # of a chain: the root and each draft
    return changes


def with_flag(raw: Sequence[str], flag: str, value: Value) -> tuple[str, ...]:
    """Flags without a canonical name with this one set: replaced where it stands, else added; None or False: gone."""
    words: list[str] = []
    skipping = False
    for word in raw:
        if word == flag or word.startswith(f"{flag}="):
            skipping = "=" not in word
            continue
        if skipping and (not word.startswith("-") or word[1:2].isdigit()):
            continue
        skipping = False
        words.append(word)
    if value is None or value is False:
        return tuple(words)
    return (*words, flag) if value is True else (*words, flag, str(value))


def choice_of(settings: Settings, space: Space) -> Choice:
    """The values that a server has for the varied settings, in the space's own terms."""
    found: Choice = {}
    for axis in space.starting:
        if axis.name.startswith("-"):
            found[axis.name] = _flag_value(settings.raw, axis)
            continue
        value = getattr(settings, axis.name)
        off = axis.name in ZERO_IS_OFF and not value
        found[axis.name] = next((v for v in axis.values if v == 0), None) if off else value
    return found


def _flag_value(raw: Sequence[str], axis: Axis) -> Value:
    for value in axis.values:
        if value is not None and value is not False and _stands(raw, axis.name, value):
            return value
    return next((v for v in axis.values if v is None or v is False), None)


def _stands(raw: Sequence[str], flag: str, value: Value) -> bool:
    words = list(raw)
    wanted = [flag] if value is True else [flag, str(value)]
    return any(words[i : i + len(wanted)] == wanted for i in range(len(words))) or f"{flag}={value}" in words


def key_of(choice: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    """A candidate as a key of a table."""
    return tuple(sorted(choice.items()))


def words_of(choice: Mapping[str, Value]) -> str:
    """`mtp_steps 1, max_running 16`, as a person reads it."""
    return ", ".join(f"{name_of(name)} {value_of(value)}" for name, value in choice.items()) or "as it runs"


def name_of(name: str) -> str:
    """The name that people use."""
    return {"spec_steps": "mtp_steps", "context_len": "context"}.get(name, name)


def value_of(value: Value) -> str:
    """A value as a word; None is the engine's own choice."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)

"""Two stored runs against each other: level by level, and what else differs between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokpit.domain.run import Level, Run
from tokpit.domain.text import mask_secrets

_ASKED = ("settings", "plan")
_PLAIN = ("engine", "version", "gpus", "from", "client", "link", "label", "command")


@dataclass(frozen=True)
class LevelPair:
    """One concurrency in both runs; None where a run has no such level."""

    concurrency: int
    before: float | None
    after: float | None
    steady: bool
    """Whether both figures are of the steady window; else both are of the whole run."""

    @property
    def ratio(self) -> float | None:
        """After / before; None where either is missing or 0."""
        return self.after / self.before if self.before and self.after is not None else None


def level_pairs(before: Run, after: Run) -> list[LevelPair]:
    """Output tokens per second by concurrency, in the same measure on both sides; of repeated levels the last."""
    left = {level.concurrency: level for level in before.levels}
    right = {level.concurrency: level for level in after.levels}
    pairs = []
    for c in sorted({*left, *right}):
        one, other = left.get(c), right.get(c)
        steady = all(level is None or level.steady_tps is not None for level in (one, other))
        pairs.append(LevelPair(c, _tps(one, steady), _tps(other, steady), steady))
    return pairs


def _tps(level: Level | None, steady: bool) -> float | None:
    if level is None:
        return None
    return level.steady_tps if steady else level.output_tps


def differences(before: Run, after: Run) -> list[tuple[str, str, str]]:
    """Name, value before, value after of everything in the frozen contexts that differs, secrets masked."""
    rows = [("target", before.target, after.target), ("model", before.model, after.model)]
    for name in _ASKED:
        left, right = _table(before.context.get(name)), _table(after.context.get(name))
        rows += [(key.replace("_", " "), _text(left.get(key)), _text(right.get(key))) for key in {**left, **right}]
    rows += [(name, _text(before.context.get(name)), _text(after.context.get(name))) for name in _PLAIN]
    return [row for row in rows if row[1] != row[2]]


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

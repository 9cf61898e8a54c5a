"""How many parameters a token passes: given, by the model's name (`27B`, `35B-A3B`), or by the size of its weights."""

from __future__ import annotations

import re

from tokpit.insight.facts import Facts
from tokpit.insight.words import num

_WHOLE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)B(?![a-z])", re.I)
_ACTIVE = re.compile(r"(?<![a-z])A(\d+(?:\.\d+)?)B(?![a-z])", re.I)


def parameters(facts: Facts) -> tuple[float, str, bool] | None:
    """Billions of parameters that a token passes, where that is from, and whether a type of weights was assumed."""
    if facts.active_params_b or facts.params_b:
        return facts.active_params_b or facts.params_b or 0.0, "parameters as given", False
    name = _base(facts)
    for pattern in (_ACTIVE, _WHOLE):
        if (found := _number(pattern, name)) is not None:
            return found, f"parameters by the name {name}", False
    weights = facts.active_gb or facts.weights_gb
    if not weights:
        return None
    bits = facts.weight_bits or 16
    assumed = "" if facts.weight_bits else ", assumed"
    return 8 * weights / bits, f"{num(weights)} GB of {num(bits)}-bit weights{assumed}", not facts.weight_bits


def active_gb(facts: Facts) -> float | None:
    """GB of weights that one token reads of a mixture of experts; None: it is none, or not known."""
    if facts.active_gb or not facts.weights_gb:
        return facts.active_gb
    active = facts.active_params_b or _number(_ACTIVE, _base(facts))
    whole = facts.params_b or _number(_WHOLE, _base(facts))
    return facts.weights_gb * active / whole if active and whole and active < whole else None


def is_mixture(facts: Facts) -> bool:
    """Whether the model is known to be a mixture of experts."""
    return bool(facts.experts and facts.experts > 1) or active_gb(facts) is not None


def _base(facts: Facts) -> str:
    return (facts.model or "").rstrip("/").rsplit("/", 1)[-1]


def _number(pattern: re.Pattern[str], name: str) -> float | None:
    found = pattern.search(name)
    return float(found[1]) if found is not None and float(found[1]) > 0 else None

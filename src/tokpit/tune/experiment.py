"""An experiment as it is asked for: from TOML, from options or from a screen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from tokpit.errors import UsageError
from tokpit.tune.space import Space, name_of, read_space

OBJECTIVES = {
    "throughput": "tok/s",
    "single": "tok/s of one stream",
    "goodput": "req/s within the SLO",
    "pareto": "times the first server",
}
"""What can be sought, with its unit."""
METHODS = ("auto", "grid", "optuna")
DEFAULT_LEVELS = "1,8,32"


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What is sought: more of it is better."""

    kind: str = "throughput"
    slo: str = ""
    """As `tokpit sweep --slo`; a level counts only if 95 % of its requests keep it (throughput), goodput needs it."""
    weight: float = 0.5
    """Of `pareto`: share of throughput against single-stream speed, 0 to 1."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop; None: no limit."""

    minutes: float | None = None
    restarts: int | None = None
    """Starts of servers, those that put the first one back included."""
    error_rate: float = 0.02
    """A level with a larger share of failed requests does not count."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """How candidates are chosen."""

    method: str = "auto"
    """`grid`: all that may win, the likeliest first. `optuna`: TPE as well. `auto`: Optuna where it is installed."""
    seed: int = 0
    repeats: int = 1
    """How often the finalists and the first server are measured again, in turns."""
    finalists: int = 1
    noise: float = 0.02
    """Relative differences below it are no differences, whatever the intervals say."""
    patience: int | None = None
    """Starts in a row that bring nothing better before the search ends; None: 12, or 7 % of the candidates if more."""

    def patience_for(self, candidates: int) -> int:
        """Of a space of so many candidates; a grid is gone through to its end."""
        if self.method == "grid":
            return candidates
        return self.patience if self.patience is not None else max(12, round(0.07 * candidates))


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is asked of an experiment. `vary` and `workload` are words; see `space` and `sweep_args`."""

    target: str = ""
    vary: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    """Options of `tokpit sweep` by name: levels, requests, duration, max_tokens, temperature, dataset ..."""
    objective: Objective = Objective()
    limits: Limits = Limits()
    search: Search = Search()
    keep: bool = False
    """Leave the winner running instead of the first server."""
    env: dict[str, str] = {}
    timeout_s: float = 1800.0
    """For one start."""
    note: str = ""

    def space(self) -> Space:
        """The settings that are varied. Raises UsageError."""
        return read_space(self.vary)

    def sweep_args(self) -> dict[str, Any]:
        """The arguments of `sweep.start` for one measurement, without its target."""
        return {
            "levels": DEFAULT_LEVELS,
            **self.workload,
            **({"slo": self.objective.slo} if self.objective.slo else {}),
        }

    @property
    def title(self) -> str:
        """In one line."""
        space = self.space()
        return f"{' x '.join(name_of(axis.name) for axis in space.axes)}: {space.told}"


WORKLOAD = (
    *("levels", "requests", "duration_s", "max_tokens", "temperature", "top_p", "dataset", "turns", "prefix_share"),
    *("api", "model", "warmup", "flush", "timeout_s", "repeat", "source", "processes", "seed", "ignore_eos"),
)
"""Keys of the workload."""


def checked(experiment: Experiment) -> Experiment:
    """The experiment, if it can be run as asked. Raises UsageError with one sentence."""
    objective, limits, search = experiment.objective, experiment.limits, experiment.search
    if objective.kind not in OBJECTIVES:
        raise UsageError(f"{objective.kind!r} is no objective", hint=f"one of: {', '.join(OBJECTIVES)}")
    if search.method not in METHODS:
        raise UsageError(f"{search.method!r} is no way to search", hint=f"one of: {', '.join(METHODS)}")
    if objective.kind == "goodput" and not objective.slo:
        raise UsageError("goodput counts requests that keep an SLO, and none is given", hint="add --slo ttft=1s")
    _within("the weight", objective.weight, 0, 1)
    _within("the error rate", limits.error_rate, 0, 1)
    _within("the noise band", search.noise, 0, 0.5)
    if limits.minutes is not None:
        _within("the limit of minutes", limits.minutes, 0.1, 1e6)
    for what, value, least in (
        ("restarts", limits.restarts, 2),
        ("repeats", search.repeats, 0),
        ("finalists", search.finalists, 0),
        ("patience", search.patience, 1),
    ):
        if value is not None and value < least:
            raise UsageError(f"{what} is {value}: at least {least}")
    for key in experiment.workload:
        if key not in WORKLOAD:
            raise UsageError(f"the workload has no key {key!r}", hint=f"known: {', '.join(WORKLOAD)}")
    experiment.space()
    return experiment


def _within(what: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise UsageError(f"{what} is {value:g}: it must be between {low:g} and {high:g}")


def merged(experiment: Experiment, given: Mapping[str, Any]) -> Experiment:
    """The experiment with what was given beside it (options of the shell): None leaves a field as it is."""

    def part(name: str, now: Any) -> Any:
        changes = {
            key.removeprefix(f"{name}."): value
            for key, value in given.items()
            if key.startswith(f"{name}.") and value is not None
        }
        return msgspec.structs.replace(now, **changes)

    plain = {key: value for key, value in given.items() if "." not in key and value is not None}
    for table in ("vary", "workload", "env"):
        plain[table] = {**getattr(experiment, table), **(plain.get(table) or {})}
    return msgspec.structs.replace(
        experiment,
        **plain,
        objective=part("objective", experiment.objective),
        limits=part("limits", experiment.limits),
        search=part("search", experiment.search),
    )

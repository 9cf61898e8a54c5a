"""All that rules look at, in one frozen record."""

from __future__ import annotations

import msgspec

from tokpit.domain.records import GpuSample, Problem
from tokpit.domain.verdict import RuleAnswer, Verdict
from tokpit.insight.curve import Curve
from tokpit.insight.digest import Digest
from tokpit.insight.facts import Facts
from tokpit.insight.points import Point


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One of several runs that are compared: its name and figures by column (`tok_s`, `tp`, `accept_len` ...)."""

    name: str
    figures: dict[str, float] = {}
    labels: dict[str, str] = {}


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment as its log or a stored run tells it: settings by name, and what one stream made there."""

    name: str
    settings: dict[str, str] = {}
    single_tps: float | None = None
    accept_len: float | None = None
    whole: bool = False
    """`settings` are those of a command line: what is missing was not given."""


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier deployment of the model; `changes` from then to now, the likeliest cause first."""

    where: str
    when: str
    state: str = ""
    changes: tuple[str, ...] = ()


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known. Empty or None: not looked at."""

    facts: Facts = Facts()
    """Given ones and those read in logs; see `gather`."""
    points: tuple[Point, ...] = ()
    """Levels of the sweep as they came, unusable ones included."""
    curve: Curve | None = None
    others: tuple[tuple[str, Curve], ...] = ()
    """Further sweeps to compare with, by name."""
    logs: tuple[Digest, ...] = ()
    trials: tuple[Trial, ...] = ()
    setups: tuple[Setup, ...] = ()
    """Deployments from the oldest to the one that runs now."""
    earlier: tuple[Earlier, ...] = ()
    """Newest first; looked for only where the server seems slower than it was."""
    gpus: tuple[GpuSample, ...] = ()
    problems: tuple[Problem, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    answers: tuple[RuleAnswer, ...] = ()
    """What the engine's rules say of settings against host and model."""
    api_cap: int | None = None
    """Cap on running requests as somebody gave it, where a log says another."""
    known_tps: float | None = None
    """Best rate of earlier runs of the same profile."""
    health_variable: str = ""
    """Environment variable by which the engine's health check may wait longer."""

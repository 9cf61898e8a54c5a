"""A tuning experiment as it stands: what was asked, what was tried, what was left out and why.

A setting's value is a number, a word, or None for "not given: the engine decides". Rates are tok/s, times seconds on
the host's clock.
"""

from __future__ import annotations

import msgspec

Value = int | float | str | bool | None
Choice = dict[str, Value]
"""One value for each varied setting, by the setting's name."""


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One level of a candidate. None: not measured."""

    concurrency: int
    tps: float
    half: float | None = None
    """Half width of its 95 % interval."""
    stream_tps: float | None = None
    """Of one stream: 1 / TPOT (p50)."""
    ttft_s: float | None = None
    running: float | None = None
    """Most requests that the server ran at once."""
    accept_len: float | None = None
    goodput_rps: float | None = None
    err_share: float = 0.0
    slo_share: float | None = None
    """Share of the requests that kept every limit asked for."""
    void: str = ""
    """Why the level says nothing."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One start of one candidate, or one more measurement of the server that ran before."""

    number: int
    choice: Choice
    role: str = "search"
    """`first` (the server as it ran), `search`, `confirm` (a finalist again), `last` (the first server again)."""
    status: str = "running"
    """`starting`, `measuring`, `measured`, `cut` (could not win any more), `failed`."""
    value: float | None = None
    """By the objective: more is better."""
    half: float | None = None
    """Half width of the value's 95 % interval."""
    points: tuple[CurvePoint, ...] = ()
    reason: str = ""
    """Why it failed or was cut; what disqualifies it."""
    code: str = ""
    """The verdict's code of a failed start."""
    runs: tuple[str, ...] = ()
    """Ids of the stored sweeps."""
    restart_s: float | None = None
    measure_s: float | None = None
    live: Choice = {}
    """Settings that took effect without a restart and gave the value."""

    @property
    def best(self) -> CurvePoint | None:
        """The level with the highest rate."""
        return max((p for p in self.points if not p.void), key=lambda p: p.tps, default=None)


class LeftOut(msgspec.Struct, frozen=True):
    """A candidate that was not started. `code`: `rules`, `memory`, `same`, `ceiling`, `limit`."""

    choice: Choice
    code: str
    reason: str


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of one experiment for front ends; replaces the earlier snapshot of its id."""

    id: str
    server: str
    """Id of the server that it began with."""
    target: str
    title: str
    phase: str = "planning"
    """`planning`, `first`, `search`, `confirm`, `last`, `restoring`, `done`, `stopped`, `failed`."""
    axes: dict[str, tuple[Value, ...]] = {}
    size: int = 0
    """Candidates in all."""
    waiting: int = 0
    """Candidates that may still be tried."""
    trials: tuple[Trial, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    objective: str = ""
    unit: str = ""
    restarts: int = 0
    restarts_limit: int | None = None
    started_t: float = 0.0
    t: float = 0.0
    left_s: float | None = None
    """Time left as far as it can be told."""
    front: tuple[int, ...] = ()
    """Numbers of the trials on the Pareto front."""
    winner: int | None = None
    """Number of the trial that is ahead; None: none is ahead of the server as it ran."""
    notes: tuple[str, ...] = ()
    report: str = ""
    """Markdown, once it is over."""
    page: str = ""
    """The same as one HTML file, with charts."""

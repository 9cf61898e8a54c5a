"""Verdicts and rule answers: what is wrong, the arithmetic, and what to do next."""

from __future__ import annotations

import msgspec


class Fix(msgspec.Struct, frozen=True):
    """A change that can be applied with one key: canonical setting, raw flag or environment variable to a new value."""

    label: str
    settings: dict[str, object] = {}
    env: dict[str, str] = {}
    raw_add: tuple[str, ...] = ()
    raw_remove: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why a start or a run failed. `code` in capitals; `lines` are numbers of the decisive log lines."""

    code: str
    phase: str
    sentence: str
    arithmetic: str = ""
    next_action: str = ""
    evidence: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    figures: dict[str, float | str] = {}
    fixes: tuple[Fix, ...] = ()
    fatal: bool = True


class RuleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule between flags, or of flags against the host, says. `severity`: `error`, `warning` or `info`."""

    code: str
    severity: str
    sentence: str
    arithmetic: str = ""
    fixes: tuple[Fix, ...] = ()

"""Signatures of failures: a pattern, the verdict it stands for, and how the numbers in it are told.

A registry is a tuple of `sig(...)` rows; one more row is one more failure that is understood. Text templates are
templates with `{name}` over the pattern's named groups (numbers become numbers) and over what `refine` adds.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from tokpit.domain.settings import Settings
from tokpit.domain.text import mask_secrets
from tokpit.domain.verdict import Fix, Verdict
from tokpit.engines.verdictkit.blocks import Block
from tokpit.engines.verdictkit.lines import Line

Figures = dict[str, float | str]


class Rank(enum.IntEnum):
    """Which of several matches tells the cause: the lowest."""

    CAUSE = 0
    VAGUE = 1
    """True, but an exception without a signature that came earlier and deeper says more."""
    CONSEQUENCE = 2
    """What peers and parents print once somebody else has failed."""
    DEATH = 3
    """Says that it died, not why."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What a refinement may look at: the lines, what the log says of the settings, the phase, exit and signal."""

    lines: Sequence[Line] = ()
    block: Block | None = None
    at: int = 0
    """Index into `lines` of the decisive line."""
    phase: str = ""
    facts: Mapping[str, str] = {}
    """Settings that the log echoes: `mem_fraction_static`, `tp_size`, `port` and so on, as text."""
    settings: Settings | None = None
    exit_code: int | None = None
    signal: str | None = None

    def fact(self, *names: str) -> str | None:
        """The first of these settings that the log echoes; None where it echoes none."""
        return next((self.facts[name] for name in names if name in self.facts), None)

    def number(self, *names: str) -> float | None:
        """As `fact`, as a number; None where it is none."""
        value = number(self.fact(*names) or "")
        return value if isinstance(value, float | int) else None

    def seen_before(self, pattern: str) -> bool:
        """Whether a line before the decisive one matches."""
        return any(re.search(pattern, line.text) for line in self.lines[: self.at])


Refine = Callable[[Verdict, Case], Verdict | None]


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of failure. Made by `sig`."""

    code: str
    pattern: re.Pattern[str]
    sentence: str
    next_action: str = ""
    arithmetic: str = ""
    phase: str = ""
    within: re.Pattern[str] | None = None
    anywhere: bool = False
    rank: Rank = Rank.CAUSE
    refine: Refine | None = None
    fixes: tuple[Fix, ...] = ()
    fatal: bool = True
    survives: bool = False
    """Signs of life after it do not speak against it (SGLang prints "ready" after a failed bind)."""


def sig(
    code: str,
    pattern: str,
    sentence: str,
    next_action: str = "",
    *,
    arithmetic: str = "",
    phase: str = "",
    within: str = "",
    anywhere: bool = False,
    rank: Rank = Rank.CAUSE,
    refine: Refine | None = None,
    fixes: tuple[Fix, ...] = (),
    fatal: bool = True,
    survives: bool = False,
) -> Signature:
    """A signature.

    `pattern` is searched in the message of error blocks, also where a line break cuts a word; with `anywhere=True`
    it is searched in every line instead. `within` must be found in the traceback above or in the message.
    """
    return Signature(
        code=code,
        pattern=re.compile(pattern, re.DOTALL),
        sentence=sentence,
        next_action=next_action,
        arithmetic=arithmetic,
        phase=phase,
        within=re.compile(within) if within else None,
        anywhere=anywhere,
        rank=rank,
        refine=refine,
        fixes=fixes,
        fatal=fatal,
        survives=survives,
    )


def number(text: str) -> float | str:
    """`text` as int or float where it is a plain number, else unchanged."""
    cleaned = text.replace(",", "")
    if re.fullmatch(r"-?\d{1,15}", cleaned):
        return int(cleaned)
    if re.fullmatch(r"-?\d{1,15}\.\d{1,15}", cleaned):
        return float(cleaned)
    return text


def whole(verdict: Verdict, name: str) -> int | None:
    """A figure as a whole number; None where it is missing or is none."""
    value: object = verdict.figures.get(name)
    return value if isinstance(value, int) else None


def real(verdict: Verdict, name: str) -> float | None:
    """A figure as a number; None where it is missing or is none."""
    value: object = verdict.figures.get(name)
    return float(value) if isinstance(value, int | float) else None


def figures_of(match: re.Match[str]) -> Figures:
    """The named groups that took part, numbers as numbers; text is masked and cut.

    A number at the end of a name tells alternatives of one pattern apart: `port2` is a `port`.
    """
    told: Figures = {}
    for name, text in match.groupdict().items():
        if text is not None:
            value = number(text.strip())
            told[name.rstrip("0123456789")] = mask_secrets(value)[:200] if isinstance(value, str) else value
    return told


_SLOT = re.compile(r"\{(\w+)\}")


def fill(template: str, figures: Mapping[str, object]) -> str:
    """`template` with the figures in it; an unknown one shows as `?`. Other braces stay as they are."""
    return _SLOT.sub(lambda slot: str(figures.get(slot[1], "?")), template) if "{" in template else template


def matches(signature: Signature, block: Block) -> re.Match[str] | None:
    """The match of a signature in an error block, or None."""
    found = signature.pattern.search(block.message) or signature.pattern.search(block.tight)
    if found is None:
        return None
    if signature.within and not (signature.within.search(block.context) or signature.within.search(block.message)):
        return None
    return found


def tell(signature: Signature, match: re.Match[str], case: Case) -> Verdict | None:
    """The verdict of a match, refined; None where the refinement refuses it."""
    figures = figures_of(match)
    block = case.block
    decisive = next(
        (line for line in (block.lines if block else ()) if signature.pattern.search(line.text)),
        case.lines[case.at] if case.lines else Line(0, "", ""),
    )
    draft = Verdict(
        code=signature.code,
        phase=signature.phase or case.phase,
        sentence=fill(signature.sentence, figures),
        arithmetic=fill(signature.arithmetic, figures),
        next_action=fill(signature.next_action, figures),
        evidence=(evidence_text(decisive),),
        lines=(decisive.number,),
        figures=figures,
        fixes=signature.fixes,
        fatal=signature.fatal,
    )
    return signature.refine(draft, case) if signature.refine else draft


def evidence_text(line: Line) -> str:
    """A line as evidence: secrets masked, at most 300 characters, with its printer in front where known."""
    text = mask_secrets(line.text.strip())
    text = text if len(text) <= 300 else text[:297] + "..."
    return f"{line.proc}: {text}" if line.proc else text


def retell(verdict: Verdict, figures: Mapping[str, float | str] | None = None, **changes: object) -> Verdict:
    """The verdict with more figures and other texts; templates in `changes` are filled from all figures."""
    merged: Figures = {**verdict.figures, **(figures or {})}
    filled = {
        key: fill(value, merged)
        if key in {"sentence", "arithmetic", "next_action"} and isinstance(value, str)
        else value
        for key, value in changes.items()
    }
    return msgspec.structs.replace(verdict, figures=merged, **filled)

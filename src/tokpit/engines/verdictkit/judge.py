"""From a log and an exit to the one verdict that tells the cause.

1. A log that holds several starts is cut at the starts: an earlier failure that a later start survived is history.
2. Error blocks and lines are matched against the signatures. What the same process outlived (progress after it) is
   dropped, unless the signature says that it is fatal all the same.
3. The cause is the match of lowest rank, then of the deepest process, then the earliest. An exception that no
   signature knows counts only where something says that the server died.
4. Exit status, signal and the lines of dying parents are evidence; they are the cause only where nothing else is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from tokpit.domain.records import LogRecord
from tokpit.domain.settings import Settings
from tokpit.domain.verdict import Verdict
from tokpit.engines.verdictkit.blocks import Block, blocks
from tokpit.engines.verdictkit.exits import exit_evidence, exit_verdict, signal_name
from tokpit.engines.verdictkit.lines import Line, read
from tokpit.engines.verdictkit.signature import Case, Rank, Signature, evidence_text, matches, retell, tell

_NEVER_CAUSE = re.compile(r"(?:^|\.)(?:KeyboardInterrupt|CancelledError|SystemExit|BrokenPipeError|GeneratorExit)$")
_ASKED_TO_END = {"TERM", "INT", "HUP"}
"""Signals that people and service managers end servers with."""
_DUMP = re.compile(r"Dumping \w+ |Scheduler debug info")


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine's log looks like, as far as a verdict needs it."""

    signatures: tuple[Signature, ...]
    phases: tuple[tuple[re.Pattern[str], str], ...]
    """Milestones in order: the last one seen before a failure names its phase; `ready` means serving."""
    life: re.Pattern[str]
    """Lines that only a server at work prints."""
    boot: re.Pattern[str]
    """The line with which a start begins."""
    early: re.Pattern[str]
    """Lines printed once in a start by each process; seen again after a crash, they mean a restart."""
    death: re.Pattern[str]
    """Lines that say that a server has died."""
    wrapper: re.Pattern[str]
    """Messages that only pass on somebody else's failure: never the cause."""
    facts: re.Pattern[str]
    """`key=value` pairs of the argument echo that signatures ask for; groups `key`, `value`."""
    echo: re.Pattern[str]
    """The line that carries the argument echo."""


class Found(msgspec.Struct, frozen=True):
    """A candidate: where it stands, how it ranks, what it says."""

    at: int
    rank: int
    depth: int
    verdict: Verdict
    line: Line
    survives: bool = False


def judge(
    dialect: Dialect,
    records: Sequence[LogRecord],
    exit_code: int | None = None,
    signal: str | None = None,
    settings: Settings | None = None,
) -> Verdict | None:
    """Why this start or run failed; None where nothing says that it failed."""
    lines = read(records)
    starts = _starts(dialect, lines)
    told = _last_start(dialect, lines[starts[-1] :], exit_code, signal, settings)
    if len(starts) > 1:
        crash = _crash_loop(dialect, lines, starts, told, settings)
        if crash is not None:
            return crash
    return told


def _starts(dialect: Dialect, lines: Sequence[Line]) -> list[int]:
    """Index of the first line of each start in this log."""
    starts, seen, crashed = [0], set[tuple[str, str]](), ""
    crashed_proc = ""
    for index, line in enumerate(lines):
        boot = dialect.boot.search(line.text)
        early = dialect.early.search(line.text) if not boot else None
        if boot and (crashed or seen):
            starts.append(index)
            seen.clear()
            crashed = ""
        elif early:
            key = (line.proc, early.group(0))
            if crashed and key in seen and line.proc == crashed_proc:
                starts.append(index)
                seen.clear()
                crashed = ""
            seen.add(key)
        elif dialect.death.search(line.text) and not crashed:
            crashed, crashed_proc = line.text, line.proc
        if boot:
            seen.add(("", "boot"))
    return starts


def _crash_loop(
    dialect: Dialect, lines: Sequence[Line], starts: list[int], last: Verdict | None, settings: Settings | None
) -> Verdict | None:
    ends = [*starts[1:], len(lines)]
    if any(dialect.life.search(line.text) for line in lines[starts[-1] :]) and last is None:
        return None
    told = [_last_start(dialect, lines[a:b], None, None, settings) for a, b in zip(starts, ends, strict=True)]
    failed = [verdict for verdict in told[:-1] if verdict is not None]
    if not failed or len(failed) < len(starts) - 1:
        return None
    first = failed[0]
    again = last is not None and all(v.code == first.code for v in (*failed, last))
    running_on = last is None and first.phase != "args"
    if not again and not running_on:
        return None
    crashes = len(failed) + (last is not None)
    return retell(
        first,
        {"restarts": len(starts) - 1, "crashes": crashes, "cause": first.code},
        code="CRASH_LOOP",
        sentence=f"The server was started {len(starts)} times in this log and failed the same way: {first.sentence}",
        arithmetic=f"{len(starts)} starts - 1 = {len(starts) - 1} restarts, {crashes} crashes",
        next_action=f"Stop whatever restarts it, then: {first.next_action}",
        lines=tuple(line for verdict in failed for line in verdict.lines),
        evidence=tuple(text for verdict in failed for text in verdict.evidence[:2]),
    )


def _phase_at(dialect: Dialect, lines: Sequence[Line]) -> list[str]:
    phases, now = [], "args"
    for line in lines:
        for pattern, phase in dialect.phases:
            if pattern.search(line.text):
                now = phase
        phases.append(now)
    return phases


def _facts(dialect: Dialect, lines: Sequence[Line]) -> dict[str, str]:
    facts: dict[str, str] = {}
    for line in lines:
        if dialect.echo.search(line.text):
            for match in dialect.facts.finditer(line.raw):
                facts.setdefault(match["key"], match["value"].strip("'\""))
    return facts


def _last_start(
    dialect: Dialect,
    lines: Sequence[Line],
    exit_code: int | None,
    signal: str | None,
    settings: Settings | None,
) -> Verdict | None:
    index_of = {id(line): index for index, line in enumerate(lines)}
    phases = _phase_at(dialect, lines)
    facts = _facts(dialect, lines)
    milestone = re.compile("|".join(pattern.pattern for pattern, _ in dialect.phases))
    alive = [
        (i, line.proc, bool(dialect.life.search(line.text)))
        for i, line in enumerate(lines)
        if dialect.life.search(line.text) or milestone.search(line.text)
    ]
    deaths = [i for i, line in enumerate(lines) if dialect.death.search(line.text)]
    bad_exit = (exit_code not in (None, 0) or bool(signal)) and signal_name(exit_code, signal) not in _ASKED_TO_END

    def case(at: int, block: Block | None = None) -> Case:
        return Case(
            lines=lines,
            block=block,
            at=at,
            phase=phases[at] if phases else "args",
            facts=facts,
            settings=settings,
            exit_code=exit_code,
            signal=signal,
        )

    def outlived(at: int, proc: str) -> bool:
        death_after = any(i >= at for i in deaths)
        later = [(p, real) for i, p, real in alive if i > at]
        if any(real for _p, real in later) and not death_after:
            return True
        first_death = min((i for i in deaths if i >= at), default=len(lines))
        return any(p == proc for i, p, _r in alive if at < i < first_death)

    found = _candidates(dialect, lines, index_of, case)
    found = [f for f in found if f.survives or not outlived(f.at, f.line.proc)]
    causes = [f for f in found if f.verdict.fatal]
    if causes:
        best = min(causes, key=lambda f: (f.rank, -f.depth, f.at))
        died = bool(deaths) or bad_exit
        unknown = None
        if best.rank > Rank.CAUSE and (died or best.rank >= Rank.CONSEQUENCE):
            unknown = _unknown(dialect, lines, index_of, case, outlived)
        if unknown is not None and _says_more(unknown, best):
            best = unknown
        return _with_consequences(best.verdict, best.at, lines, deaths, (exit_code, signal))
    if deaths or bad_exit:
        unknown = _unknown(dialect, lines, index_of, case, outlived)
        if unknown is not None:
            return _with_consequences(unknown.verdict, unknown.at, lines, deaths, (exit_code, signal))
    last = case(len(lines) - 1) if lines else Case(exit_code=exit_code, signal=signal)
    told = exit_verdict(last, bad_exit)
    if told is not None:
        return told
    warnings = [f for f in found if not f.verdict.fatal]
    return min(warnings, key=lambda f: (f.rank, f.at)).verdict if warnings else None


def _says_more(unknown: Found, best: Found) -> bool:
    """Whether an exception without a signature is nearer to the cause than this match of lower value."""
    if best.rank == Rank.VAGUE:
        return unknown.depth > best.depth and unknown.at < best.at
    return unknown.at <= best.at or unknown.depth > best.depth


def _candidates(dialect: Dialect, lines: Sequence[Line], index_of: dict[int, int], case: object) -> list[Found]:
    make = case  # a closure over this start; see _last_start
    assert callable(make)
    found = []
    in_blocks = [s for s in dialect.signatures if not s.anywhere]
    in_lines = [s for s in dialect.signatures if s.anywhere]
    for block in blocks(lines):
        if _DUMP.match(block.head.text):
            continue
        at = index_of[id(block.head)]
        for signature in in_blocks:
            match = matches(signature, block)
            if match is None:
                continue
            told = tell(signature, match, make(at, block))
            if told is not None:
                found.append(Found(at, signature.rank, block.head.depth, told, block.head, signature.survives))
                break
    for at, line in enumerate(lines):
        for signature in in_lines:
            match = signature.pattern.search(line.text)
            if match is None:
                continue
            told = tell(signature, match, make(at))
            if told is not None:
                found.append(Found(at, signature.rank, line.depth, told, line, signature.survives))
                break
    return found


def _unknown(
    dialect: Dialect, lines: Sequence[Line], index_of: dict[int, int], case: object, outlived: object
) -> Found | None:
    """The first exception of the deepest process that no signature knows."""
    make, gone_by = case, outlived
    assert callable(make)
    assert callable(gone_by)
    found: list[Found] = []
    held = blocks(lines)
    for position, block in enumerate(held):
        if not block.type or _NEVER_CAUSE.search(block.type) or dialect.wrapper.search(block.message):
            continue
        following = held[position + 1] if position + 1 < len(held) else None
        if following is not None and following.link == "during" and not dialect.wrapper.search(following.message):
            continue  # the one that follows says what went wrong; this one only how it was noticed
        at = index_of[id(block.head)]
        if gone_by(at, block.head.proc):
            continue
        who = f"{block.head.proc} " if block.head.proc else ""
        text = evidence_text(msgspec.structs.replace(block.head, proc=""))
        if not block.head.text.partition(":")[2].strip() and block.frames:
            text += f" (at {block.frames[-1].text.strip()[:160]})"
        frames = tuple(evidence_text(line) for line in block.frames if line.text.lstrip().startswith("File "))[-1:]
        verdict = Verdict(
            code="ROOT_CAUSE_FIRST",
            phase=make(at).phase,
            sentence=f"Root cause: {who}{text}",
            next_action="Read this exception and its traceback, not the messages of the processes above it.",
            evidence=(evidence_text(block.head), *frames),
            lines=(block.head.number,),
            figures={"exception": block.type, "process": block.head.proc},
        )
        found.append(Found(at, Rank.VAGUE, block.head.depth, verdict, block.head))
    return min(found, key=lambda f: (-f.depth, f.at)) if found else None


def _with_consequences(
    verdict: Verdict, at: int, lines: Sequence[Line], deaths: list[int], end: tuple[int | None, str | None]
) -> Verdict:
    """The verdict with up to three lines of what died of it, and the exit status, as further evidence."""
    after = [lines[i] for i in deaths if i >= at and lines[i].number not in verdict.lines][:3]
    return retell(
        verdict,
        evidence=(*verdict.evidence, *map(evidence_text, after), *exit_evidence(*end)),
        lines=(*verdict.lines, *(line.number for line in after)),
    )

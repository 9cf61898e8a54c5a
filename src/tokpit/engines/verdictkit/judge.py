"""From a log and an exit to the one verdict that tells the cause.

1. A log that holds several starts is cut at the starts: an earlier failure that a later start survived is history.
2. Error blocks and lines are matched against the signatures. What the same process outlived (progress after it) is
   dropped, unless the signature says that it is fatal all the same.
3. The cause is the match of lowest rank, then of the deepest process, then the earliest. An exception that no
   signature knows counts only where something says that the server died.
4. Exit status, signal and the lines of dying parents are evidence; they are the cause only where nothing else is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import msgspec

from tokpit.domain.records import LogRecord
from tokpit.domain.settings import Settings
from tokpit.domain.verdict import Verdict
from tokpit.engines.verdictkit.blocks import Block, blocks
from tokpit.engines.verdictkit.course import Alive, Dialect, deadly, facts_of, phases_of, starts_of
from tokpit.engines.verdictkit.exits import exit_evidence, exit_verdict, signal_name
from tokpit.engines.verdictkit.lines import Line, read
from tokpit.engines.verdictkit.signature import Case, Rank, Signature, evidence_text, matches, retell, tell

_NEVER_CAUSE = re.compile(r"(?:^|\.)(?:KeyboardInterrupt|CancelledError|SystemExit|BrokenPipeError|GeneratorExit)$")
_ASKED_TO_END = {"TERM", "INT", "HUP"}
"""Signals that people and service managers end servers with."""


class Found(msgspec.Struct, frozen=True):
    """A candidate: where it stands, how it ranks, what it says."""

    at: int
    rank: int
    depth: int
    verdict: Verdict
    line: Line
    survives: bool = False


class End(msgspec.Struct, frozen=True):
    """How the server ended, as far as it is known."""

    exit_code: int | None = None
    signal: str | None = None

    @property
    def bad(self) -> bool:
        """Whether it ended by itself, and not well: neither status 0 nor a signal that people end servers with."""
        if self.exit_code in (None, 0) and not self.signal:
            return False
        return signal_name(self.exit_code, self.signal) not in _ASKED_TO_END


def judge(
    dialect: Dialect,
    records: Sequence[LogRecord],
    exit_code: int | None = None,
    signal: str | None = None,
    settings: Settings | None = None,
) -> Verdict | None:
    """Why this start or run failed; None where nothing says that it failed."""
    lines = read(records)
    starts = starts_of(dialect, lines)
    told = _Start(dialect, lines[starts[-1] :], End(exit_code, signal), settings).judged()
    earlier = [_Start(dialect, lines[begin:end], End(), settings).judged() for begin, end in itertools.pairwise(starts)]
    if not earlier or None in earlier:
        return told
    if told is None and any(dialect.life.search(line.text) for line in lines[starts[-1] :]):
        return None
    return _crash_loop([verdict for verdict in earlier if verdict is not None], told) or told


def _crash_loop(failed: list[Verdict], last: Verdict | None) -> Verdict | None:
    """One kind of failure at every start so far; the last start may still be on its way."""
    first = failed[0]
    same = all(verdict.code == first.code for verdict in (*failed, *([last] if last else [])))
    if not same or (last is None and first.phase == "args"):  # arguments that a person has corrected are no loop
        return None
    starts, crashes = len(failed) + 1, len(failed) + (last is not None)
    return retell(
        first,
        {"restarts": starts - 1, "crashes": crashes, "cause": first.code},
        code="CRASH_LOOP",
        sentence=f"The server was started {starts} times in this log and failed the same way: {first.sentence}",
        arithmetic=f"{starts} starts - 1 = {starts - 1} restarts, {crashes} crashes",
        next_action=f"Stop whatever restarts it, then: {first.next_action}",
        lines=tuple(line for verdict in failed for line in verdict.lines),
        evidence=tuple(text for verdict in failed for text in verdict.evidence[:2]),
    )


def _rank(signature: Signature, told: Verdict) -> Rank:
    """A line that says how a process died ranks higher where its exit code says why: killed, crashed, aborted."""
    said_why = signature.rank is Rank.DEATH and told.code != signature.code and "signal" in told.figures
    return Rank.VAGUE if said_why else signature.rank


class _Start:
    """One start: its lines, and what they say of phase, settings, progress and death."""

    def __init__(self, dialect: Dialect, lines: Sequence[Line], end: End, settings: Settings | None) -> None:
        self.dialect, self.lines, self.end, self.settings = dialect, lines, end, settings
        self.blocks = blocks(lines)
        self.deaths = [index for index, line in enumerate(lines) if deadly(dialect, line)]
        self._index = {id(line): index for index, line in enumerate(lines)}
        self._phases = phases_of(dialect, lines)
        self._facts = facts_of(dialect, lines)
        self._alive = Alive(dialect, lines)

    def case(self, at: int, block: Block | None = None) -> Case:
        """What a refinement may look at."""
        return Case(
            lines=self.lines,
            block=block,
            at=at,
            phase=self._phases[at] if self._phases else "args",
            facts=self._facts,
            settings=self.settings,
            exit_code=self.end.exit_code,
            signal=self.end.signal,
        )

    def at(self, block: Block) -> int:
        """Index of a block's decisive line."""
        return self._index[id(block.head)]

    def outlived(self, at: int, proc: str) -> bool:
        """Whether what stands at `at` was survived."""
        return self._alive.outlived(at, proc, self.deaths)

    def matches(self) -> list[Found]:
        """Everything that a signature knows and that was not outlived."""
        found = [*self._in_blocks(), *self._in_lines()]
        return [f for f in found if f.survives or not self.outlived(f.at, f.line.proc)]

    def _in_blocks(self) -> Iterator[Found]:
        signatures = [s for s in self.dialect.signatures if not s.anywhere]
        for block in self.blocks:
            at = self.at(block)
            for signature in signatures:
                match = matches(signature, block)
                told = tell(signature, match, self.case(at, block)) if match else None
                if told is not None:
                    yield Found(at, _rank(signature, told), block.head.depth, told, block.head, signature.survives)
                    break

    def _in_lines(self) -> Iterator[Found]:
        signatures = [s for s in self.dialect.signatures if s.anywhere]
        for at, line in enumerate(self.lines):
            if line.quotes or line.busy:
                continue
            for signature in signatures:
                at_start = signature.fatal and line.level in {"info", "warning", "debug"}  # else maybe a quotation
                search = signature.pattern.match if at_start else signature.pattern.search
                match = search(line.text)
                told = tell(signature, match, self.case(at)) if match else None
                if told is not None:
                    yield Found(at, _rank(signature, told), line.depth, told, line, signature.survives)
                    break

    def unknown(self) -> Found | None:
        """The first exception of the deepest process that no signature knows."""
        wrapper = self.dialect.wrapper
        found: list[Found] = []
        for block, after in itertools.zip_longest(self.blocks, self.blocks[1:]):
            if not block.type or _NEVER_CAUSE.search(block.type) or wrapper.search(block.message):
                continue
            if after is not None and after.link == "during" and not wrapper.search(after.message):
                continue  # the one that follows says what went wrong; this one only how it was noticed
            at = self.at(block)
            if not self.outlived(at, block.head.proc):
                found.append(Found(at, Rank.VAGUE, block.head.depth, self._root_cause(block), block.head))
        return min(found, key=lambda f: (-f.depth, f.at)) if found else None

    def _root_cause(self, block: Block) -> Verdict:
        who = f"{block.head.proc} " if block.head.proc else ""
        text = evidence_text(msgspec.structs.replace(block.head, proc=""))
        if not block.head.text.partition(":")[2].strip() and block.frames:
            text += f" (at {block.frames[-1].text.strip()[:160]})"
        frames = tuple(evidence_text(line) for line in block.frames if line.text.lstrip().startswith("File "))[-1:]
        return Verdict(
            code="ROOT_CAUSE_FIRST",
            phase=self.case(self.at(block)).phase,
            sentence=f"Root cause: {who}{text}",
            next_action="Read this exception and its traceback, not the messages of the processes above it.",
            evidence=(evidence_text(block.head), *frames),
            lines=(block.head.number,),
            figures={"exception": block.type, "process": block.head.proc},
        )

    def judged(self) -> Verdict | None:
        """The verdict on this start."""
        found = self.matches()
        causes = [f for f in found if f.verdict.fatal]
        if causes:
            best = min(causes, key=lambda f: (f.rank, -f.depth, f.at))
            if best.rank >= Rank.CONSEQUENCE or (best.rank > Rank.CAUSE and (self.deaths or self.end.bad)):
                unknown = self.unknown()
                if unknown is not None and _says_more(unknown, best):
                    best = unknown
            return self._with_consequences(best)
        unknown = self.unknown() if self.deaths or self.end.bad else None
        if unknown is not None:
            return self._with_consequences(unknown)
        last = self.case(len(self.lines) - 1) if self.lines else self.case(0)
        told = exit_verdict(last, self.end.bad)
        if told is not None:
            return told
        warnings = [f for f in found if not f.verdict.fatal]
        return min(warnings, key=lambda f: (f.rank, f.at)).verdict if warnings else None

    def _with_consequences(self, found: Found) -> Verdict:
        """The verdict with up to three lines of what died of it, and the exit status, as further evidence."""
        verdict = found.verdict
        after = [self.lines[i] for i in self.deaths if i >= found.at and self.lines[i].number not in verdict.lines][:3]
        ending = exit_evidence(self.end.exit_code, self.end.signal)
        return retell(
            verdict,
            evidence=(*verdict.evidence, *map(evidence_text, after), *ending),
            lines=(*verdict.lines, *(line.number for line in after)),
        )


def _says_more(unknown: Found, best: Found) -> bool:
    """Whether an exception without a signature is nearer to the cause than this match of lower value."""
    if best.rank == Rank.VAGUE:
        return unknown.depth > best.depth and unknown.at < best.at
    if best.rank == Rank.DEATH and unknown.depth == best.depth:
        return True  # the line that it died stands above the traceback that says why
    return unknown.at < best.at or unknown.depth > best.depth

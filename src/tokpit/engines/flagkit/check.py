"""Flags that a version does not take: unknown, renamed, removed, ambiguous, with a bad value, deprecated."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import msgspec

from tokpit.engines import version as versions
from tokpit.engines.base import FlagIssue, FlagSpec
from tokpit.engines.flagkit.canon import Map
from tokpit.engines.flagkit.dialect import Word, read
from tokpit.engines.flagkit.kinds import human_int
from tokpit.engines.flagkit.tables import Catalog, FlagTable, Pick


def check(
    engine: Map, flags: Sequence[str], version: str | None, schema: Sequence[FlagSpec] | None = None
) -> list[FlagIssue]:
    """Issues in order of the command line. `error`: the start would be refused. `warning`: it may be, or a deprecation.

    Certain is what a schema read on the host says, or the table of exactly this release. Between two sampled releases
    an issue is an error where both have it. Without a version, or beyond the sampled ones, only what no sampled
    release takes is an error (a release to come may bring a new flag: there it needs to look like a known one).
    """
    catalog = engine.catalog()
    pick = catalog.at(version)
    table: FlagTable = FlagTable(schema) if schema else pick
    words = read(flags, table, engine.dialect, catalog.union)
    if schema or pick.certain:
        return _issues(_Checker(engine, catalog, table, pick, firm=True), words)
    found = _issues(_Checker(engine, catalog, table, pick, firm=False), words)
    above = catalog.above(version)
    if above is not None:
        other = read(flags, above, engine.dialect, catalog.union)
        shared = {
            (issue.flag, issue.code) for issue in _issues(_Checker(engine, catalog, above, above, firm=False), other)
        }
    else:
        beyond = versions.parse(version) is not None
        shared = {
            (issue.flag, issue.code)
            for issue in found
            if (issue.code == "bad-value" and not beyond)
            or (issue.code == "unknown" and not catalog.seen(issue.flag) and (issue.successor or not beyond))
        }
    return [
        msgspec.structs.replace(issue, severity="error")
        if issue.code != "deprecated" and ((issue.flag, issue.code) in shared or _absent_too(issue, shared))
        else issue
        for issue in found
    ]


_ABSENT = frozenset({"unknown", "renamed", "removed"})
"""Codes of flags that a release does not have at all."""


def _absent_too(issue: FlagIssue, shared: set[tuple[str, str]]) -> bool:
    return issue.code in _ABSENT and any((issue.flag, code) in shared for code in _ABSENT)


def _issues(checker: _Checker, words: Sequence[Word]) -> list[FlagIssue]:
    out: list[FlagIssue] = []
    free = 0
    for word in words:
        if word.option:
            out += checker.flag(word)
        else:
            free += 1
            if free > (1 if checker.engine.dialect.positional else 0):
                out.append(checker.free(word))
    return out


class _Checker:
    def __init__(self, engine: Map, catalog: Catalog, table: FlagTable, pick: Pick, *, firm: bool) -> None:
        self.engine = engine
        self.catalog = catalog
        self.table = table
        self.pick = pick
        self.severity = "error" if firm else "warning"
        self.name = f"{engine.title} {pick.wanted or pick.sampled}"

    def issue(self, flag: str, code: str, sentence: str, successor: str | None = None, severity: str = "") -> FlagIssue:
        return FlagIssue(
            flag=flag, code=code, severity=severity or self.severity, sentence=sentence, successor=successor
        )

    def free(self, word: Word) -> FlagIssue:
        return self.issue(word.tokens[0], "unknown", f"{word.tokens[0]!r} belongs to no flag", severity="error")

    def flag(self, word: Word) -> list[FlagIssue]:
        if word.problem in ("unknown", "spelling"):
            return [self._unknown(word)]
        if word.problem == "foreign":
            return [self._foreign(word)]
        if word.problem == "ambiguous":
            options = ", ".join(word.candidates)
            return [self.issue(word.option, "ambiguous", f"{word.option} could be {options}", word.candidates[0])]
        if word.problem == "missing-value":
            return [self.issue(word.option, "bad-value", f"{word.option} needs a value", severity="error")]
        if word.problem == "takes-no-value":
            sentence = f"{word.option} is a switch and takes no value"
            return [self.issue(word.option, "bad-value", sentence, word.name, severity="error")]
        if successor := self.engine.renames.stub(word.name, self.table):
            return [self.issue(word.option, "renamed", f"{self.name} calls {word.name} {successor}", successor)]
        return [*self._deprecated(word), *self._values(word)]

    def _unknown(self, word: Word) -> FlagIssue:
        if word.candidates:
            near: str | None = word.candidates[0]
        else:
            near = nearest(word.option, self.table.options)
        hint = f"; did you mean {near}?" if near else ""
        return self.issue(word.option, "unknown", f"{self.name} has no flag {word.option}{hint}", near)

    def _foreign(self, word: Word) -> FlagIssue:
        seen = self.catalog.seen(word.name)
        successor = self.engine.renames.other_name(word.name, self.table, self.catalog)
        span = self.catalog.span(word.name)
        if successor:
            return self.issue(
                word.option,
                "renamed",
                f"{self.name} calls {word.name} {successor} ({span} had the old name)",
                successor,
            )
        later = bool(seen) and self.catalog.versions.index(seen[0]) > self.catalog.versions.index(self.pick.sampled)
        if later:
            near = nearest(word.option, self.table.options)
            return self.issue(word.option, "unknown", f"{self.name} has no {word.name} yet (it is in {span})", near)
        near = self.engine.renames.look_at(word.name, self.table)
        sentence = f"{self.name} no longer has {word.name} (it was in {span})" + (f"; see {near}" if near else "")
        return self.issue(word.option, "removed", sentence, near)

    def _deprecated(self, word: Word) -> list[FlagIssue]:
        successor = self.engine.renames.successor(word.name, self.table)
        if successor is None:
            return []
        sentence = f"{word.name} is deprecated in {self.name}" + (f"; use {successor}" if successor else "")
        return [self.issue(word.option, "deprecated", sentence, successor or None, severity="warning")]

    def _values(self, word: Word) -> list[FlagIssue]:
        spec = word.spec
        if spec is None or word.keys:
            return []
        for value in word.values:
            if sentence := self._bad(spec, value):
                near = nearest(value, [str(choice) for choice in spec.choices or ()])
                return [self.issue(word.option, "bad-value", f"{word.option}: {sentence}", near)]
        return []

    def _bad(self, spec: FlagSpec, value: str) -> str:
        capitals = self.engine.dialect.binary_capitals
        kind = spec.type
        if kind == "int" and not _whole(value):
            return f"{value!r} is not a whole number"
        auto = kind == "human-auto" and value.strip().lower() == "auto"
        if kind in ("human", "human-auto") and not auto and human_int(value, binary_capitals=capitals) is None:
            return f"{value!r} is not a whole number, with or without suffix"
        if kind == "float" and not _number(value):
            return f"{value!r} is not a number"
        if kind == "json" and value[:1] in "{[" and not _json(value):
            return f"{value!r} is not valid JSON"
        if spec.choices:
            known = {str(choice) for choice in spec.choices}
            normal = value.lower().replace("-", "_") if kind == "lower" else value
            if normal not in known and value not in known:
                return f"{value!r} is none of {', '.join(sorted(known))}"
        return ""


def _whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def nearest(text: str, names: Iterable[str]) -> str | None:
    """The name with the smallest edit distance, if it is close: at most a third of the length, and at most 8 edits."""
    wanted = text.replace("_", "-")
    limit = min(8, max(1, len(wanted) // 3))
    best: tuple[int, str] | None = None
    for name in names:
        if abs(len(name) - len(wanted)) > limit:
            continue
        edits = distance(wanted, name.replace("_", "-"))
        if edits <= limit and (best is None or edits < best[0]):
            best = (edits, name)
    return best[1] if best else None


def distance(a: str, b: str) -> int:
    """Edit distance: insertions, deletions, replacements."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]

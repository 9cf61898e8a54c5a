"""Refused command lines: argparse's last line, and what llama.cpp prints instead."""

from __future__ import annotations

import re

from tokpit.domain.verdict import Fix, Verdict
from tokpit.engines.verdictkit.signature import Case, Signature, retell, sig


def unrecognized(verdict: Verdict, case: Case) -> Verdict:
    """The nearest flag by spelling: dashes for underscores, else the nearest in the usage text above."""
    words = str(verdict.figures.get("rest", "")).split()
    flag = next((word for word in words if word.startswith("-")), "")
    if not flag:
        return verdict
    usage = {
        name
        for line in case.lines[: case.at]
        for name in re.findall(r"(?<![\w-])--[a-z][\w-]*", line.text)
        if name != flag
    }
    bare = flag.split("=")[0]
    dashed = bare[:2] + bare[2:].replace("_", "-")
    near = dashed if dashed != bare and (dashed in usage or "_" in bare) else _nearest(bare, usage)
    hint = f" Did you mean {near}?" if near else ""
    fixes = (Fix(label=f"{bare} -> {near}", raw_remove=(bare,), raw_add=(near,)),) if near else ()
    return retell(
        verdict,
        {"flag": bare, **({"nearest": near} if near else {})},
        sentence=f"Unknown flag {bare}: this version of the engine does not take it.{hint}",
        fixes=fixes,
    )


def _nearest(flag: str, known: set[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(flag, sorted(known), n=1, cutoff=0.75)), "")


# slurmstepd and srun put the same word before what ends a job.
_PROG = r"(?:^|\n)(?!slurmstepd\b|srun: )[\w./ -]{0,80}?: error: "

FLAGS: tuple[Signature, ...] = (
    sig(
        "FLAG_UNRECOGNIZED",
        _PROG + r"unrecognized arguments: (?P<rest>[^\n]*)",
        "Unknown flag: {rest}.",
        "Take the flag out, or use the name that this version's --help lists.",
        phase="args",
        refine=unrecognized,
    ),
    sig(
        "FLAG_AMBIGUOUS",
        _PROG + r"ambiguous option: (?P<flag>\S+) could match (?P<candidates>[^\n]*)",
        "{flag} is ambiguous in this version: it could be {candidates}.",
        "Write the full name of the one that is meant.",
        phase="args",
    ),
    sig(
        "FLAG_BAD_VALUE",
        _PROG + r"argument (?P<flag>\S+): (?P<why>[^\n]*)",
        "{flag} does not take this value: {why}.",
        "Correct the value.",
        phase="args",
    ),
    sig(
        "FLAG_MISSING",
        _PROG + r"(?:the following arguments are required: (?P<flag>[^\n]*)|one of the arguments [^\n]*)",
        "A required flag is missing: {flag}.",
        "Add it.",
        phase="args",
    ),
    sig(
        "FLAG_CONFLICT",
        _PROG + r"(?P<why>[^\n]*not allowed with[^\n]*|[^\n]*mutually exclusive[^\n]*)",
        "Flags exclude each other: {why}.",
        "Take one of them out.",
        phase="args",
    ),
    sig(
        "FLAG_BAD_VALUE",
        _PROG + r"(?P<why>[^\n]+)",
        "The command line was refused: {why}.",
        "Correct the flags.",
        phase="args",
    ),
)

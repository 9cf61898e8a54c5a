"""The flag schema of an installed llama-server, read from what its `--help` prints.

Source of the format: `common_arg::to_string` in common/arg.cpp: option strings, then a placeholder unless the flag
takes no value; what it does begins at column 40, on the next line where the head is longer than 37 characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokpit.engines.base import FlagSpec

_COLUMN, _LONGEST_HEAD = 40, 37
_HEAD = re.compile(r"(?P<flags>-{1,2}[\w.-]+(?:,\s+-{1,2}[\w.-]+)*)(?:\s+(?P<placeholder>\S.*))?")
_DEFAULT = re.compile(r"\(?\bdefault: (?P<value>[^,;)\n]+)")


def read_help(text: str) -> tuple[FlagSpec, ...]:
    """The flags in the order of the text; lines of another shape (headings, log lines before it) are passed over."""
    heads: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("-") and not line.startswith("---"):
            long = not (len(line) > _COLUMN and not line[_LONGEST_HEAD:_COLUMN].strip())
            heads.append((line if long else line[:_COLUMN], [] if long else [line[_COLUMN:]]))
        elif heads and line.startswith(" " * _COLUMN):
            heads[-1][1].append(line[_COLUMN:])
    found = []
    for head, said in heads:
        if match := _HEAD.fullmatch(head.strip()):
            default = _DEFAULT.search(" ".join(said))
            flags = re.split(r",\s+", match["flags"])
            found.append(spec(flags, match["placeholder"], default["value"].strip() if default else None))
    return tuple(found)


def spec(flags: Sequence[str], placeholder: str | None, default: str | None) -> FlagSpec:
    """One row of help text. A placeholder `{a,b}` or `[a|b]` names choices, `<...>` describes, None takes no value."""
    nargs: int | None = 0 if placeholder is None else 2 if placeholder == "START END" else None
    whole = default is not None and default.lstrip("-").isdigit()
    options = ordered(flags)
    return FlagSpec(
        flags=options,
        dest=options[0].lstrip("-").replace("-", "_"),
        type="bool" if nargs == 0 else "int" if placeholder == "N" and whole else "str",
        default=default,
        choices=_choices(placeholder),
        nargs=nargs,
    )


def ordered(flags: Sequence[str]) -> tuple[str, ...]:
    """Long options first, then negations, then short ones: the first one names the flag."""

    def rank(flag: str) -> int:
        if not flag.startswith("--"):
            return 2
        return 1 if flag.startswith("--no-") else 0

    return tuple(sorted(flags, key=rank))


def _choices(placeholder: str | None) -> tuple[str, ...] | None:
    if not placeholder or placeholder[0] not in "[{" or placeholder[-1] not in "]}":
        return None
    words = re.split(r"[|,]", placeholder[1:-1])
    return tuple(words) if len(words) > 1 and all(word.isalnum() for word in words) else None

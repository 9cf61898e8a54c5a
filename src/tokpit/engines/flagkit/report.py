"""What a front end asks about flags: the issues of a command line, and a version's table."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.engines import registry
from tokpit.engines.base import FlagIssue, FlagSpec
from tokpit.engines.flagkit import tables


def lint(
    engine_name: str, argv: Sequence[str], version: str | None, schema: Sequence[FlagSpec] | None = None
) -> list[FlagIssue]:
    """Issues of a whole command line (`vllm serve M --x`) or of flags alone. `schema`: read on the host.

    Raises UsageError for an engine that is not known.
    """
    engine = registry.engine(engine_name)
    found = engine.recognise(argv)
    flags = argv[len(found.program) :] if found is not None else argv
    return list(engine.check_flags(flags, version, schema))


def engine_by_flags(flags: Sequence[str]) -> str | None:
    """The engine that knows most of these flags, where one knows more of them than all others; None for no flags."""
    options = {word.partition("=")[0] for word in flags if word.startswith("-")}
    scores = sorted(
        (
            (sum(tables.catalog(name).union.exact(option) is not None for option in options), name)
            for name in registry.names()
        ),
        reverse=True,
    )
    best, second = scores[0], scores[1]
    return best[1] if best[0] > second[0] else None


def flags_table(engine_name: str, version: str | None) -> list[FlagSpec]:
    """The built-in rows for a version (None: the newest known), by name. Raises UsageError for an unknown engine."""
    registry.engine(engine_name)
    return sorted(tables.catalog(engine_name).at(version).rows, key=lambda row: row.flags[0].lstrip("-"))


def versions(engine_name: str) -> tuple[str, ...]:
    """The sampled versions, oldest first. Raises UsageError for an unknown engine."""
    registry.engine(engine_name)
    return tables.catalog(engine_name).versions

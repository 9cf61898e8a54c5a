"""Release numbers compared, with "unknown" as an answer of its own (see `engines.version` for the parsing)."""

from __future__ import annotations

from tokpit.engines.version import parse


def release(version: str | None) -> tuple[int, ...] | None:
    """The release numbers of a version (`0.5.11.post1+cu130`: 0, 5, 11); None where it has none or is unknown."""
    found = parse(version)
    return None if found is None else found.release


def since(version: str | None, first: str) -> bool | None:
    """Whether `version` is `first` or later; None where the version is unknown."""
    have, want = release(version), release(first)
    return None if have is None or want is None else have >= want


def between(version: str | None, first: str, last: str) -> bool | None:
    """Whether `first` <= `version` <= `last`, post releases of `last` included; None where the version is unknown."""
    have, low, high = release(version), release(first), release(last)
    return None if have is None or low is None or high is None else low <= have and have[: len(high)] <= high

"""Release numbers compared: only the leading numbers count (`0.5.11.post1+cu130` is 0.5.11)."""

from __future__ import annotations

import re


def release(version: str | None) -> tuple[int, ...] | None:
    """The leading numbers of a version; None where it has none or is unknown."""
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", version or "")
    return tuple(int(part) for part in match[1].split(".")) if match else None


def since(version: str | None, first: str) -> bool | None:
    """Whether `version` is `first` or later; None where the version is unknown."""
    have, want = release(version), release(first)
    return None if have is None or want is None else have >= want


def between(version: str | None, first: str, last: str) -> bool | None:
    """Whether `first` <= `version` <= `last`, post releases of `last` included; None where the version is unknown."""
    have, low, high = release(version), release(first), release(last)
    return None if have is None or low is None or high is None else low <= have and have[: len(high)] <= high

"""Engine versions as they are found in the field: releases, posts, candidates, nightlies, llama.cpp build numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

_PATTERN = re.compile(
    r"""(?ix) ^\s* [vb]? (?P<release>\d+(?:\.\d+)*)
    (?: [-_.]? (?P<pre>a|b|c|rc|alpha|beta|preview|pre) [-_.]? (?P<pre_n>\d*) )?
    (?: [-_.]? post [-_.]? (?P<post>\d*) | -(?P<implicit_post>\d+) )?
    (?: [-_.]? (?P<dev>dev) [-_.]? (?P<dev_n>\d*) )?
    (?: \+ (?P<local>[a-z0-9._-]+) )? (?:\s.*)? $"""
)
_PRE = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_LAST = 1 << 60


@total_ordering
@dataclass(frozen=True, eq=False)
class EngineVersion:
    """A parsed version; ordered as PEP 440 orders (dev < rc < release < post), the local part (`+cu129`) aside."""

    release: tuple[int, ...]
    pre: tuple[int, int] | None = None
    post: int | None = None
    dev: int | None = None
    local: str = ""

    def _key(self) -> tuple[tuple[int, ...], tuple[int, int], int, int]:
        release = self.release
        while len(release) > 1 and release[-1] == 0:
            release = release[:-1]
        if self.pre is not None:
            pre = self.pre
        elif self.dev is not None and self.post is None:
            pre = (-1, 0)  # a development build of a release comes before its candidates
        else:
            pre = (_LAST, 0)
        return release, pre, -1 if self.post is None else self.post, _LAST if self.dev is None else self.dev

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EngineVersion) and self._key() == other._key()

    def __lt__(self, other: EngineVersion) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def target(self) -> EngineVersion:
        """The release that this build leads to: `0.11.2.dev3+gabc` -> `0.11.2`. Its flags are the closest known."""
        return EngineVersion(self.release, post=self.post)


def parse(text: str | None) -> EngineVersion | None:
    """The version in `text` (`0.5.11`, `v0.11.2.dev3+gabc`, `0.4.6.post5`, `b10434`), or None where there is none."""
    found = _PATTERN.match(text or "")
    if found is None:
        return None
    post = found["post"] if found["post"] is not None else found["implicit_post"]
    return EngineVersion(
        release=tuple(int(part) for part in found["release"].split(".")),
        pre=None if found["pre"] is None else (_PRE[found["pre"].lower()], int(found["pre_n"] or 0)),
        post=None if post is None else int(post or 0),
        dev=None if found["dev"] is None else int(found["dev_n"] or 0),
        local=found["local"] or "",
    )


def compare(left: str, right: str) -> int:
    """-1, 0 or 1. A text that is no version sorts before all versions."""
    a, b = parse(left), parse(right)
    if a is None or b is None:
        return (a is not None) - (b is not None)
    return (a > b) - (a < b)


def at_least(version: str | None, minimum: str) -> bool:
    """Whether a build behaves as `minimum` or later. Nightlies count as the release they lead to; unknown: newest."""
    found, least = parse(version), parse(minimum)
    if found is None or least is None:
        return True
    return found.target() >= least

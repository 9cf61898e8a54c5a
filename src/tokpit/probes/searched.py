"""What a host is searched for: words, programs and packages of the engines, told by who knows them."""

from __future__ import annotations

import re
import shlex

import msgspec


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """All engines together. Patterns are POSIX extended regular expressions without quotes, unless said otherwise."""

    words: tuple[str, ...]
    """One is in every unit, history line and container of an engine, in any case."""
    launches: tuple[str, ...]
    """Command lines that start one, as they stand in scripts."""
    echoes: tuple[str, ...]
    """What is in log lines that print settings or a version; plain texts."""
    distributions: tuple[tuple[str, str], ...]
    """Engine, and (as Python's pattern) the normalised names of the distributions that are it."""
    metadata: tuple[str, ...]
    """How the folders of these distributions begin: shell patterns before `.dist-info`."""
    companions: tuple[str, ...]
    """Likewise for distributions that are told beside them."""
    binaries: tuple[str, ...]
    """File names of engines that are built."""
    images: tuple[str, ...]
    """Words in the names of images, in any case."""
    model_folders: tuple[str, ...] = ()
    env_prefixes: tuple[str, ...] = ()

    def engine_of(self, distribution: str) -> str | None:
        """The engine that a distribution is, None for all others."""
        for engine, pattern in self.distributions:
            if pattern and re.fullmatch(pattern, re.sub(r"[-_.]+", "-", distribution).lower()):
                return engine
        return None


def either(patterns: tuple[str, ...]) -> str:
    """One extended regular expression for all of them."""
    return "|".join(patterns)


def metadata_words(patterns: tuple[str, ...], folder: str) -> str:
    """Shell words for the metadata folders in the folder that a shell variable names."""
    return " ".join(f'"${folder}"/{pattern}.dist-info' for pattern in dict.fromkeys(patterns))


def find_names(names: tuple[str, ...]) -> str:
    """Alternatives of find(1) for files of these names."""
    return " ".join(f"-o -name {shlex.quote(name)} -type f" for name in names)

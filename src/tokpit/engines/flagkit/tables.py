"""Flag tables a version: built from the packed data of an engine, or from a schema read on a host."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources

from tokpit.engines import version as versions
from tokpit.engines.base import FlagSpec
from tokpit.engines.flagkit.kinds import kind_of


class FlagTable:
    """The flags of one version, by option string. Looks up exact names and, as argparse does, unambiguous prefixes."""

    def __init__(self, rows: Iterable[FlagSpec]) -> None:
        self.rows = tuple(rows)
        self.positionals = tuple(row for row in self.rows if not row.flags[0].startswith("-"))
        self.options: dict[str, FlagSpec] = {
            option: row for row in self.rows for option in row.flags if option.startswith("-")
        }

    def exact(self, option: str) -> FlagSpec | None:
        """The flag with this option string."""
        return self.options.get(option)

    def prefixed(self, prefix: str) -> list[str]:
        """Option strings that begin with `prefix`."""
        return [option for option in self.options if option.startswith(prefix)]


class Pick(FlagTable):
    """A table chosen for a version; `sampled` is the version whose table it is, `certain` whether it is that very one.

    A version is certain if its table was read from that release; between and beyond the sampled releases the nearest
    one at or below stands in (at the lower end: the oldest), and development builds count as the release they lead to.
    """

    def __init__(self, rows: Iterable[FlagSpec], sampled: str, *, certain: bool, wanted: str | None) -> None:
        super().__init__(rows)
        self.sampled = sampled
        self.certain = certain
        self.wanted = wanted


class Catalog:
    """All sampled versions of one engine's flags."""

    def __init__(self, names: Sequence[str], runs: Sequence[Sequence[tuple[int, int, FlagSpec]]]) -> None:
        self.versions = tuple(names)
        self._runs = runs
        self._picks: dict[int, tuple[FlagSpec, ...]] = {}
        self._union: FlagTable | None = None

    def at(self, version: str | None) -> Pick:
        """The table for a version; None or a text that is no version: the newest."""
        index, certain = self._index(version)
        return self._pick(index, certain=certain, wanted=version)

    def above(self, version: str | None) -> Pick | None:
        """The table of the first sampled release above a version; None beyond the newest, or where it is unknown."""
        wanted = versions.parse(version)
        for index, name in enumerate(self.versions):
            sample = versions.parse(name)
            if wanted is not None and sample is not None and sample > wanted:
                return self._pick(index, certain=False, wanted=version)
        return None

    def _pick(self, index: int, *, certain: bool, wanted: str | None) -> Pick:
        if index not in self._picks:
            self._picks[index] = tuple(
                spec for runs in self._runs for first, last, spec in runs if first <= index <= last
            )
        return Pick(self._picks[index], self.versions[index], certain=certain, wanted=wanted)

    def _index(self, version: str | None) -> tuple[int, bool]:
        wanted = versions.parse(version)
        if wanted is None:
            return len(self.versions) - 1, False
        target = wanted.target()
        index, certain = 0, False
        for position, name in enumerate(self.versions):
            sample = versions.parse(name)
            if sample is not None and sample <= target:
                index, certain = position, sample == wanted
        return index, certain

    @property
    def union(self) -> FlagTable:
        """Every flag that any sampled version has, each as the newest such version has it."""
        if self._union is None:
            newest_first = sorted((runs[-1] for runs in self._runs), key=lambda run: -run[1])
            table = FlagTable(spec for _, _, spec in newest_first)
            for runs in self._runs:
                for _, _, spec in reversed(runs):
                    for option in spec.flags:
                        if option.startswith("-"):
                            table.options.setdefault(option, spec)
            for _, _, spec in reversed(newest_first):
                table.options.update({option: spec for option in spec.flags if option.startswith("-")})
            self._union = table
        return self._union

    def seen(self, option: str) -> tuple[str, ...]:
        """The sampled versions that have this option string, oldest first."""
        indexes = {
            index
            for runs in self._runs
            for first, last, spec in runs
            if option in spec.flags
            for index in range(first, last + 1)
        }
        return tuple(self.versions[index] for index in sorted(indexes))

    def last_spec(self, option: str) -> FlagSpec | None:
        """The flag as the newest version that has this option string declares it."""
        return self.union.exact(option)

    def span(self, *options: str) -> str:
        """Which sampled versions have one of the options, in words: `0.5.2 and later`, `0.5.7 to 0.5.19`, `none`."""
        seen = sorted({self.versions.index(name) for option in options for name in self.seen(option)})
        if not seen:
            return "no known version"
        first, last = self.versions[seen[0]], self.versions[seen[-1]]
        if seen[-1] == len(self.versions) - 1:
            return f"{first} and later"
        return f"{first} to {last}" if first != last else first


def unpack(text: str) -> Catalog:
    """A catalog from packed data: `{"versions": [...], "flags": [[[first, last, changed attributes], ...], ...]}`."""
    data = json.loads(text)
    runs = []
    for packed in data["flags"]:
        attributes: dict[str, object] = {}
        out = []
        for first, last, change in packed:
            attributes = {**attributes, **change}
            out.append((first, last, spec_of(attributes)))
        runs.append(out)
    return Catalog(data["versions"], runs)


def spec_of(row: Mapping[str, object]) -> FlagSpec:
    """One schema row as a FlagSpec, its declared type as a kind. Unknown shapes degrade to text flags."""
    flags, choices, nargs = row.get("flags"), row.get("choices"), row.get("nargs")
    names = tuple(str(flag) for flag in flags) if isinstance(flags, (list, tuple)) else ()
    nargs = nargs if isinstance(nargs, (str, int)) else None
    declared = row.get("type")
    return FlagSpec(
        flags=names or ("?",),
        dest=str(row.get("dest") or ""),
        type=kind_of(declared if isinstance(declared, str) else None, nargs),
        default=row.get("default"),
        choices=tuple(choices) if isinstance(choices, (list, tuple)) else None,
        nargs=nargs,
        hidden=bool(row.get("hidden")),
    )


@cache
def catalog(engine: str) -> Catalog:
    """The built-in catalog of an engine, read once from its package data."""
    data = resources.files(f"tokpit.engines.{engine}").joinpath("flags.json")
    return unpack(data.read_text(encoding="utf-8"))

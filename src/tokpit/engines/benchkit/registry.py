"""The readers of other tools' results: those of the engines' own benchmarks, and one line each for the others."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import cast

from tokpit.engines.benchkit.aiperf import AiperfReader
from tokpit.engines.benchkit.base import Page, Reading, ResultReader
from tokpit.engines.benchkit.guidellm import GuideReader
from tokpit.engines.registry import names

_OTHERS: tuple[ResultReader, ...] = (GuideReader(), AiperfReader())


def readers() -> tuple[ResultReader, ...]:
    """Every reader; an engine's is `RESULTS` in the module `bench` of its folder, where it has a benchmark."""
    modules = [f"tokpit.engines.{name}.bench" for name in names()]
    own = [cast(ResultReader, import_module(name).RESULTS) for name in modules if find_spec(name) is not None]
    return (*own, *_OTHERS)


def read(page: Page) -> tuple[Reading, ...] | None:
    """The levels of a document; None where no tool known here wrote it. Raises ValueError with what is missing."""
    for reader in readers():
        found = reader.read(page)
        if found is not None:
            return tuple(found)
    return None

"""Levels of a sweep as rows of columns: as many columns as fit, each whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokpit.domain.run import Level
from tokpit.ui import figures
from tokpit.ui.levels import quantile, stream_rate
from tokpit.ui.text import crop


@dataclass(frozen=True)
class Column:
    """`rank` decides who stays in a narrow terminal; `extra` is left out where no level has it."""

    name: str
    width: int
    say: Callable[[Level], str]
    rank: int = 0
    extra: bool = False


def _late(dist: str, name: str) -> Callable[[Level], str]:
    return lambda level: figures.seconds(quantile(level, dist, name))


COLUMNS = (
    Column("C", 4, lambda level: str(level.concurrency)),
    Column("ok", 5, lambda level: str(level.ok)),
    Column("err", 4, lambda level: str(level.err)),
    Column("tok/s", 8, lambda level: figures.fixed(level.output_tps)),
    Column("steady", 8, lambda level: figures.fixed(level.steady_tps)),
    Column("a stream", 9, lambda level: figures.fixed(stream_rate(level)), 5),
    Column("avg out", 8, lambda level: figures.fixed(level.avg_output, 0), 4),
    Column("elapsed", 8, lambda level: f"{level.elapsed_s:.1f} s", 3),
    Column("TTFT p50", 9, lambda level: figures.seconds(level.ttft_p50_s), 1),
    Column("TTFT p99", 9, _late("ttft_s", "p99"), 5, extra=True),
    Column("TPOT p50", 9, _late("tpot_s", "p50"), 5, extra=True),
    Column("E2E p50", 9, lambda level: figures.seconds(level.e2e_p50_s), 2),
    Column("E2E p99", 9, _late("e2e_s", "p99"), 6, extra=True),
)
"""The first four are also those of the level under way. Rates in tok/s, lengths in tokens."""
SIGN = 8
"""Cells kept for what stands behind a row."""


def columns_for(width: int, levels: Sequence[Level] = ()) -> tuple[Column, ...]:
    """The columns that fit into that many cells, in table order."""
    offered = [c for c in COLUMNS if not c.extra or any(c.say(level) != figures.NA for level in levels)]
    kept: list[Column] = []
    left = width - SIGN
    for column in sorted(offered, key=lambda c: c.rank):
        if column.width + 1 <= left or column.rank == 0:
            kept.append(column)
            left -= column.width + 1
    return tuple(column for column in offered if column in kept)


def head_text(columns: Sequence[Column]) -> str:
    """The names."""
    return " ".join(column.name.rjust(column.width) for column in columns)


def level_text(level: Level, columns: Sequence[Column]) -> str:
    """A finished level as columns."""
    return " ".join(crop(column.say(level), column.width).rjust(column.width) for column in columns)

"""How a log's figures went, thinned to what a chart can show."""

from __future__ import annotations

from collections.abc import Callable

from tokpit.insight.digest import Digest, Row

POINTS = 300
Series = dict[str, tuple[tuple[float, float], ...]]
_FIGURES: tuple[tuple[str, Callable[[Row], float | None]], ...] = (
    ("gen_tps", lambda row: None if row.gated else row.gen_tps),
    ("running", lambda row: row.running),
    ("queued", lambda row: row.queued),
    ("kv", lambda row: row.kv),
    ("state_usage", lambda row: row.state_usage),
    ("accept_len", lambda row: row.accept_len),
)


def series_of(log: Digest) -> Series:
    """(seconds since the log's first stamped row, value) of each figure that it has, at most POINTS and a few each.

    Of each stretch the least and the greatest value are kept, in their order, so that no peak is lost.
    """
    rows = [row for row in log.rows if row.t is not None and not row.probe]
    if not rows:
        return {}
    start = min(row.t or 0.0 for row in rows)
    found: Series = {}
    for name, value in _FIGURES:
        points = [((row.t or 0.0) - start, y) for row in rows if (y := value(row)) is not None]
        if len(points) > 1:
            found[name] = tuple(_thinned(points))
    return found


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= POINTS:
        return points
    kept = []
    each = 2 * len(points) / POINTS
    for n in range(POINTS // 2):
        part = points[int(n * each) : int((n + 1) * each)]
        if part:
            kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return kept

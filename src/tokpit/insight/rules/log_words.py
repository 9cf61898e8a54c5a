"""Rows of a log in words, for evidence."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.insight.digest import Digest, Row
from tokpit.insight.words import num, percent


def told(log: Digest, row: Row) -> str:
    """`line 3: 9 running, 23 queued, KV 15%, 402 tok/s`."""
    parts = []
    if row.running is not None:
        parts.append(f"{num(row.running)} running")
    if row.queued is not None:
        parts.append(f"{num(row.queued)} queued")
    if row.kv is not None:
        parts.append(f"KV {percent(row.kv)}")
    if row.state_usage is not None:
        parts.append(f"state slots {percent(row.state_usage)}")
    if row.accept_len is not None:
        parts.append(f"acceptance length {num(row.accept_len)}")
    if row.accept_rate is not None:
        parts.append(f"rate {num(row.accept_rate)}")
    if row.gen_tps is not None:
        parts.append(f"{num(row.gen_tps)} tok/s")
    return f"{place(log, row.line)}: {', '.join(parts)}"


def place(log: Digest, line: int) -> str:
    """`server.log line 3`."""
    return f"{log.name} line {line}" if log.name else f"line {line}"


def some(log: Digest, rows: Sequence[Row], most: int = 3) -> tuple[str, ...]:
    """The first, middle and last of the rows in words."""
    if len(rows) <= most:
        return tuple(told(log, row) for row in rows)
    return tuple(told(log, row) for row in (rows[0], rows[len(rows) // 2], rows[-1]))


def span(rows: Sequence[Row]) -> float | None:
    """Seconds from the first to the last row."""
    times = [row.t for row in rows if row.t is not None]
    return max(times) - min(times) if len(times) > 1 else None

"""What a reader of another tool's results gives, and how their figures become a level.

Pure: a parsed document in, levels out. Durations of a level are in seconds, whatever the tool prints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from tokpit.domain.run import Level
from tokpit.domain.text import sanitize

MAX_ROWS = 2000
Page = Mapping[str, Any]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One measured level of another tool, with what it says of itself."""

    tool: str
    level: Level
    model: str = ""
    engine: str = ""
    """Registered name; empty: the tool does not know which engine answered."""
    version: str = ""
    """Of the tool."""
    started_at: float | None = None
    plan: dict[str, Any] = {}
    """Workload in tokpit's words (`max_tokens`, `dataset`, `temperature`), as far as the file tells it."""


class ResultReader(Protocol):
    """One tool's format."""

    tool: str

    def read(self, page: Page) -> Sequence[Reading] | None:
        """The levels of a document; None where this tool did not write it. Raises ValueError with what is missing."""
        ...


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def need(page: Page, name: str) -> float:
    """A number that must be there. Raises ValueError."""
    value = number(page.get(name))
    if value is None:
        raise ValueError(f"{name} is missing or no number")
    return value


def word(value: object) -> str:
    """A text out of a file, safe to print; empty for anything else."""
    return sanitize(value)[:300] if isinstance(value, str) else ""


def dist_in_ms(page: Page, name: str, n: int) -> dict[str, Any] | None:
    """A distribution from milliseconds, under the keys of the engines' own clients: `median_ttft_ms`, `p99_ttft_ms`."""
    keys = {"mean": f"mean_{name}_ms", "sd": f"std_{name}_ms", "p50": f"median_{name}_ms"}
    keys |= {f"p{p}": f"p{p}_{name}_ms" for p in (90, 95, 99)}
    return spread({figure: number(page.get(key)) for figure, key in keys.items()}, n, scale=1e-3)


def per_request(page: Page) -> tuple[list[Any], list[Any], list[Any], list[int]] | None:
    """Their single requests: TTFT s, gaps s and output tokens of each, and which have no error; None: not kept."""
    ttfts, gaps, lengths = (page.get(name) for name in ("ttfts", "itls", "output_lens"))
    if not (isinstance(ttfts, list) and isinstance(gaps, list) and isinstance(lengths, list)):
        return None
    errors = page.get("errors") or []
    good = [i for i in range(min(len(ttfts), len(gaps), len(lengths))) if not (i < len(errors) and errors[i])]
    return ttfts, gaps, lengths, good


def spread(values: Mapping[str, float | None], n: int, *, scale: float = 1.0) -> dict[str, Any] | None:
    """A distribution in seconds as tokpit stores it; None without a median. A percentile that is missing is the next
    one below that is known, and named in `thin`, so that nobody takes it for measured.
    """
    if values.get("p50") is None or n <= 0:
        return None
    found: dict[str, Any] = {"n": n}
    thin = [name for name, tail in (("p90", 0.1), ("p95", 0.05), ("p99", 0.01)) if n * tail < 1 - 1e-9]
    last = values["p50"] or 0.0
    for name in ("p50", "p90", "p95", "p99"):
        value = values.get(name)
        if value is None and name not in thin:
            thin.append(name)
        last = value if value is not None else last
        found[name] = last * scale
    for name, other in (("mean", "p50"), ("sd", None), ("min", "p50"), ("max", "p99")):
        value = values.get(name)
        found[name] = value * scale if value is not None else found[other] if other is not None else 0.0
    return {**found, "thin": thin}


def rows_of(
    starts: Iterable[float | None], ttfts: Iterable[float | None], totals: Iterable[float | None], tokens: Iterable[int]
) -> list[list[Any]]:
    """Per request: sent at s, TTFT s, E2E s, output tokens, `ok`; at most MAX_ROWS."""
    rows = [
        [start or 0.0, ttft, total, count, "ok"]
        for start, ttft, total, count in zip(starts, ttfts, totals, tokens, strict=False)
        if ttft is not None and total is not None
    ]
    return rows[:MAX_ROWS]


def level(
    *,
    concurrency: float | None,
    rate: float | None,
    ok: int,
    err: int,
    elapsed_s: float,
    output_tokens: float,
    output_tps: float | None = None,
    prompt_tokens: float | None = None,
    ttft: dict[str, Any] | None = None,
    tpot: dict[str, Any] | None = None,
    e2e: dict[str, Any] | None = None,
    **more: Any,
) -> Level:
    """A level from a foreign summary; `rate` for an open loop (offered requests/s), else `concurrency`."""
    tps = output_tps if output_tps is not None else output_tokens / elapsed_s if elapsed_s > 0 else 0.0
    label = (
        f"C={concurrency:g}"
        if rate is None and concurrency is not None
        else f"{rate:g} req/s"
        if rate
        else "all at once"
    )
    result: dict[str, Any] = {
        "label": label,
        "rate": rate,
        "ttft_s": ttft,
        "tpot_s": tpot,
        "e2e_s": e2e,
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "steady_note": "the tool gives whole-run figures only",
        **more,
    }
    return Level(
        concurrency=max(1, round(concurrency or 1)),
        requests=ok + err,
        ok=ok,
        err=err,
        elapsed_s=elapsed_s,
        output_tps=tps,
        avg_output=output_tokens / ok if ok else 0.0,
        ttft_p50_s=ttft["p50"] if ttft else None,
        e2e_p50_s=e2e["p50"] if e2e else None,
        result={name: value for name, value in result.items() if value is not None},
    )

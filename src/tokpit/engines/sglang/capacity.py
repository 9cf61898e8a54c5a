"""What an SGLang server can hold: state slots, running cap, host cache. Pure arithmetic.

Formulas from the engine's source: `_calculate_mamba_ratio` and `_resolve_max_num_reqs` of
`model_runner_kv_cache_mixin.py` (0.5.11), `resolve_max_num_reqs` of `mem_cache/kv_cache_configurator.py` (0.5.23),
`hybrid_pool_assembler.py` (0.5.11) and `_split_hicache_size` (0.5.17).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from tokpit.engines.verdictkit.versions import between, since

HICACHE_RESERVE_BYTES = 10 * 2**30
"""Host memory that SGLang leaves alone when it allocates a host cache."""

SPEC_DEFAULT_MAX_RUNNING = 48
"""`max_running_requests` that speculation sets where none was given (since 0.5.4)."""


def resolved_strategy(strategy: str | None, version: str | None, *, overlap: bool = True) -> str | None:
    """The state strategy that `auto` (or none given) stands for; None where the version decides and is unknown.

    `auto` is `no_buffer` up to 0.5.13; later `extra_buffer` where the overlap scheduler is on, else `no_buffer`.
    """
    if strategy not in (None, "auto"):
        return strategy
    later = since(version, "0.5.14")
    if later is None:
        return None
    return "extra_buffer" if later and overlap else "no_buffer"


def overlap_on(
    version: str | None,
    *,
    disabled: bool = False,
    speculates: bool = False,
    topk: int | None = None,
    spec_v2: bool | None = None,
) -> bool:
    """Whether the overlap scheduler runs. Without speculation: unless disabled.

    With speculation it needs the second engine: not before 0.5.5; 0.5.5 to 0.5.10 only with SGLANG_ENABLE_SPEC_V2
    (`spec_v2`); 0.5.11 to 0.5.13 unless that is switched off or top-k is above 1; always from 0.5.14 on.
    """
    if disabled:
        return False
    if not speculates or since(version, "0.5.14") is not False:
        return True
    if since(version, "0.5.11"):
        return spec_v2 is not False and (topk or 1) <= 1
    return bool(since(version, "0.5.5")) and spec_v2 is True


def slots_per_request(
    strategy: str | None, version: str | None = None, *, prefix_cache: bool = True, overlap: bool = True
) -> int | None:
    """State slots that one running request reserves on a hybrid (mamba, GDN) model.

    1 without the radix cache; 3 with `no_buffer`; 4 with `extra_buffer` without the overlap scheduler, or with
    `extra_buffer_lazy`; 5 with `extra_buffer` and the overlap scheduler. None where the strategy is not known.
    """
    if not prefix_cache:
        return 1
    match resolved_strategy(strategy, version, overlap=overlap):
        case "no_buffer":
            return 3
        case "extra_buffer":
            return 5 if overlap else 4
        case "extra_buffer_lazy":
            return 4
        case _:
            return None


def slot_choices() -> tuple[int, ...]:
    """State slots that a request may reserve, by strategy and scheduler."""
    found = {slots_per_request("no_buffer", prefix_cache=False)}
    for strategy in ("no_buffer", "extra_buffer", "extra_buffer_lazy"):
        found |= {slots_per_request(strategy, overlap=overlap) for overlap in (True, False)}
    return tuple(sorted(n for n in found if n is not None))


def running_cap(
    *,
    configured: int | None = None,
    state_slots: int | None = None,
    per_request: int | None = None,
    kv_tokens: int | None = None,
    tokens_per_request: int | None = None,
) -> tuple[int | None, str]:
    """Most requests that can run at once, and what sets it: `configured`, `state slots`, `kv tokens` or `unknown`.

    min(configured, kv_tokens // tokens_per_request, state_slots // per_request) over what is known. The host cache is
    in none of the terms: it holds cached states and KV, never running ones.
    """
    terms: list[tuple[int, str]] = []
    if configured is not None:
        terms.append((configured, "configured"))
    if kv_tokens is not None and tokens_per_request:
        terms.append((kv_tokens // tokens_per_request, "kv tokens"))
    if state_slots is not None and per_request:
        terms.append((state_slots // per_request, "state slots"))
    return min(terms, key=lambda term: term[0]) if terms else (None, "unknown")


def hicache_pools(hybrid: bool | None, version: str | None) -> int:
    """How often `--hicache-size` is allocated on each rank: twice on hybrid models of releases 0.5.10 to 0.5.16.

    From 0.5.17 on the size is split over the pools. Unknown version: 2 on a hybrid model, the worse case.
    """
    if not hybrid:
        return 1
    return 1 if between(version, "0.5.10", "0.5.16") is False else 2


def hicache_host_bytes(
    size_gb: float, *, ranks: int = 1, hybrid: bool | None = False, version: str | None = None
) -> int:
    """Host memory that the host cache takes: size x 1e9 bytes x pools x ranks on the host, without the reserve."""
    return round(size_gb * 1e9) * hicache_pools(hybrid, version) * ranks


def largest_hicache_gb(
    available_bytes: int, *, ranks: int = 1, hybrid: bool | None = False, version: str | None = None
) -> int:
    """The largest whole `--hicache-size` (GB per rank) that fits beside the reserve; 0 where none does."""
    usable = available_bytes - HICACHE_RESERVE_BYTES
    return max(0, int(usable // (hicache_pools(hybrid, version) * ranks * 10**9)))


_ALLOCATED = re.compile(
    r"Allocating (?:\S+ )*?(?P<gb>[\d.]+) GB host memory for hierarchical|"
    r"Allocating .*?hierarchical .*?KV host pool: .*?(?P<gb2>[\d.]+) GB host memory"
)


def hicache_allocated_gb(lines: Iterable[str]) -> tuple[float, int]:
    """Host memory that a server's log says it took for the host cache: GB in all, and the number of pools."""
    sizes = [float(m["gb"] or m["gb2"]) for line in lines if (m := _ALLOCATED.search(line))]
    return round(sum(sizes), 2), len(sizes)


def smallest_track_interval(draft_tokens: int, page_size: int = 1) -> int:
    """The smallest legal `--mamba-track-interval`: a multiple of the page size that is >= the draft tokens."""
    page = max(1, page_size)
    return max(1, math.ceil(draft_tokens / page)) * page


def draft_tokens_of(steps: int | None, topk: int | None, given: int | None) -> int | None:
    """Draft tokens that the engine really uses: with topk 1 always steps + 1, whatever was given."""
    if topk in (None, 1) and steps is not None:
        return steps + 1
    return given

"""What a log of a working SGLang server says that is worth knowing: host memory taken in all, by rank and pool."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.records import LogRecord
from tokpit.domain.verdict import Verdict

_POOLS = {"milestone.hicache_kv": "KV", "milestone.hicache_mamba": "state"}


def host_cache(records: Sequence[LogRecord]) -> list[Verdict]:
    """The sum of all host-cache pools of the last start, where there is more than one; empty otherwise."""
    pools: dict[tuple[str, object], tuple[float, LogRecord]] = {}
    for record in records:
        if record.kind == "milestone.args":
            pools.clear()
        size = record.fields.get("host_gb")
        if record.kind in _POOLS and isinstance(size, int | float):
            rank = tuple(record.fields.get(name) for name in ("dp_rank", "pp_rank", "tp_rank", "attn_cp_rank"))
            pools[(record.kind, rank)] = (float(size), record)
    if len(pools) < 2:
        return []
    ranks = len({rank for _, rank in pools})
    kinds = {kind for kind, _ in pools}
    sizes = [size for size, _ in pools.values()]
    total = round(sum(sizes), 2)
    doubled = len(kinds) > 1
    each = " + ".join(f"{size:.2f}" for size in sizes) if len(set(sizes)) > 1 else f"{len(sizes)} x {sizes[0]:.2f}"
    of = [*(["KV and state pools"] if doubled else []), *([f"{ranks} ranks"] if ranks > 1 else [])]
    return [
        Verdict(
            code="HICACHE_DOUBLED_ON_HYBRID" if doubled else "HICACHE_PER_RANK",
            phase="memory",
            sentence=f"The host cache takes {total:.2f} GB of host memory in all ({', '.join(of)}).",
            arithmetic=f"{each} = {total:.2f} GB",
            next_action="Compare this sum + 10 GB of reserve with MemAvailable and the cgroup limit, not with the size "
            "on the command line.",
            evidence=tuple(record.text[:200] for _, record in pools.values())[:4],
            lines=tuple(record.line for _, record in pools.values()),
            figures={"total_gb": total, "pools": len(pools), "ranks": ranks},
            fatal=False,
        )
    ]

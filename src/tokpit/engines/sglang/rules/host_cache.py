"""Rules of the hierarchical cache (hicache): host memory asked for, and what it does not go with."""

from __future__ import annotations

import math

from tokpit.domain.verdict import RuleAnswer
from tokpit.engines.sglang.capacity import (
    HICACHE_RESERVE_BYTES,
    hicache_host_bytes,
    hicache_pools,
    largest_hicache_gb,
)
from tokpit.engines.verdictkit.ask import Ask, Rule, answer, fix, gb

_OFF = fix("hicache off", hicache=False, hicache_gb=None, hicache_ratio=None)


def on(ask: Ask) -> bool:
    """Whether a host cache is asked for: a size or ratio stands for the switch."""
    s = ask.settings
    return s.hicache is True or (s.hicache is None and bool(s.hicache_gb or s.hicache_ratio))


def ranks_here(ask: Ask) -> int:
    """Ranks on this host, each with host pools of its own: tp x pp (x dp without DP attention) / nodes."""
    s = ask.settings
    dp = 1 if ask.flag("--enable-dp-attention") is not None else (s.dp or 1)
    return -(-(s.tp or 1) * (s.pp or 1) * dp // max(1, ask.flag_int("--nnodes") or 1))


def needs_radix_cache(ask: Ask) -> RuleAnswer | None:
    """The host cache is a tier of the radix cache."""
    if not on(ask) or ask.settings.prefix_cache is not False:
        return None
    return answer(
        "FLAG_CONFLICT",
        "error",
        "The host cache is a tier of the radix cache, which is switched off: SGLang refuses to start.",
        fixes=(fix("radix cache on", prefix_cache=None), _OFF),
    )


def size_is_whole(ask: Ask) -> RuleAnswer | None:
    """--hicache-size takes whole GB."""
    size = ask.settings.hicache_gb
    if size is None or (float(size).is_integer() and size >= 0):
        return None
    whole = max(1, math.floor(size))
    return answer(
        "FLAG_BAD_VALUE",
        "error",
        f"SGLang takes whole GB for the host cache, not {size:g}.",
        fixes=(fix(f"{whole} GB", hicache_gb=whole),),
    )


def host_memory(ask: Ask) -> RuleAnswer | None:
    """size x ranks x pools + reserve against MemAvailable and the cgroup limit."""
    size = ask.settings.hicache_gb
    if not on(ask) or not size:
        return None
    ranks, pools = ranks_here(ask), hicache_pools(ask.hybrid, ask.version)
    total = hicache_host_bytes(size, ranks=ranks, hybrid=ask.hybrid, version=ask.version)
    available = ask.memory_bytes
    short = available is not None and total + HICACHE_RESERVE_BYTES > available
    if ranks == 1 and pools == 1 and not short:
        return None
    code = "HICACHE_DOUBLED_ON_HYBRID" if pools == 2 else "HICACHE_PER_RANK" if ranks > 1 else "HOST_MEM_RESERVE"
    parts = [
        f"{size:g} GB",
        *([f"{pools} pools (KV and state)"] if pools > 1 else []),
        *([f"{ranks} ranks"] if ranks > 1 else []),
    ]
    sums = " x ".join(parts) + (f" = {gb(total)}" if len(parts) > 1 else "")
    sums += f"; + {HICACHE_RESERVE_BYTES / 2**30:.0f} GiB reserve = {gb(total + HICACHE_RESERVE_BYTES)}"
    if available is None:
        return answer(code, "warning", f"The host cache will take {gb(total)} of host memory, not {size:g} GB.", sums)
    which = "cgroup limit" if available == ask.host.cgroup_limit_bytes else "MemAvailable"
    sums += f" {'>' if short else '<='} {gb(available)} {which}"
    if not short:
        return answer(
            code, "info", f"The host cache will take {gb(total)} of host memory; {gb(available)} are available.", sums
        )
    most = largest_hicache_gb(available, ranks=ranks, hybrid=ask.hybrid, version=ask.version)
    return answer(
        code,
        "error",
        f"The host cache will take {gb(total)} and a reserve of 10 GiB; only {gb(available)} are available.",
        sums + f"; largest size that fits: {most} GB",
        (fix(f"hicache {most} GB", hicache_gb=most),) if most > 0 else (_OFF,),
    )


def ratio_above_one(ask: Ask) -> RuleAnswer | None:
    """Up to 0.5.14 the host pool must be larger than the device pool."""
    ratio = ask.settings.hicache_ratio
    if not on(ask) or ask.settings.hicache_gb or ratio is None or ratio > 1 or ask.since("0.5.15"):
        return None
    return answer(
        "HICACHE_TOO_SMALL",
        "error",
        "Up to SGLang 0.5.14 the host cache must be larger than the device pool.",
        f"ratio {ratio:g} <= 1",
        (fix("ratio 2", hicache_ratio=2.0),),
    )


def speculation_on_hybrid(ask: Ask) -> RuleAnswer | None:
    """0.5.5 to 0.5.13: kernel I/O may switch the decode backend, and the mixed backend then dies under speculation."""
    if not on(ask) or not ask.speculates or not ask.hybrid:
        return None
    if ask.settings.hicache_io_backend == "direct" or ask.between("0.5.5", "0.5.13") is not True:
        return None
    return answer(
        "KNOWN_BUG_HICACHE_MTP",
        "warning",
        f"SGLang {ask.version} may switch the decode attention backend for the host cache, and then dies on the first "
        "request under speculation on a hybrid model.",
        fixes=(fix("io backend direct", hicache_io_backend="direct"), _OFF),
    )


def supported_on_hybrid(ask: Ask) -> RuleAnswer | None:
    """Host tiers of recurrent state exist since 0.5.10."""
    if not on(ask) or not ask.hybrid or ask.since("0.5.10") is not False:
        return None
    return answer(
        "HICACHE_NO_STATE",
        "warning",
        f"SGLang {ask.version} has no host cache for recurrent state (0.5.10 brought it).",
        fixes=(_OFF,),
    )


def gpu_headroom(ask: Ask) -> RuleAnswer | None:
    """Transfer buffers need GPU memory that a very high memory fraction does not leave."""
    fraction = ask.settings.mem_fraction
    if not on(ask) or fraction is None or fraction < 0.93:
        return None
    lower = round(fraction - 0.04, 2)
    return answer(
        "OOM_HICACHE_HEADROOM",
        "warning",
        f"The host cache's transfer buffers need GPU memory; memory fraction {fraction:g} leaves little.",
        f"1 - {fraction:g} = {1 - fraction:.2f} of the GPU for graphs, activations and buffers",
        (fix(f"memory fraction {lower}", mem_fraction=lower),),
    )


RULES: tuple[Rule, ...] = (
    needs_radix_cache,
    size_is_whole,
    host_memory,
    ratio_above_one,
    speculation_on_hybrid,
    supported_on_hybrid,
    gpu_headroom,
)

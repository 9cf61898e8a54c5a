"""The host: memory of the host cache, swap, processes that are left over."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.words import num, percent


def host_cache(evidence: Evidence) -> Sequence[Finding]:
    """Host memory that the host cache takes by a log or by the engine's formula, against what there is."""
    f = evidence.facts
    total, pools = f.hicache_total_gb, f.hicache_pools or 1
    if any(answer.code.startswith(("HICACHE", "HOST_MEM")) for answer in evidence.answers):
        return ()  # the engine's own rule knows flags and version
    if not total:
        return ()
    limits = [
        (gb, name)
        for gb, name in (
            (f.mem_available_gb, "available"),
            (f.cgroup_limit_gb, "cgroup limit"),
            (f.mem_total_gb, "total"),
        )
        if gb
    ]
    reserve = f.hicache_reserve_gb or 0.0
    least = min(limits, default=None)
    short = least is not None and total + reserve > least[0]
    echoed = any(log.facts.hicache_gb for log in evidence.logs)
    ranks = f.hicache_ranks or 1
    multiplied = f.hicache_gb is not None and not echoed and total > 1.5 * f.hicache_gb
    if not short and not multiplied:
        return ()
    parts = [f"{num(total / pools / ranks, 4)} GB"]
    parts += [f"{pools} pools (KV and state)"] if pools > 1 else []
    parts += [f"{ranks} ranks"] if ranks > 1 else []
    sums = f"{' x '.join(parts)} = {num(total, 4)} GB" if len(parts) > 1 else f"{num(total, 4)} GB"
    sums += f" + {num(reserve)} GB reserve" if reserve else ""
    if least is not None:
        sums += f" {'>' if short else '<='} {num(least[0], 4)} GB ({least[1]})"
    many = f"{num(f.hicache_gb)} GB were asked for: " if f.hicache_gb else ""
    return (
        Finding(
            code="HICACHE_DOUBLED_ON_HYBRID" if pools > 1 else "HICACHE_PER_RANK" if ranks > 1 else "HOST_MEM_RESERVE",
            severity="warning" if short else "info",
            claim=f"The host cache takes {num(total, 4)} GB of host memory"
            + (f", and {num(least[0], 4)} GB are there ({least[1]})." if least is not None else "."),
            arithmetic=many + sums,
            next_action="Ask for a smaller --hicache-size: it is allocated once for each pool and rank.",
            figures={"total_gb": total},
        ),
    )


def swap(evidence: Evidence) -> Sequence[Finding]:
    """Memory that is being swapped while serving."""
    f = evidence.facts
    if not f.swap_in_mbps or f.swap_in_mbps < 1:
        return ()
    used = f", {num(f.swap_used_gb)} GB swapped out" if f.swap_used_gb else ""
    return (
        Finding(
            code="HOST_SWAPPING",
            severity="warning",
            claim=f"The host reads {num(f.swap_in_mbps)} MB/s back from swap{used}: tokenization and scheduling stall.",
            next_action="Make the host cache smaller or stop other programs; servers should not swap at all.",
        ),
    )


def orphans(evidence: Evidence) -> Sequence[Finding]:
    """Worker processes without a server that may hold GPU memory."""
    f = evidence.facts
    if not f.orphans:
        return ()
    holds = f" and hold {num(f.orphan_gpu_gb)} GB of GPU memory" if f.orphan_gpu_gb else ""
    return (
        Finding(
            code="ORPHAN_ENGINE",
            severity="warning",
            claim=f"{f.orphans} worker processes are left over from a server that is gone{holds}.",
            next_action="Check pid and start time, end exactly these, and wait until the GPU memory is back.",
        ),
    )


def cgroup(evidence: Evidence) -> Sequence[Finding]:
    """A memory limit of the container far below the host's memory, with a host cache asked for."""
    f = evidence.facts
    if not (f.cgroup_limit_gb and f.mem_total_gb and f.hicache_gb) or f.cgroup_limit_gb > 0.9 * f.mem_total_gb:
        return ()
    if f.hicache_gb < 0.5 * f.cgroup_limit_gb:
        return ()
    return (
        Finding(
            code="HOST_MEM_CGROUP",
            severity="warning",
            claim=f"The container may use {num(f.cgroup_limit_gb)} GB, not the host's {num(f.mem_total_gb)} GB: the "
            f"host "
            f"cache of {num(f.hicache_gb)} GB counts against it ({percent(f.hicache_gb / f.cgroup_limit_gb)}).",
            next_action="Size the host cache by the container's limit, or raise the limit.",
        ),
    )


def steal(evidence: Evidence) -> Sequence[Finding]:
    """Processor time that a virtual machine wanted and did not get."""
    share = _share(evidence.facts.cpu_steal)
    if share < 0.03:
        return ()
    return (
        Finding(
            code="CPU_STEAL",
            severity="warning",
            claim=f"The hypervisor took {percent(share)} of the processor time for others: launches, tokenization and "
            "scheduling wait for it, and so does a client on this host.",
            next_action="Measure on a machine of its own, or with dedicated cores; levels taken so are in doubt.",
            figures={"steal": share},
        ),
    )


def pressure(evidence: Evidence) -> Sequence[Finding]:
    """Tasks that stood still because memory had to be reclaimed first."""
    share = _share(evidence.facts.mem_pressure)
    if share < 0.05:
        return ()
    return (
        Finding(
            code="MEMORY_PRESSURE",
            severity="warning",
            claim=f"Something waited for memory in {percent(share)} of the last 10 s: pages are being reclaimed, and "
            "the server stalls with them.",
            next_action="Make the host cache smaller, raise the container's limit, or stop what else uses memory.",
            figures={"pressure": share},
        ),
    )


def numa(evidence: Evidence) -> Sequence[Finding]:
    """A server that runs on the processors of the other socket."""
    f = evidence.facts
    if f.gpu_numa is None or f.cpu_numa is None or f.gpu_numa == f.cpu_numa:
        return ()
    return (
        Finding(
            code="NUMA_REMOTE",
            severity="warning",
            claim=f"The server runs on NUMA node {f.cpu_numa}, its GPU hangs on node {f.gpu_numa}: copies to and from "
            "the GPU cross the link between the sockets.",
            confidence="likely",
            next_action=f"Start it with numactl --cpunodebind={f.gpu_numa} --membind={f.gpu_numa}; a host cache "
            "suffers most.",
        ),
    )


def _share(value: float | None) -> float:
    """A share that may have been given in percent."""
    return 0.0 if value is None else value / 100 if value > 1 else value

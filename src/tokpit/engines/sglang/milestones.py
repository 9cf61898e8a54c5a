"""SGLang's start in order, as its log tells it. The last one is only a hint: see `stuck_hint` of `http_up`."""

from __future__ import annotations

from tokpit.engines.base import Milestone

MILESTONES: tuple[Milestone, ...] = (
    Milestone(
        kind="milestone.args",
        label="arguments resolved",
        phase="starting",
        usual_s=90,
        stuck_hint="imports from a slow disk, or a model folder on a network file system",
    ),
    Milestone(
        kind="milestone.dist_begin",
        label="joining the process group",
        phase="starting",
        usual_s=60,
        stuck_hint="NCCL rendezvous: wrong interface, a firewall, a missing node, or peer access blocked by IOMMU",
        joins=True,
    ),
    Milestone(
        kind="milestone.dist_end",
        label="process group ready",
        phase="starting",
        usual_s=60,
        stuck_hint="another rank has not come this far",
    ),
    Milestone(
        kind="milestone.load_begin",
        label="loading weights",
        phase="loading",
        usual_s=180,
        stuck_hint="weights come from a slow or network disk, or host memory is full and the kernel is reclaiming it",
    ),
    Milestone(
        kind="milestone.load_end",
        label="weights loaded",
        phase="loading",
        usual_s=120,
        stuck_hint="kernels are compiled (JIT) for the first time, or a slower rank still loads",
    ),
    Milestone(
        kind="milestone.hicache_kv",
        label="pinning host memory for KV",
        phase="loading",
        usual_s=120,
        stuck_hint="pinning host memory takes tens of seconds per 100 GB and rank; check free memory of the host",
    ),
    Milestone(
        kind="milestone.hicache_mamba",
        label="pinning host memory for state slots",
        phase="loading",
        usual_s=120,
        stuck_hint="pinning host memory takes tens of seconds per 100 GB and rank; check free memory of the host",
    ),
    Milestone(
        kind="milestone.mamba_pool",
        label="state slots allocated",
        phase="loading",
        usual_s=60,
        stuck_hint="a slower rank has not come this far",
    ),
    Milestone(
        kind="milestone.kv_pool",
        label="KV pool allocated",
        phase="loading",
        usual_s=60,
        stuck_hint="a slower rank has not come this far",
    ),
    Milestone(
        kind="milestone.pool_end",
        label="memory pools ready",
        phase="loading",
        usual_s=120,
        stuck_hint="kernels are compiled (JIT) before the capture; the next start is faster",
    ),
    Milestone(
        kind="milestone.capture_begin",
        label="capturing graphs",
        phase="capturing",
        usual_s=300,
        stuck_hint="JIT compilation in the first batches, or a rank hangs in a collective: compare the GPUs' load",
    ),
    Milestone(
        kind="milestone.capture_end",
        label="graphs captured",
        phase="capturing",
        usual_s=120,
        stuck_hint="a draft model is loaded and captured next, or a slower rank still captures",
    ),
    Milestone(
        kind="milestone.limits",
        label="limits known",
        phase="capturing",
        usual_s=120,
        stuck_hint="the HTTP process waits for all ranks",
    ),
    Milestone(
        kind="milestone.http_up",
        label="HTTP up, warming up",
        phase="capturing",
        usual_s=120,
        stuck_hint="the warm-up request does not come back: kernels are compiled, or a rank hangs in a collective",
    ),
    Milestone(
        kind="milestone.ready",
        label="ready by its log",
        phase="ready",
        usual_s=0,
        stuck_hint="printed even where the port belongs to another server: only an answered request proves it",
    ),
)

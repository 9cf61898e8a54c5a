"""vLLM's start in order, as its log tells it. vLLM has no deadline of its own for most of it."""

from __future__ import annotations

from tokpit.engines.base import Milestone

MILESTONES: tuple[Milestone, ...] = (
    Milestone(
        kind="milestone.version",
        label="program started",
        phase="starting",
        usual_s=60,
        stuck_hint="the model's configuration is fetched or inspected; a hub that cannot be reached is retried",
    ),
    Milestone(
        kind="milestone.args",
        label="arguments parsed",
        phase="starting",
        usual_s=90,
        stuck_hint="the model class is inspected in a process of its own, with all imports again",
    ),
    Milestone(
        kind="milestone.engine",
        label="engine process started",
        phase="starting",
        usual_s=90,
        stuck_hint="the workers are starting; with several, the process group is formed",
    ),
    Milestone(
        kind="milestone.dist",
        label="joining the process group",
        phase="starting",
        usual_s=60,
        stuck_hint="NCCL rendezvous: wrong interface, a firewall, a missing node, or peer access blocked by IOMMU",
        joins=True,
    ),
    Milestone(
        kind="milestone.load_start",
        label="loading weights",
        phase="loading",
        usual_s=180,
        stuck_hint="weights are downloaded, or come from a slow or network disk",
    ),
    Milestone(
        kind="milestone.weights",
        label="weights loaded",
        phase="loading",
        usual_s=120,
        stuck_hint="a draft model is loaded, weights are repacked, or a slower worker still loads",
    ),
    Milestone(
        kind="milestone.model_mem",
        label="model in memory",
        phase="loading",
        usual_s=240,
        stuck_hint="torch.compile runs without a cache; the next start is faster",
    ),
    Milestone(
        kind="milestone.compile_begin",
        label="compiling",
        phase="capturing",
        usual_s=300,
        stuck_hint="torch.compile runs without a cache; the next start is faster",
    ),
    Milestone(
        kind="milestone.compile_total",
        label="compiled",
        phase="capturing",
        usual_s=180,
        stuck_hint="the memory profile runs; kernels are compiled (JIT) on first use",
    ),
    Milestone(
        kind="milestone.kv_mem",
        label="memory profiled",
        phase="capturing",
        usual_s=60,
        stuck_hint="a slower worker has not come this far",
    ),
    Milestone(
        kind="milestone.kv_size",
        label="KV cache sized",
        phase="capturing",
        usual_s=240,
        stuck_hint="kernels are tuned or compiled before the capture, or a worker hangs in a collective",
    ),
    Milestone(
        kind="milestone.capture_done",
        label="graphs captured",
        phase="capturing",
        usual_s=120,
        stuck_hint="a slower worker still captures",
    ),
    Milestone(
        kind="milestone.engine_init",
        label="engine initialised",
        phase="capturing",
        usual_s=120,
        stuck_hint="the API process waits for all engines",
    ),
    Milestone(
        kind="milestone.listen",
        label="HTTP server starting",
        phase="capturing",
        usual_s=60,
        stuck_hint="routes and chat templates are prepared",
    ),
    Milestone(
        kind="milestone.ready",
        label="ready by its log",
        phase="ready",
        usual_s=0,
        stuck_hint="old releases print this before they bind the port: only an answered request proves it",
    ),
)

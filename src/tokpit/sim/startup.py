"""What a start prints and when: SGLang 0.5.11's milestones on a hybrid model with speculation and host cache.

A start is a list of moments: simulated seconds since launch, and what to do then. The durations are set so that the
measured server (two host pools of 150 GB) is ready after 150 s.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from tokpit.sim import story
from tokpit.sim.plan import Plan

SHARDS = 15
ALLOC_S_PER_GB = 0.2235  # Pinning 300.1 GB fills the rest of the measured 150 s.


@dataclass(frozen=True, slots=True)
class Moment:
    """At `at_s` print `text` (with a time stamp, unless `bare`), then do `action` if there is one.

    Actions: `load`, `pools`, `capture`, `hicache` (needs `gb`), `http`, `ready`. `hold_gib` is device memory held.
    """

    at_s: float
    text: str = ""
    bare: bool = False
    action: str = ""
    gb: float = 0.0
    hold_gib: float | None = None


def server_args_text(args: argparse.Namespace) -> str:
    """The echo of all arguments, as the dataclass prints itself."""
    return "server_args=ServerArgs(" + ", ".join(f"{k}={v!r}" for k, v in vars(args).items()) + ")"


def moments(args: argparse.Namespace, plan: Plan, free_gib: float) -> Iterator[Moment]:
    """The start of a server that comes up, in order of time."""
    yield Moment(7.5, server_args_text(args))
    yield Moment(13.0, "Init torch distributed begin.")
    yield Moment(13.6, "Init torch distributed ends. elapsed=0.62 s, mem usage=0.09 GB", hold_gib=0.7)
    avail = free_gib - 0.7
    yield Moment(14.4, f"Load weight begin. avail mem={avail:.2f} GB", action="load")
    t = 15.0
    for done in range(SHARDS + 1):
        share = done / SHARDS
        yield Moment(t + 33.0 * share, _shards_bar(done, 33.0 * share), bare=True, hold_gib=0.7 + 50.0 * share)
    avail -= story.WEIGHTS_GIB
    yield Moment(
        48.6,
        f"Load weight end. elapsed=34.21 s, type={story.MODEL_CLASS}, avail mem={avail:.2f} GB, "
        f"mem usage={story.WEIGHTS_GIB:.2f} GB.",
    )
    yield Moment(49.4, _mamba_text(plan), action="pools")
    half = plan.kv_gib / 2
    yield Moment(
        49.9, f"KV Cache is allocated. #tokens: {plan.kv_tokens}, K size: {half:.2f} GB, V size: {half:.2f} GB"
    )
    avail -= plan.reserve_gib + plan.state_gib + plan.kv_gib
    pooled = plan.device_gib - plan.graph_gib - (story.DRAFT_GIB if plan.speculative else 0.0)
    yield Moment(50.0, f"Memory pool end. avail mem={avail:.2f} GB", hold_gib=pooled)
    if plan.graph_gib:
        yield from _capture(50.6, 12.0, plan, avail, plan.graph_gib * 0.8)
        avail -= plan.graph_gib * 0.8
    if plan.speculative:
        yield Moment(64.0, f"Load weight begin. avail mem={avail:.2f} GB")
        avail -= story.DRAFT_GIB
        yield Moment(
            66.1,
            f"Load weight end. elapsed=2.07 s, type={story.MODEL_CLASS}MTP, avail mem={avail:.2f} GB, "
            f"mem usage={story.DRAFT_GIB:.2f} GB.",
        )
        yield Moment(66.4, f"Memory pool end. avail mem={avail:.2f} GB", hold_gib=pooled + story.DRAFT_GIB)
        if plan.graph_gib:
            yield from _capture(66.8, 5.0, plan, avail, plan.graph_gib * 0.2)
            avail -= plan.graph_gib * 0.2
    yield Moment(73.5, limits_text(args, plan, avail), hold_gib=plan.device_gib)
    t = 74.0
    if plan.hicache_gb:
        gb = plan.hicache_gb
        yield Moment(t, f"Allocating {gb:.2f} GB host memory for hierarchical KV cache.", action="hicache", gb=gb)
        t += gb * ALLOC_S_PER_GB
        more = gb + story.MAMBA_HOST_GB_OVER
        yield Moment(
            t,
            f"Allocating {more:.2f} GB host memory for hierarchical Mamba cache (layout={args.hicache_mem_layout}).",
            action="hicache",
            gb=more,
        )
        t += more * ALLOC_S_PER_GB
    yield from _http_up(t)


def limits_text(args: argparse.Namespace, plan: Plan, avail: float) -> str:
    """The line that says what the server can take."""
    return (
        f"max_total_num_tokens={plan.kv_tokens}, chunked_prefill_size={args.chunked_prefill_size or 8192}, "
        f"max_prefill_tokens={args.max_prefill_tokens}, max_running_requests={plan.cap}, "
        f"context_len={plan.context_len}, available_gpu_mem={avail:.2f} GB"
    )


def _http_up(t: float) -> Iterator[Moment]:
    yield Moment(t + 4.0, "INFO:     Started server process [@PID@]", action="http")
    yield Moment(t + 4.0, "INFO:     Waiting for application startup.")
    yield Moment(t + 4.1, "INFO:     Application startup complete.", action="bind")
    yield Moment(t + 4.1, "INFO:     Uvicorn running on http://@ADDRESS@ (Press CTRL+C to quit)")
    yield Moment(t + 5.2, 'INFO:     127.0.0.1:41612 - "GET /model_info HTTP/1.1" 200 OK', action="warmup")
    yield Moment(t + 8.9, 'INFO:     127.0.0.1:41620 - "POST /generate HTTP/1.1" 200 OK')
    yield Moment(t + 8.92, "The server is fired up and ready to roll!", action="ready")


def _mamba_text(plan: Plan) -> str:
    text = (
        f"Mamba Cache is allocated. max_mamba_cache_size: {plan.slots}, "
        f"conv_state size: {plan.slots * story.CONV_GIB_PER_SLOT:.2f}GB, "
        f"ssm_state size: {plan.slots * story.SSM_GIB_PER_SLOT:.2f}GB "
    )
    if plan.speculative:
        conv = plan.reserve_gib * story.CONV_GIB_PER_SLOT / (story.CONV_GIB_PER_SLOT + story.SSM_GIB_PER_SLOT)
        text += (
            f"intermediate_ssm_state_cache size: {plan.reserve_gib - conv:.2f}GB "
            f"intermediate_conv_window_cache size: {conv:.2f}GB "
        )
    return text


def _shards_bar(done: int, seconds: float) -> str:
    percent = round(100 * done / SHARDS)
    if not done:
        return f"Loading safetensors checkpoint shards:   0% Completed | 0/{SHARDS} [00:00<?, ?it/s]"
    left = seconds / done * (SHARDS - done)
    return (
        f"Loading safetensors checkpoint shards: {percent:>3}% Completed | {done}/{SHARDS} "
        f"[{_clock(seconds)}<{_clock(left)},  {seconds / done:.2f}s/it]"
    )


def _capture(start: float, took: float, plan: Plan, avail: float, gib: float) -> Iterator[Moment]:
    sizes = sorted({*range(1, min(plan.cap, 8) + 1), *range(8, plan.cap + 1, 8), plan.cap}, reverse=True)
    yield Moment(
        start, f"Capture cuda graph begin. This can take up to several minutes. avail mem={avail:.2f} GB",
        action="capture",
    )  # fmt: skip
    yield Moment(start + 0.1, f"Capture cuda graph bs {sorted(sizes)}")
    total = len(sizes)
    for done in range(total + 1):
        size, now = sizes[min(done, total - 1)], avail - gib * done / total
        bar = ("█" * (done * 10 // total)).ljust(10)
        yield Moment(
            start + 0.2 + (took - 0.5) * done / total,
            f"Capturing batches (bs={size} avail_mem={now:.2f} GB): {round(100 * done / total):>3}%|"
            f"{bar}| {done}/{total} [{_clock((took - 0.5) * done / total)}<?, ?it/s]",
            bare=True,
        )
    yield Moment(
        start + took,
        f"Capture cuda graph end. Time elapsed: {took:.2f} s. mem usage={gib:.2f} GB. avail mem={avail - gib:.2f} GB.",
    )


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"

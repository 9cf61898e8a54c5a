"""From flags to what a server of this machine would be: memory, slots, running cap, step time; or why it cannot start.

Formulas: running cap = min(--max-running-requests, state slots // slots a request), slots a request = 1 without radix
cache, 3 for `no_buffer`, 4 for `extra_buffer` without the overlap scheduler, 5 with it. Acceptance of k draft steps =
1 + p + ... + p^k with one p for all positions, set so that k = 3 gives the measured 3.2. Pools follow SGLang 0.5.11:
static share - weights - speculation reserve - state pool = KV pool; host pools of N GB once for KV, again for states.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import pairwise

from tokpit.sim import story

GIB = 1024**3


class StartError(Exception):
    """The start fails: at `stage`, with the exception `kind` and `text` that SGLang's own code would raise."""

    def __init__(self, stage: str, kind: str, text: str) -> None:
        super().__init__(text)
        self.stage = stage
        self.kind = kind
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A server that starts. GiB for device sizes, GB (1e9 bytes) for host pools, as SGLang counts them."""

    cap: int
    slots: int
    slots_per_request: int
    kv_tokens: int
    context_len: int
    spec_steps: int
    speculative: bool
    accept_len: float
    mem_fraction: float
    reserve_gib: float
    state_gib: float
    kv_gib: float
    graph_gib: float
    hicache_gb: float
    decode_log_interval: int = 40

    @property
    def draft_tokens(self) -> int:
        """Tokens a verify step checks."""
        return self.spec_steps + 1

    @property
    def device_gib(self) -> float:
        """Device memory of the running server, the CUDA context included."""
        draft = story.DRAFT_GIB if self.speculative else 0.0
        return 0.7 + story.WEIGHTS_GIB + draft + self.reserve_gib + self.state_gib + self.kv_gib + self.graph_gib

    def step_s(self, running: int) -> float:
        """Seconds of one decode step with so many requests running."""
        return step_ms(running, self.spec_steps if self.speculative else None) / 1000


def acceptance(steps: int) -> float:
    """Expected tokens a verify step for so many draft steps."""
    p = _position_probability()
    return sum(p**k for k in range(steps + 1))


def _position_probability() -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        mid = (low + high) / 2
        if sum(mid**k for k in range(story.SPEC_STEPS + 1)) < story.ACCEPT_LEN:
            low = mid
        else:
            high = mid
    return low


def step_ms(running: int, spec_steps: int | None) -> float:
    """Milliseconds of a decode step; None: no speculation. Between measured points by straight lines."""
    points = story.STEP_MS
    last_n, last_ms = points[-1]
    if running >= last_n:
        measured = last_ms + (running - last_n) * story.STEP_MS_PER_MORE
    else:
        measured = points[0][1]
        for (n0, ms0), (n1, ms1) in pairwise(points):
            if n0 <= running <= n1:
                measured = ms0 + (ms1 - ms0) * (running - n0) / (n1 - n0)
    steps = 0 if spec_steps is None else spec_steps
    single = story.PLAIN_STEP_MS + (points[0][1] - story.PLAIN_STEP_MS) * steps / story.SPEC_STEPS
    # The cost of more requests grows with the tokens a step checks: assumed, exact where it was measured.
    return single + (measured - points[0][1]) * (0.4 + 0.2 * steps)


def check_args(args: argparse.Namespace) -> None:
    """Rules between flags that SGLang checks before it loads anything. Raises StartError with stage `args`."""
    if args.enable_hierarchical_cache and args.disable_radix_cache:
        raise StartError(
            "args",
            "ValueError",
            "The arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive and cannot be used "
            "at the same time. Please use only one of them.",
        )
    if args.speculative_algorithm and not args.disable_radix_cache and _strategy(args) == "no_buffer":
        raise StartError(
            "args",
            "ValueError",
            "Speculative decoding for this hybrid model is not compatible with radix cache when using "
            "--mamba-scheduler-strategy no_buffer. To use radix cache with speculative decoding, please use "
            "--mamba-scheduler-strategy extra_buffer and set SGLANG_ENABLE_SPEC_V2=1.",
        )
    if _strategy(args) == "extra_buffer" and args.disable_radix_cache:
        raise StartError("args", "ValueError", "mamba extra_buffer is not compatible with --disable-radix-cache.")
    if ":" in (args.served_model_name or ""):
        raise StartError("args", "AssertionError", "served_model_name cannot contain a colon (':') character.")


def _strategy(args: argparse.Namespace) -> str:
    chosen = args.mamba_scheduler_strategy
    return "no_buffer" if chosen in {None, "auto"} else str(chosen)


def slots_per_request(args: argparse.Namespace) -> int:
    """State slots reserved for each running request."""
    if args.disable_radix_cache:
        return 1
    if _strategy(args) == "no_buffer":
        return 3
    return 4 if args.disable_overlap_schedule else 5


def make_plan(args: argparse.Namespace, free_gib: float) -> Plan:
    """The server that these flags make on a GPU with `free_gib` free. Raises StartError."""
    check_args(args)
    if args.tp_size * args.pp_size * args.dp_size > 1:
        raise StartError("dist", "torch.AcceleratorError", _NO_SUCH_GPU)
    if free_gib < story.WEIGHTS_GIB + 1.5:
        raise StartError(
            "load",
            "torch.OutOfMemoryError",
            f"CUDA out of memory. Tried to allocate 340.00 MiB. GPU 0 has a total capacity of {total_gib():.2f} GiB of "
            f"which 121.06 MiB is free. Of the allocated memory {max(0.0, free_gib - 0.7):.2f} GiB is allocated by "
            "PyTorch, and 21.32 MiB is reserved by PyTorch but unallocated.",
        )
    speculative = bool(args.speculative_algorithm)
    steps = (args.speculative_num_steps if args.speculative_num_steps is not None else story.SPEC_STEPS) * speculative
    asked = args.max_running_requests or (48 if speculative else None)
    per_slot = story.SSM_GIB_PER_SLOT + story.CONV_GIB_PER_SLOT
    reserve = per_slot * asked * (steps + 1) if speculative and asked else 0.0
    fraction = args.mem_fraction_static if args.mem_fraction_static is not None else 0.85
    weights = story.WEIGHTS_GIB + (story.DRAFT_GIB if speculative else 0.0)
    # SGLang: what is left = free after loading - free before loading x (1 - static share).
    left = free_gib - 0.7 - weights - free_gib * (1 - fraction) - reserve
    slots = args.max_mamba_cache_size
    if slots is None:
        slots = int(left * args.mamba_full_memory_ratio / (1 + args.mamba_full_memory_ratio) / per_slot)
    per_request = slots_per_request(args)
    kv_gib = left - slots * per_slot
    tokens = int(kv_gib * GIB / story.KV_BYTES_PER_TOKEN)
    if args.max_total_tokens:
        tokens = min(tokens, args.max_total_tokens)
    cap = min(slots // per_request, asked or 4096)
    if tokens < 4096 or slots < per_request:
        raise StartError(
            "pool",
            "RuntimeError",
            "Not enough memory. Please try to increase --mem-fraction-static. "
            f"Current value: mem_fraction_static={fraction}",
        )
    graph = 0.0 if args.disable_cuda_graph else 1.2 + 0.06 * min(cap, 32)
    kv_gib = tokens * story.KV_BYTES_PER_TOKEN / GIB
    return Plan(
        cap=cap,
        slots=slots,
        slots_per_request=per_request,
        kv_tokens=tokens,
        context_len=args.context_length or story.CONTEXT_LEN,
        spec_steps=steps,
        speculative=speculative,
        accept_len=acceptance(steps) if speculative else 1.0,
        mem_fraction=fraction,
        reserve_gib=reserve,
        state_gib=slots * per_slot,
        kv_gib=kv_gib,
        graph_gib=graph,
        hicache_gb=_hicache_gb(args, kv_gib),
        decode_log_interval=args.decode_log_interval or 40,
    )


def check_graph_memory(plan: Plan, free_gib: float) -> None:
    """Graph capture needs what the static share left over. Raises StartError with stage `capture`."""
    spare = free_gib - plan.device_gib
    if plan.graph_gib and spare < 2.0:
        raise StartError(
            "capture",
            "Exception",
            "Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            f"{total_gib():.2f} GiB of which {max(0.09, spare):.2f} GiB is free.\n"
            "Possible solutions:\n"
            "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
            "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\n"
            "3. disable torch compile by not using --enable-torch-compile\n"
            "4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)",
        )


def check_host_memory(requested_gb: float, available_bytes: int) -> None:
    """One host pool against the memory that is free now. Raises StartError with stage `hicache`."""
    usable = available_bytes - story.HICACHE_RESERVE_BYTES
    if requested_gb * 1e9 > usable:
        raise StartError(
            "hicache",
            "ValueError",
            f"Not enough host memory available. Requesting {requested_gb:.2f} GB but only have {usable / 1e9:.2f} GB "
            "free. Please reduce the size of the hierarchical cache.",
        )


def total_gib() -> float:
    """Device memory that PyTorch sees."""
    return (story.GPU_MEM_MIB - 640) / 1024


def _hicache_gb(args: argparse.Namespace, kv_gib: float) -> float:
    if not args.enable_hierarchical_cache:
        return 0.0
    return float(args.hicache_size) if args.hicache_size else args.hicache_ratio * kv_gib * GIB / 1e9


_NO_SUCH_GPU = (
    "CUDA error: invalid device ordinal\n"
    "GPU device may be out of range, do you have enough GPUs?\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
)

"""The engine's log: SGLang's line head on the simulated clock, statistics lines, tracebacks as it prints them."""

from __future__ import annotations

import sys

from tokpit.sim.batch import PrefillTick, Tick
from tokpit.sim.clock import SimClock
from tokpit.sim.plan import Plan, StartError

HELD_PER_REQUEST = 4
"""State slots a running request locks; the fifth of the five reserved ones is free between two tracked states."""


class Journal:
    """Writes to stderr, access lines to stdout; progress bars end in a carriage return."""

    def __init__(self, clock: SimClock, plan: Plan | None = None) -> None:
        self.clock = clock
        self.plan = plan

    def line(self, text: str, t: float | None = None) -> None:
        """One line with its head; the time is now unless given."""
        stamp = self.clock.stamp(self.clock.now() if t is None else t)
        sys.stderr.write(f"[{stamp}] {text}\n")
        sys.stderr.flush()

    def bare(self, text: str, end: str = "\n") -> None:
        """Text without a head."""
        sys.stderr.write(text + end)
        sys.stderr.flush()

    def access(self, peer: str, method: str, path: str, status: int, reason: str) -> None:
        """One request that was answered."""
        stamp = self.clock.stamp(self.clock.now())
        sys.stdout.write(f'[{stamp}] INFO:     {peer} - "{method} {path} HTTP/1.1" {status} {reason}\n')
        sys.stdout.flush()

    def decode(self, tick: Tick) -> None:
        """The statistics line of the last decode steps."""
        self.line(decode_text(tick, self._plan()), tick.t)

    def prefill(self, tick: PrefillTick) -> None:
        """The statistics line of one prefill."""
        plan = self._plan()
        self.line(
            f"Prefill batch, #new-seq: {tick.new_seqs}, #new-token: {tick.new_tokens}, #cached-token: "
            f"{tick.cached_tokens}, full token usage: {tick.tokens / plan.kv_tokens:.2f}, mamba usage: "
            f"{mamba_usage(tick.running, plan):.2f}, #running-req: {tick.running}, #queue-req: {tick.queued}, "
            f"#pending-token: 0, cuda graph: False, input throughput (token/s): {tick.tps:.2f}",
            tick.t,
        )

    def failure(self, error: StartError) -> None:
        """The traceback of a failed start, as SGLang's scheduler (or its argument check) prints it."""
        trace = f"Traceback (most recent call last):\n{_FRAMES[error.stage]}\n{error.kind}: {error.text}\n"
        if error.stage == "args":
            self.bare(trace, end="")
            return
        self.line(f"Scheduler hit an exception: {trace}")
        self.line("Received sigquit from a child process. It usually means the child failed.")

    def _plan(self) -> Plan:
        assert self.plan is not None
        return self.plan


def mamba_usage(running: int, plan: Plan) -> float:
    """Share of state slots locked by running requests."""
    return mamba_slots(running, plan) / plan.slots


def mamba_slots(running: int, plan: Plan) -> int:
    """State slots locked by running requests."""
    return running * min(HELD_PER_REQUEST, max(1, plan.slots_per_request - 1))


def decode_text(tick: Tick, plan: Plan) -> str:
    """The decode statistics line; acceptance rate = (length - 1) / (draft tokens - 1), as 0.5.11 defines it."""
    spec = ""
    if plan.speculative:
        rate = (tick.accept_len - 1) / max(1, plan.draft_tokens - 1)
        spec = f"accept len: {tick.accept_len:.2f}, accept rate: {rate:.2f}, "
    return (
        f"Decode batch, #running-req: {tick.running}, #full token: {tick.tokens}, full token usage: "
        f"{tick.tokens / plan.kv_tokens:.2f}, mamba num: {mamba_slots(tick.running, plan)}, mamba usage: "
        f"{mamba_usage(tick.running, plan):.2f}, {spec}cuda graph: {bool(plan.graph_gib)}, "
        f"gen throughput (token/s): {tick.tps:.2f}, #queue-req: {tick.queued}"
    )


_SITE = "/opt/sglang/lib/python3.12/site-packages"


def _frame(line: int, where: str, code: str, file: str = "managers/scheduler.py") -> str:
    return f'  File "{_SITE}/sglang/srt/{file}", line {line}, in {where}\n    {code}'


_RUN = _frame(3310, "run_scheduler_process", "scheduler = Scheduler(")
_FRAMES = {
    "args": _frame(6280, "prepare_server_args", "return ServerArgs.from_cli_args(raw_args)", "server_args.py"),
    "dist": "\n".join(
        (
            _RUN,
            _frame(702, "init_torch_distributed", "torch.get_device_module(self.device).set_device(self.gpu_id)",
                   "model_executor/model_runner.py"),
        )
    ),
    "load": "\n".join((_RUN, _frame(964, "load_model", "self.model = self.loader.load_model(",
                                    "model_executor/model_runner.py"))),
    "pool": "\n".join((_RUN, _frame(618, "init_memory_pool", "raise RuntimeError(",
                                    "model_executor/model_runner_kv_cache_mixin.py"))),
    "capture": "\n".join((_RUN, _frame(402, "__init__", "raise Exception(",
                                       "model_executor/cuda_graph_runner.py"))),
    "hicache": "\n".join((_RUN, _frame(742, "init_cache_with_memory_pool", "self.tree_cache = HiMambaRadixCache("),
                          _frame(201, "__init__", "raise ValueError(", "mem_cache/memory_pool_host.py"))),
}  # fmt: skip

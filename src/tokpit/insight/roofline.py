"""The memory-bandwidth ceiling of decoding: every step reads the weights once.

steps/s <= bandwidth of the GPUs / bytes of a step. One stream gets acceptance length x steps/s. Where pools and context
are known, its KV and its recurrent state (read and written) are among the bytes; else they and launches come on top, so
good servers reach 70 to 90 % of it at one stream.
"""

from __future__ import annotations

import msgspec

from tokpit.insight.facts import Facts
from tokpit.insight.gpus import Gpu, lookup
from tokpit.insight.parameters import active_gb, is_mixture


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """Ceiling of one stream on these GPUs."""

    weights_gb: float
    """Read a step, over all GPUs."""
    gpus: int
    bandwidth_gbps: float
    """Of one GPU."""
    gpu: Gpu | None = None
    kv_gb: float = 0.0
    """KV of one stream's context, read a step on each GPU; 0: not known."""
    state_gb: float = 0.0
    """Recurrent state of one stream, read and written a step on each GPU; 0: none, or not known."""

    @property
    def each_gb(self) -> float:
        """Weights on each GPU."""
        return self.weights_gb / self.gpus

    @property
    def step_gb(self) -> float:
        """What a step moves on each GPU."""
        return self.each_gb + self.kv_gb + self.state_gb

    @property
    def step_s(self) -> float:
        """Shortest step."""
        return self.step_gb / self.bandwidth_gbps

    @property
    def steps_per_s(self) -> float:
        """Most steps per second."""
        return 1 / self.step_s

    def tps(self, accept_len: float = 1.0) -> float:
        """Ceiling of one stream in tok/s."""
        return accept_len * self.steps_per_s

    def length_for(self, tps: float) -> float:
        """Acceptance length that this rate needs at the ceiling of steps."""
        return tps * self.step_s

    def weights_for(self, tps: float, accept_len: float = 1.0) -> float:
        """Most GB of weights on each GPU with which this rate is possible."""
        return max(0.0, self.bandwidth_gbps * accept_len / tps - self.kv_gb - self.state_gb)

    def words(self) -> str:
        """`27 GB / 768 GB/s`, with KV and state where they are known."""
        parts = [f"{self.each_gb:.3g} GB"]
        parts += [f"{gb:.2g} GB {name}" for gb, name in ((self.kv_gb, "KV"), (self.state_gb, "state")) if gb >= 0.005]
        read = f"({' + '.join(parts)})" if len(parts) > 1 else parts[0]
        return f"{read} / {self.bandwidth_gbps:.4g} GB/s"


def roofline(facts: Facts, *, active: bool = False) -> Roofline | None:
    """The ceiling that the facts give; `active`: with the weights a mixture of experts reads for one token."""
    weights = active_gb(facts) if active else facts.weights_gb
    gpu = lookup(facts.gpu) if facts.gpu else None
    bandwidth = facts.bandwidth_gbps or (gpu.bandwidth_gbps if gpu is not None else None)
    if not weights or not bandwidth:
        return None
    kv = state = 0.0
    if facts.kv_pool_gb and facts.kv_tokens and facts.stream_tokens:
        kv = facts.kv_pool_gb / facts.kv_tokens * facts.stream_tokens
    if facts.state_pool_gb and facts.state_slots:
        state = 2 * facts.state_pool_gb / facts.state_slots
    return Roofline(
        weights_gb=weights,
        gpus=max(1, facts.tp or 1),
        bandwidth_gbps=bandwidth,
        gpu=gpu,
        kv_gb=min(kv, facts.kv_pool_gb or 0.0),
        state_gb=state,
    )


def stream_roofline(facts: Facts) -> Roofline | None:
    """The ceiling that no single stream passes: that of a mixture of experts with the weights one token reads.

    None where the facts do not give it, as for a mixture whose share of a token is not known.
    """
    return roofline(facts, active=is_mixture(facts))

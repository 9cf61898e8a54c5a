"""The memory-bandwidth ceiling of decoding: every step reads the weights once.

steps/s <= bandwidth of the GPUs / bytes of weights. One stream gets acceptance length x steps/s. KV reads and launches
come on top, so good servers reach 70 to 90 % of it at one stream.
"""

from __future__ import annotations

import msgspec

from tokpit.insight.facts import Facts
from tokpit.insight.gpus import Gpu, lookup


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """Ceiling of one stream on these GPUs."""

    weights_gb: float
    """Read a step, over all GPUs."""
    gpus: int
    bandwidth_gbps: float
    """Of one GPU."""
    gpu: Gpu | None = None

    @property
    def each_gb(self) -> float:
        """Weights on each GPU."""
        return self.weights_gb / self.gpus

    @property
    def step_s(self) -> float:
        """Shortest step."""
        return self.each_gb / self.bandwidth_gbps

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
        return self.bandwidth_gbps * accept_len / tps

    def words(self) -> str:
        """`27 GB / 768 GB/s`."""
        return f"{self.each_gb:.3g} GB / {self.bandwidth_gbps:.4g} GB/s"


def roofline(facts: Facts, *, active: bool = False) -> Roofline | None:
    """The ceiling that the facts give; `active`: with the weights a mixture of experts reads for one token."""
    weights = facts.active_gb if active else facts.weights_gb
    gpu = lookup(facts.gpu) if facts.gpu else None
    bandwidth = facts.bandwidth_gbps or (gpu.bandwidth_gbps if gpu is not None else None)
    if not weights or not bandwidth:
        return None
    return Roofline(weights_gb=weights, gpus=max(1, facts.tp or 1), bandwidth_gbps=bandwidth, gpu=gpu)

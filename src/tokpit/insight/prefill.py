"""The compute ceiling of prefill: a prompt token costs two operations a parameter (one multiply, one add).

tok/s <= peak operations/s of the GPUs / (2 x parameters that a token passes). Attention comes on top and grows with the
context, so long prompts stay further below it.
"""

from __future__ import annotations

import msgspec

from tokpit.insight.facts import Facts
from tokpit.insight.gpus import Gpu, lookup
from tokpit.insight.parameters import parameters
from tokpit.insight.words import num


class Compute(msgspec.Struct, frozen=True, kw_only=True):
    """What the GPUs of a server can compute of this model."""

    params_b: float
    """Parameters that one token passes, 1e9."""
    source: str
    """Where `params_b` is from, in words."""
    guessed: bool
    """`params_b` rests on an assumption of the type of the weights."""
    peak_tflops: float
    """Of one GPU."""
    gpus: int
    gpu: Gpu | None = None

    @property
    def tps(self) -> float:
        """Most prompt tokens a second."""
        return self.gpus * self.peak_tflops * 1e12 / (2e9 * self.params_b)

    def seconds(self, tokens: float) -> float:
        """Least time of a prompt."""
        return tokens / self.tps

    def words(self) -> str:
        """`2 x 155 TFLOPS / (2 x 27 billion parameters) = 5,730 tok/s`."""
        gpus = f"{self.gpus} x " if self.gpus > 1 else ""
        return (
            f"{gpus}{num(self.peak_tflops, 4)} TFLOPS / (2 x {num(self.params_b)} billion parameters) = "
            f"{num(self.tps)} tok/s ({self.source})"
        )


def compute(facts: Facts) -> Compute | None:
    """The ceiling that the facts give; None where GPU or model are not known."""
    gpu = lookup(facts.gpu) if facts.gpu else None
    peak = facts.peak_tflops or (gpu.peak_tflops if gpu is not None else None)
    known = parameters(facts)
    if peak is None or known is None:
        return None
    params, source, guessed = known
    return Compute(
        params_b=params, source=source, guessed=guessed, peak_tflops=peak, gpus=max(1, facts.tp or 1), gpu=gpu
    )

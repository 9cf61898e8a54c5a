"""Single lines that explain a slow server."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules.log_words import place
from tokpit.insight.words import num


def custom_allreduce(evidence: Evidence) -> Sequence[Finding]:
    """Tensor parallelism without the engine's own all-reduce."""
    found = []
    for log in evidence.logs:
        lines = [
            x for x in log.notes.get("custom_allreduce", ()) if "pcie" in x[1].lower() or "support" in x[1].lower()
        ]
        if lines:
            number, text = lines[0]
            found.append(
                Finding(
                    code="CUSTOM_AR_OFF",
                    severity="warning",
                    claim="The engine's own all-reduce is off on these GPUs: NCCL does it, at a cost in every layer of "
                    "every step.",
                    arithmetic="about 20 us x 2 all-reduces x layers: 2 ms a token on a model of 50 layers",
                    evidence=(f"{place(log, number)}: {text}",),
                    confidence="likely",
                    next_action="Use fewer GPUs per replica (tensor parallelism of at most 2 over PCIe) or accept it, "
                    "and "
                    "note it where runs are compared.",
                )
            )
    return found


def cold(evidence: Evidence) -> Sequence[Finding]:
    """Kernels compiled while requests ran."""
    found = []
    for log in evidence.logs:
        lines = log.notes.get("jit", ())
        first_busy = log.busy[0].line if log.busy else None
        during = [x for x in lines if "during inference" in x[1].lower() or (first_busy and x[0] > first_busy)]
        if during:
            number, text = during[0]
            found.append(
                Finding(
                    code="COLD_START",
                    severity="warning",
                    claim=f"Kernels were compiled while requests ran ({num(len(during))} lines): what was measured "
                    f"then is "
                    "a cold start.",
                    evidence=(f"{place(log, number)}: {text}",),
                    next_action="Warm up each shape first (prompt length, concurrency, sampling), and measure that "
                    "level "
                    "again.",
                )
            )
    return found

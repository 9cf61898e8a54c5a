"""Single lines that explain a slow server."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules.log_words import place
from tokpit.insight.words import num

_AR_CAUSE = re.compile(r"pcie|support|p2p|peer|platform|capab|nvlink|topolog|more than", re.I)
_OFFLOADED = re.compile(r"offloaded (\d{1,4})/(\d{1,4}) layers to GPU")


def custom_allreduce(evidence: Evidence) -> Sequence[Finding]:
    """Tensor parallelism without the engine's own all-reduce."""
    found = []
    for log in evidence.logs:
        # An engine says so for a single GPU as well, and where a flag asked for it: neither costs anything unknown.
        lines = [x for x in log.notes.get("custom_allreduce", ()) if _AR_CAUSE.search(x[1])]
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


def on_cpu(evidence: Evidence) -> Sequence[Finding]:
    """A server that fell back to the processor, or keeps a part of the layers there."""
    found = []
    for log in evidence.logs:
        lines = log.notes.get("on_cpu", ())
        if lines:
            number, text = lines[0]
            found.append(
                Finding(
                    code="RUNNING_ON_CPU",
                    severity="error",
                    claim="The server runs on the processor, no GPU is used.",
                    evidence=(f"{place(log, number)}: {text}",),
                    next_action="Stop it; look at the driver, CUDA_VISIBLE_DEVICES and whether this build knows the "
                    "GPU.",
                )
            )
        for number, text in log.notes.get("offload", ()):
            match = _OFFLOADED.search(text)
            if match is None or int(match[1]) >= int(match[2]):
                continue
            on_gpu, layers = int(match[1]), int(match[2])
            found.append(
                Finding(
                    code="PARTIAL_OFFLOAD" if on_gpu else "RUNNING_ON_CPU",
                    severity="warning" if on_gpu else "error",
                    claim=f"Only {on_gpu} of {layers} layers are on the GPU: the others run from the host's memory, "
                    f"which "
                    "sets the pace.",
                    arithmetic=f"{layers - on_gpu} of {layers} layers on the processor",
                    evidence=(f"{place(log, number)}: {text}",),
                    next_action="Raise -ngl, or use a smaller quantization or context so that all layers fit.",
                )
            )
            break
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

"""The memory-bandwidth ceiling of one stream beside what it does."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.parameters import is_mixture
from tokpit.insight.roofline import roofline
from tokpit.insight.words import num, percent


def rule(evidence: Evidence) -> Sequence[Finding]:
    """Weights over bandwidth: shortest step, most steps and tok/s of one stream, and how near the measured ones are."""
    f = evidence.facts
    roof = roofline(f)
    if roof is None:
        return ()
    measured = []
    figures: dict[str, float | str] = {"step_ms": 1000 * roof.step_s, "ceiling_steps_per_s": roof.steps_per_s}
    worst = 0.0
    if f.baseline_tps:
        share = f.baseline_tps / roof.steps_per_s
        measured.append(f"{num(f.baseline_tps)} tok/s without speculation is {percent(share)} of it")
        figures["baseline_share"] = share
        worst = max(worst, share)
    spec = f.spec_tps or (f.single_tps if f.accept_len else None)
    if spec and f.accept_len:
        share = spec / roof.tps(f.accept_len)
        measured.append(
            f"with an acceptance length of {num(f.accept_len)} the ceiling is {num(roof.tps(f.accept_len))} tok/s, and "
            f"{num(spec)} is {percent(share)} of it"
        )
        figures["spec_share"] = share
        worst = max(worst, share)
    elif f.single_tps and not f.baseline_tps:
        share = f.single_tps / roof.steps_per_s
        measured.append(f"{num(f.single_tps)} tok/s is {percent(share)} of it")
        figures["share"] = share
        worst = max(worst, share)
    if not measured:
        return ()
    over = f"{roof.gpus} GPUs" if roof.gpus > 1 else "one GPU"
    sums = f"{num(roof.weights_gb)} GB over {over}: {roof.words()} = {num(1000 * roof.step_s, 2)} ms a step, "
    sums += f"{num(roof.steps_per_s, 3)} steps/s"
    active = roofline(f, active=True)
    if active is not None:
        sums += f"; a mixture of experts reads {num(active.weights_gb)} to {num(roof.weights_gb)} GB a step, so the "
        sums += f"ceiling lies between {num(roof.steps_per_s)} and {num(active.steps_per_s)} steps/s"
    elif is_mixture(f):
        sums += "; it is a mixture of experts, which reads a part of its weights a step: the ceiling lies higher"
    top = active.steps_per_s / roof.steps_per_s if active is not None else math.inf if is_mixture(f) else 1.0
    if worst > 1.05 * top:
        return (
            Finding(
                code="FASTER_THAN_MEMORY",
                severity="warning",
                claim=f"The measured rate is {percent(worst)} of what memory bandwidth allows: the facts do not fit "
                "together (quantized weights, a mixture of experts, another GPU, or a rate of several streams).",
                arithmetic=f"{sums}; {'; '.join(measured)}",
                next_action="Check size and type of the weights and the number of streams behind the rate.",
                figures=figures,
            ),
        )
    return (
        Finding(
            code="ROOFLINE",
            severity="info",
            claim=f"Memory bandwidth allows {num(roof.steps_per_s, 2)} steps/s ({num(1000 * roof.step_s, 2)} ms each): "
            f"{'; '.join(measured)}.",
            arithmetic=sums,
            evidence=(f"{roof.gpu.name}: {num(roof.gpu.bandwidth_gbps, 5)} GB/s ({roof.gpu.note})",)
            if roof.gpu
            else (),
            next_action="A faster stream needs fewer bytes a step (quantization, more GPUs) or a longer accepted draft."
            if worst > 0.5
            else "Bytes are not what takes the time: look at launches (graphs off), communication and the step of the "
            "draft.",
            figures=figures,
        ),
    )

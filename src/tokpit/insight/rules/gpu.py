"""GPUs that run slower than they could, and what telemetry said."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.domain.records import GpuSample
from tokpit.insight.evidence import Evidence
from tokpit.insight.words import listed, num, percent

_HARD = {
    "sw-thermal": "software thermal slowdown",
    "hw-thermal": "hardware thermal slowdown",
    "hw-slowdown": "hardware slowdown",
    "power-brake": "power brake",
}
_ERRORS = frozenset({"GPU_LOST", "DRIVER_MISMATCH", "NO_DRIVER", "GPU_NONE", "GPU_REQUIRES_RESET", "GPU_ECC"})
_ACTIONS = {
    "GPU_LOST": "Drain the host and reboot it; do not start anything on that GPU before.",
    "DRIVER_MISMATCH": "Keep a server that works; reboot (or reload the module) before anything is started.",
    "GPU_MEM_UNKNOWN": "Look at nvidia-smi -q and the driver; the host's own memory is not this GPU's.",
    "GPU_ORDER": "Start with CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID.",
    "GPU_MIG": "CUDA_VISIBLE_DEVICES takes the UUID of an instance; tensor parallelism over instances does not work.",
    "GPU_POLL_SLOW": "Poll less often; if polls stay unanswered the driver hangs (look for processes in state D).",
    "GPU_SENSOR_DEAD": "Take power and clocks as signs of work on that GPU.",
    "GPU_THROTTLED_PAST": "Levels that were throttled for more than 2% of their time are void: cool, and measure "
    "again.",
    "GPU_QUERY_FIELD": "Leave that field out, or ask by its other name.",
}


def samples(evidence: Evidence) -> Sequence[Finding]:
    """Slowdowns and power caps that are active now."""
    found: list[Finding] = []
    slow = [g for g in evidence.gpus if set(g.throttle) & set(_HARD)]
    for gpu in slow:
        reasons = listed(_HARD[r] for r in gpu.throttle if r in _HARD)
        found.append(_throttled(gpu, reasons, evidence))
    for gpu in evidence.gpus:
        if gpu in slow or "sw-power-cap" not in gpu.throttle or not gpu.power_w or not gpu.power_limit_w:
            continue
        low = _clock_share(gpu)
        if low is not None and low < 0.5:
            found.append(_power(gpu, low))
    if not evidence.gpus and (one := _from_facts(evidence)) is not None:
        found.append(one)
    return found


def _clock_share(gpu: GpuSample) -> float | None:
    return gpu.sm_clock_mhz / gpu.sm_clock_max_mhz if gpu.sm_clock_mhz and gpu.sm_clock_max_mhz else None


def _throttled(gpu: GpuSample, reasons: str, evidence: Evidence) -> Finding:
    share = _clock_share(gpu)
    clocks = (
        f" at {num(gpu.sm_clock_mhz or 0, 5)}/{num(gpu.sm_clock_max_mhz or 0, 5)} MHz ({percent(share)})"
        if share
        else ""
    )
    hot = f", {num(gpu.temp_c)} C" if gpu.temp_c is not None else ""
    wanted = evidence.facts.requested_power_limit_w
    cap = ""
    if wanted and gpu.power_limit_w and abs(wanted - gpu.power_limit_w) > 1:
        cap = f"; power limit asked for {num(wanted)} W, effective {num(gpu.power_limit_w)} W"
    return Finding(
        code="GPU_THROTTLED",
        severity="warning",
        claim=f"GPU {gpu.index} is slowed down{clocks}{hot}: {reasons}{cap}.",
        next_action="Fix cooling, let the clocks recover, and measure again; mark runs of that time as limited by heat."
        + (" Read the power limit back after setting it." if cap else ""),
        figures={"clock_share": share} if share is not None else {},
    )


def _power(gpu: GpuSample, share: float) -> Finding:
    return Finding(
        code="GPU_POWER_CAPPED",
        severity="info",
        claim=f"GPU {gpu.index} is at its power limit ({num(gpu.power_w or 0, 4)} of {num(gpu.power_limit_w or 0)} W) "
        f"and "
        f"runs at {percent(share)} of its clock.",
        next_action="Compare runs at equal power limits only.",
    )


def _from_facts(evidence: Evidence) -> Finding | None:
    f = evidence.facts
    reasons = [r for r in (f.throttle or "").replace(",", " ").split() if r in _HARD]
    sample = GpuSample(
        0,
        "",
        f.gpu or "",
        power_w=f.power_w,
        power_limit_w=f.power_limit_w,
        temp_c=f.temp_c,
        sm_clock_mhz=f.sm_clock_mhz,
        sm_clock_max_mhz=f.sm_clock_max_mhz,
    )
    if reasons:
        return _throttled(sample, listed(_HARD[r] for r in reasons), evidence)
    share = _clock_share(sample)
    busy = f.gpu_util is None or f.gpu_util > 0.5
    if share is not None and share < 0.6 and busy and f.temp_c and f.temp_c >= 85:
        return _throttled(sample, "it is hot and its clock is low", evidence)
    if f.power_w and f.power_limit_w and f.power_w >= 0.98 * f.power_limit_w:
        return Finding(
            code="GPU_POWER_CAPPED",
            severity="info",
            claim=f"The GPU is at its power limit ({num(f.power_w, 4)} of {num(f.power_limit_w)} W).",
            next_action="Normal under load; compare runs at equal power limits only.",
        )
    return None


def throttled_levels(evidence: Evidence) -> Sequence[Finding]:
    """Time in slowdown over a measurement, by the driver's counters."""
    share = evidence.facts.throttle_share
    if share is None or share <= 0.02:
        return ()
    return (
        Finding(
            code="GPU_THROTTLED_PAST",
            severity="warning",
            claim=f"The GPU was slowed down for {percent(share)} of the measurement: its figures are void.",
            arithmetic=f"{percent(share)} > 2% by the difference of the slowdown counters",
            next_action=_ACTIONS["GPU_THROTTLED_PAST"],
        ),
    )


def pcie(evidence: Evidence) -> Sequence[Finding]:
    """A link below what card and slot can do, under load."""
    f = evidence.facts
    busy = f.gpu_util is None or f.gpu_util > 0.3
    lines = []
    if f.pcie_width and f.pcie_width_max and f.pcie_width < f.pcie_width_max:
        lines.append(f"x{f.pcie_width} of x{f.pcie_width_max}")
    if busy and f.pcie_gen and f.pcie_gen_max and f.pcie_gen < f.pcie_gen_max and f.gpu_util is not None:
        lines.append(f"generation {f.pcie_gen} of {f.pcie_gen_max}")
    if not lines:
        return ()
    return (
        Finding(
            code="PCIE_DEGRADED",
            severity="warning",
            claim=f"The PCIe link runs at {listed(lines)}: host caches, offloading and tensor parallelism without "
            f"NVLink "
            "are slower.",
            confidence="likely",
            next_action="Reseat the card, or look at riser, slot and firmware; links lower their generation when "
            "idle, so "
            "judge under load.",
        ),
    )


def problems(evidence: Evidence) -> Sequence[Finding]:
    """What could not be read or was read amiss; what is only worth knowing stays out unless it explains something."""
    return [
        Finding(
            code=problem.code,
            severity="error" if problem.code in _ERRORS else "info" if problem.info else "warning",
            claim=problem.text if problem.text.endswith(".") else problem.text + ".",
            next_action=_ACTIONS.get(problem.code, ""),
        )
        for problem in evidence.problems
    ]

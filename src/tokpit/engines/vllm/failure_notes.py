"""How the numbers in vLLM's failure messages are told: arithmetic, fixes, the reading that its texts leave out."""

from __future__ import annotations

import math
import re

from tokpit.domain.verdict import Fix, Verdict
from tokpit.engines.verdictkit.signature import Case, real, retell, whole


def state_blocks(verdict: Verdict, case: Case) -> Verdict:
    """Offers the number of state blocks as the limit."""
    blocks = verdict.figures["blocks"]
    return retell(verdict, fixes=(Fix(label=f"max-num-seqs {blocks}", settings={"max_running": blocks}),))


def context_fits(verdict: Verdict, case: Case) -> Verdict:
    """The context that fits: printed by most releases, else in proportion to the memory."""
    asked, fits = whole(verdict, "asked"), whole(verdict, "fits")
    needed, available = real(verdict, "needed_gib"), real(verdict, "available_gib")
    told: dict[str, float | str] = {}
    arithmetic = verdict.arithmetic
    if needed is not None and available is not None:
        told["shortfall_gib"] = round(needed - available, 2)
        arithmetic = f"needed {needed} GiB - available {available} GiB = {needed - available:.2f} GiB short"
        if fits is None and asked is not None and needed > 0:
            fits = math.floor(asked * available / needed / 16) * 16
            told["fits"] = fits
            arithmetic += f"; {asked} x {available} / {needed} = about {fits} tokens"
    if fits is None or fits <= 0:
        return retell(
            verdict, told, arithmetic=arithmetic, next_action="Lower --max-model-len, or raise gpu-memory-utilization."
        )
    return retell(
        verdict,
        told,
        sentence=(
            f"A context of {asked} tokens does not fit the KV memory; {fits:,} tokens do (the smallest GPU sets it)."
        ),
        arithmetic=arithmetic,
        next_action=f"Start with --max-model-len {fits}; where the GPUs differ in size, compare their memory.",
        fixes=(Fix(label=f"max-model-len {fits}", settings={"context_len": fits}),),
    )


def context_limit(verdict: Verdict, case: Case) -> Verdict:
    """Offers the model's own context length."""
    limit = verdict.figures["limit"]
    return retell(verdict, fixes=(Fix(label=f"max-model-len {limit}", settings={"context_len": limit}),))


def memory_taken(verdict: Verdict, case: Case) -> Verdict:
    """Who holds the rest, and the utilisation that would fit."""
    free, total, wanted = real(verdict, "free_gib"), real(verdict, "total_gib"), real(verdict, "wanted_gib")
    if free is None or total is None or wanted is None:
        return verdict
    fits = math.floor((free / total - 0.01) * 100) / 100 if total else 0.0
    held = round(total - free, 2)
    fixes = (Fix(label=f"utilization {fits:.2f}", settings={"mem_fraction": fits}),) if fits > 0.1 else ()
    return retell(
        verdict,
        {"held_gib": held, "shortfall_gib": round(wanted - free, 2)},
        sentence=f"Other processes hold {held:.2f} GiB of this GPU: {free} GiB are free and {wanted} GiB are wanted.",
        arithmetic=(
            f"total {total} - free {free} = {held:.2f} GiB held; "
            f"wanted {wanted} - free {free} = {wanted - free:.2f} GiB short"
        ),
        next_action="List the processes on this GPU and stop the orphan; only if they must stay, lower "
        "gpu-memory-utilization.",
        fixes=fixes,
    )


_WAIT = re.compile(r"No available shared memory broadcast block found in (\d+) second")


def broadcast_wait(verdict: Verdict, case: Case) -> Verdict | None:
    """Three waits in a row are a worker that hangs or compiles; fewer are normal; progress resets the count."""
    waits, silent = 0, 0
    last_wait = max(i for i, line in enumerate(case.lines) if _WAIT.search(line.text))
    if case.at != next(i for i, line in enumerate(case.lines) if _WAIT.search(line.text)):
        return None
    numbers = []
    for line in case.lines[: last_wait + 1]:
        found = _WAIT.search(line.text)
        if found:
            waits, silent = waits + 1, silent + int(found[1])
            numbers.append(line.number)
        elif re.search(
            r"^(?:Engine \d{3}: Avg|Loading|Capturing|torch\.compile|Graph capturing|\S* Completed)", line.text
        ):
            waits, silent, numbers = 0, 0, []
    if waits < 3:
        return None
    serving = case.phase == "ready"
    return retell(
        verdict,
        {"repeats": waits, "silent_s": silent},
        sentence=(
            f"Workers have been silent for {silent / 60:.0f} min ({waits} repeats)"
            + (" while serving: they hang." if serving else " during the start: they hang or compile.")
        ),
        arithmetic=f"{waits} x {silent // waits} s = {silent} s",
        next_action="Check that the workers' pids live, GPU use and power, and compiler processes; after READY treat "
        "it as a hang.",
        lines=tuple(numbers),
    )

"""How the numbers in SGLang's failure messages are told: arithmetic, fixes, the reading that its texts leave out."""

from __future__ import annotations

import math
import re

from tokpit.domain.verdict import Fix, Verdict
from tokpit.engines.sglang.capacity import HICACHE_RESERVE_BYTES, hicache_allocated_gb, smallest_track_interval
from tokpit.engines.verdictkit.exits import by_status
from tokpit.engines.verdictkit.signature import Case, retell

_RESERVE_GB = HICACHE_RESERVE_BYTES / 2**30


def host_reserve(verdict: Verdict, case: Case) -> Verdict:
    """Releases before 0.4.10 print the free memory with the reserve in it: "free" may then exceed what was asked."""
    asked, free = verdict.figures["asked_gb"], verdict.figures["free_gb"]
    if not isinstance(asked, int | float) or not isinstance(free, int | float):
        return verdict
    before = free >= asked
    usable = free - _RESERVE_GB if before else float(free)
    size = max(0, math.floor(usable))
    how = (
        f"free {free:.2f} GB - {_RESERVE_GB:.0f} GB reserve = {usable:.2f} GB usable < {asked:.2f} GB asked"
        if before
        else f"{free:.2f} GB free (the {_RESERVE_GB:.0f} GB reserve already taken off) < {asked:.2f} GB asked"
    )
    taken, pools = hicache_allocated_gb(line.text for line in case.lines[: case.at])
    if pools > 1:
        how += f"; {pools} pools of this start had asked for {taken:.2f} GB in all: the size counts per rank and pool"
    fixes = (Fix(label=f"hicache {size} GB per rank", settings={"hicache_gb": size}),) if size > 0 else ()
    return retell(
        verdict,
        {"usable_gb": round(usable, 2), "suggested_gb": size, "reserve_gb": _RESERVE_GB},
        sentence=(
            f"The host cache needs {asked:.2f} GB and {_RESERVE_GB:.0f} GB more as reserve; "
            f"{usable:.2f} GB are usable for this rank."
        ),
        arithmetic=how,
        next_action=(
            f"Start with a hicache size of at most {size} GB per rank "
            "(and per pool on hybrid models up to 0.5.16), or free host memory."
            if size
            else "Free host memory, or start without the host cache."
        ),
        fixes=fixes,
    )


def track_interval(verdict: Verdict, case: Case) -> Verdict:
    """The smallest legal interval, where draft tokens and page size are known."""
    draft = (
        verdict.figures.get("draft")
        or (case.settings.spec_draft_tokens if case.settings else None)
        or case.number("speculative_num_draft_tokens")
    )
    page = (
        verdict.figures.get("page")
        or (case.settings.page_size if case.settings else None)
        or case.number("page_size")
        or 1
    )
    interval = verdict.figures.get("interval", "?")
    if not isinstance(draft, int) or not isinstance(page, int):
        return retell(
            verdict, next_action="Use an interval that is at least the draft length and a multiple of the page size."
        )
    legal = smallest_track_interval(draft, page)
    return retell(
        verdict,
        {"draft": draft, "page": page, "smallest": legal},
        sentence=(
            f"mamba_track_interval {interval} is too small for {draft} draft tokens, "
            f"or not a multiple of page size {page}."
        ),
        arithmetic=f"smallest multiple of page size {page} that is >= {draft} = {legal}",
        next_action=f"Start with --mamba-track-interval {legal} (or leave it out: 256).",
        fixes=(
            Fix(
                label=f"track interval {legal}",
                raw_remove=("--mamba-track-interval",),
                raw_add=("--mamba-track-interval", str(legal)),
            ),
        ),
    )


def context_limit(verdict: Verdict, case: Case) -> Verdict:
    """Offers the model's own context length."""
    limit = verdict.figures.get("limit")
    return retell(verdict, fixes=(Fix(label=f"context {limit}", settings={"context_len": limit}),))


def state_memory(verdict: Verdict, case: Case) -> Verdict:
    """Adds the slots that came out, if printed."""
    slots = verdict.figures.get("slots")
    fixes = (Fix(label="bfloat16 state", raw_add=("--mamba-ssm-dtype", "bfloat16")),)
    return retell(
        verdict, arithmetic=f"max_mamba_cache_size came out as {slots}" if slots is not None else "", fixes=fixes
    )


def no_kv(verdict: Verdict, case: Case) -> Verdict:
    """`Not enough memory` wants a larger fraction; an occupied GPU wants its occupant found first."""
    fraction = case.number("mem_fraction_static")
    figures: dict[str, float | str] = {"mem_fraction_static": fraction} if fraction is not None else {}
    now = f" (now {fraction:g})" if fraction is not None else ""
    raised = round(min(0.95, fraction + 0.05), 2) if fraction is not None else None
    return retell(
        verdict,
        figures,
        next_action=(
            f"First see whether another process holds GPU memory; then raise the memory fraction{now}, use more GPUs, "
            "or reserve less (fewer running requests, fewer draft tokens)."
        ),
        fixes=(Fix(label=f"memory fraction {raised}", settings={"mem_fraction": raised}),) if raised else (),
    )


def scheduler_died(verdict: Verdict, case: Case) -> Verdict | None:
    """Names the rank, then reads the exit code, which up to 0.5.x stands on a line of its own below."""
    figures: dict[str, float | str] = {"who": f"The scheduler of rank {verdict.figures.get('rank', '?')}"}
    if "status" not in verdict.figures:
        below = (_EXIT_CODE.match(line.text) for line in case.lines[case.at + 1 : case.at + 20])
        code = next((match for match in below if match), None)
        if code is not None:
            figures["status"] = int(code["status"])
    return by_status(retell(verdict, figures), case)


_EXIT_CODE = re.compile(r"^Exit code: (?P<status>-?\d{1,9})\b")


def subprocess_died(verdict: Verdict, case: Case) -> Verdict | None:
    """Workers that end with the signal by which the server was asked to end have not crashed."""
    asked = any(line.text.startswith("SIGTERM received") for line in case.lines[: case.at])
    return None if asked and verdict.figures.get("status") in (-15, "-15") else by_status(verdict, case)


def watchdog(verdict: Verdict, case: Case) -> Verdict:
    """Names the rank whose watchdog fired."""
    line = case.lines[case.at]
    rank = f" on {line.proc}" if line.proc else ""
    return retell(
        verdict,
        {"process": line.proc} if line.proc else {},
        sentence=f"The watchdog fired{rank}: no progress for {{timeout_s}} s, so the server stopped itself.",
    )

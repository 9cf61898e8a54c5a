"""A level's figures against what was seen of its server. Pure: numbers in, checks out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from tokpit.domain.run import Level
from tokpit.ops.sweep.server import THERMAL, Sample, Seen

if TYPE_CHECKING:
    from tokpit.load.plan import Plan
    from tokpit.load.results import Check, LevelResult

LOST_S = 10.0
"""On the host's clock: a gauge may stand at 0 for a while in a long prefill, so only a long silence counts."""
VOID = frozenset({"CLIENT_BOUND", "OTHER_LOAD", "ZERO_TOKENS_SUSPECT", "CLIENT_LIMIT", "GENERATOR_LOST"})
"""Failed checks after which a level says nothing about the server, if its throughput is among what not to trust."""

_ADVICE = ("run the sweep on the host, or on a quieter machine", "its host has too little processor time to spare")


def judged(result: LevelResult, plan: Plan, seen: Seen, *, on_host: bool = False) -> LevelResult:
    """`result` with the checks that the server's side allows beside the generator's own.

    `on_host`: the load came from the server's host already, so that moving it there is no advice.
    """
    from tokpit.load.checks import run_checks
    from tokpit.load.member import CLOCKS, LOST
    from tokpit.load.results import Check
    from tokpit.load.serverside import ServerSide

    busy = full(seen.settled, result.concurrency)
    side = ServerSide(
        tokens_before=seen.before.values.get("gen_tokens_total") if seen.before is not None else None,
        tokens_after=seen.after.values.get("gen_tokens_total") if seen.after is not None else None,
        running=tuple(s.running for s in busy if s.running is not None),
        queued=tuple(s.queued for s in busy if s.queued is not None),
        hit_tokens=seen.change("prefix_hits_total"),
        query_tokens=seen.change("prefix_queries_total"),
    )
    own = (*run_checks(result, plan, side), *(check for check in result.checks if check.code in (CLOCKS, LOST)))
    checks = [*(others(check, seen.samples) or check for check in own), *throttling(seen)]
    if seen.left_before > 0:
        checks.append(
            Check(
                "BUSY_SERVER",
                False,
                f"{seen.left_before:.0f} requests of others were on the server when the level began",
                ("output_tps", "steady_tps", "ttft_s", "tpot_s", "e2e_s"),
                seen.left_before,
                0,
            )
        )
    if (lost := lost_requests(seen.samples)) is not None:
        checks.append(lost)
    if on_host:
        checks = [replace(check, sentence=check.sentence.replace(*_ADVICE)) for check in checks]
    return replace(result, checks=tuple(checks))


def others(check: Check, samples: Sequence[Sample]) -> Check | None:
    """The check of a client that seems to be the bottleneck, where the server had more requests than this client sent.

    None for every other check, and where the samples do not show any.
    """
    more = [s.running + (s.queued or 0.0) - s.in_flight for s in samples if s.running is not None]
    if check.ok is not False or check.code != "CLIENT_BOUND" or not check.expected or not more:
        return None
    usual = median(more)
    if usual < 1:
        return None
    return replace(
        check,
        code="OTHER_LOAD",
        sentence=f"others used the server: {usual:.0f} requests more than this client had in flight, and "
        f"{check.value:.0f} tokens were made where it counted {check.expected:.0f}",
    )


def full(samples: Sequence[Sample], concurrency: int | None) -> tuple[Sample, ...]:
    """The samples taken while the client had (nearly) all it may have in flight."""
    return tuple(s for s in samples if concurrency is None or s.in_flight >= 0.9 * concurrency)


def lost_requests(samples: Sequence[Sample]) -> Check | None:
    """Requests that the client waits for while the server has nothing to do and nothing comes; None: none seen."""
    from tokpit.load.results import Check

    begun: Sample | None = None
    for before, now in pairwise(samples):
        idle = now.running == 0 and now.queued == 0 and now.in_flight > 0
        still = now.made == before.made and now.received == before.received
        if not (idle and still):
            begun = None
            continue
        begun = begun or before
        if now.t - begun.t >= LOST_S:
            return Check(
                "LOST_REQUESTS",
                False,
                f"{now.in_flight} requests were in flight at the client and none at the server for "
                f"{now.t - begun.t:.0f} s: they are lost",
                ("output_tps", "steady_tps", "e2e_s"),
                now.in_flight,
                0,
            )
    return None


def throttling(seen: Seen) -> list[Check]:
    """GPUs that were slowed down during the level: by heat or a fault (a failed check), by their power limit (none)."""
    from tokpit.load.results import Check

    found: list[Check] = []
    hot = {reason: gpus for reason, gpus in seen.throttled.items() if reason in THERMAL}
    if hot:
        words = ", ".join(f"{reason} on GPU {_list(gpus)}" for reason, gpus in sorted(hot.items()))
        sentence = f"GPUs were slowed down during the level ({words}): the figures are those of a hot or faulty machine"
        found.append(Check("THROTTLED", False, sentence, ("output_tps", "steady_tps", "itl_s", "tpot_s", "e2e_s")))
    if gpus := seen.throttled.get("sw-power-cap"):
        found.append(Check("POWER_CAP", True, f"GPU {_list(gpus)} ran at its power limit, as under full load"))
    return found


def _list(gpus: Sequence[int]) -> str:
    return ", ".join(map(str, gpus))


def void(result: LevelResult) -> str:
    """Why a level says nothing about the server: the sentence of the check; empty where it does."""
    failed = (check for check in result.checks if check.ok is False and check.code in VOID)
    return next((check.sentence for check in failed if "output_tps" in check.distrust), "")


def level_of(result: LevelResult, seen: Seen | None = None, **extra: Any) -> Level:
    """The stored form of a level: its main figures, the generator's full summary, and what was seen of the server.

    Beside the summary's own names, `result` has `void`, `server_running` and `server_queued` (most at once),
    `accept_len`, `throttled` (reasons), and what `extra` gives.
    """
    whole: dict[str, Any] = {**result.to_dict(), "void": void(result), **extra}
    if seen is not None:
        whole["server_running"], whole["server_queued"] = seen.most("running"), seen.most("queued")
        whole["accept_len"] = seen.accept_len
        whole["throttled"] = sorted(reason for reason in seen.throttled if reason in THERMAL)
        whole["server_tokens"] = seen.change("gen_tokens_total")
    return Level(
        concurrency=result.concurrency or result.peak_in_flight,
        requests=result.requests,
        ok=result.ok,
        err=result.err,
        elapsed_s=result.elapsed_s,
        output_tps=result.output_tps or 0.0,
        steady_tps=result.steady_tps,
        avg_output=result.avg_output or 0.0,
        ttft_p50_s=result.ttft_s.p50 if result.ttft_s is not None else None,
        e2e_p50_s=result.e2e_s.p50 if result.e2e_s is not None else None,
        result=whole,
    )

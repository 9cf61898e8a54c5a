"""What it would take to reach a rate: each lever alone, with the arithmetic, and whether it can be pulled that far.

One stream: tok/s = acceptance length x steps/s, and steps/s = share of the ceiling x bandwidth x GPUs / bytes a step.
All streams together: X(m) = m / (alpha + beta m) of m running, fitted to a sweep.
"""

from __future__ import annotations

import math

import msgspec

from tokpit.insight.capacity import running_cap, slots_each
from tokpit.insight.curve import Curve
from tokpit.insight.facts import Facts
from tokpit.insight.fits import batch_fit
from tokpit.insight.gpus import GPUS
from tokpit.insight.parameters import active_gb, is_mixture
from tokpit.insight.roofline import Roofline, stream_roofline
from tokpit.insight.speculation import acceptance_of, draft_length, expected_length
from tokpit.insight.words import listed, num, percent

USUAL_SHARE = 0.8
"""Share of the memory ceiling that a good server reaches with one stream; taken where none is measured."""
BEST_SHARE = 0.92
ENOUGH, ALONE, NEVER, UNKNOWN = "there", "would do", "not enough", "not known"


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One lever. `verdict`: `there` (it is reached), `would do`, `not enough` or `not known`."""

    lever: str
    now: str
    needed: str
    verdict: str
    arithmetic: str
    how: str = ""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What a rate takes. `missing`: facts without which more cannot be said."""

    target_tps: float
    streams: str
    """`one` or `all`."""
    now_tps: float | None
    sentence: str
    ways: tuple[Way, ...] = ()
    missing: tuple[str, ...] = ()


def reach_one(facts: Facts, target: float) -> Reach:
    """What `target` tok/s of one stream takes."""
    now = facts.single_tps or facts.spec_tps or facts.baseline_tps
    length = (facts.accept_len or 1.0) if now != facts.baseline_tps or facts.single_tps else 1.0
    roof = stream_roofline(facts)
    missing = []
    if now is None:
        missing.append("the rate of one stream now (single_tps, or a log with one request running)")
    if not facts.weights_gb:
        missing.append("bytes of the weights (weights_gb)")
    if roof is None and facts.weights_gb:
        unread = is_mixture(facts) and active_gb(facts) is None
        missing.append(
            "bytes of the weights that one token reads of this mixture of experts (active_gb)"
            if unread
            else "the GPU or its bandwidth (gpu, bandwidth_gbps)"
        )
    if now is not None and now >= target:
        return Reach(
            target_tps=target, streams="one", now_tps=now, sentence=f"{num(target)} tok/s is there: {num(now)} now."
        )
    steps = now / length if now is not None else None
    share = steps / roof.steps_per_s if steps is not None and roof is not None else None
    ways = []
    if steps is not None:
        ways.append(_length(facts, target, steps, length))
    if roof is not None:
        used = min(share, 1.0) if share is not None else USUAL_SHARE
        word = "measured" if share is not None else "usual"
        ways += [
            _step(target, length, roof, share),
            _weights(target, length, roof, used, word),
            _bandwidth(target, length, roof, used, word),
            _gpus(target, length, roof, used, word),
        ]
    return Reach(
        target_tps=target,
        streams="one",
        now_tps=now,
        sentence=_sentence(target, now, ways, "of one stream"),
        ways=tuple(ways),
        missing=tuple(missing),
    )


def _length(f: Facts, target: float, steps: float, length: float) -> Way:
    needed = target / steps
    k = draft_length(f)
    p = acceptance_of(length, k) if k else None
    sums = f"{num(target)} / {num(steps)} steps/s = {num(needed)}"
    if p is None:
        known = "not known" if length <= 1 else num(length)
        return Way(
            lever="acceptance length",
            now=known if length > 1 else "1 (no speculation)",
            needed=num(needed),
            verdict=UNKNOWN,
            arithmetic=f"{sums}, at the step time of now",
            how="Acceptance with other drafts is not known: measure one, tok/s decides.",
        )
    most = 1 / (1 - p) if p < 1 else math.inf
    enough = next((j for j in range(1, 17) if expected_length(p, j) >= needed), None)
    row = ", ".join(f"{j}: {num(expected_length(p, j))}" for j in (1, 2, 3, 4, 6, 8))
    sums += f"; p = {num(p, 2)}: 1 + p + ... + p^k by draft tokens {row}; never over 1 / (1 - p) = {num(most)}"
    if enough is None:
        verdict, how = NEVER, "No draft length reaches it with this acceptance; it takes a better drafter."
    else:
        verdict = ALONE if enough > (k or 0) else ENOUGH
        how = f"{enough} draft tokens, if a step then costs no more than now: longer drafts make it longer."
    return Way(
        lever="acceptance length", now=num(length), needed=num(needed), verdict=verdict, arithmetic=sums, how=how
    )


def _step(target: float, length: float, roof: Roofline, share: float | None) -> Way:
    needed = target / length / roof.steps_per_s
    verdict = NEVER if needed > BEST_SHARE else ALONE if share is not None else UNKNOWN
    how = {
        NEVER: "This GPU cannot make steps that fast with these bytes.",
        ALONE: "Steps nearer to the ceiling: graphs on, newer kernels, less communication.",
    }.get(verdict, "")
    return Way(
        lever="share of the memory ceiling",
        now=percent(share) if share is not None else "not measured",
        needed=percent(needed),
        verdict=verdict,
        arithmetic=f"{num(target)} / {num(length)} = {num(target / length)} steps/s of {num(roof.steps_per_s)} "
        f"({roof.words()}); good servers reach 70 to 90%",
        how=how,
    )


def _weights(target: float, length: float, roof: Roofline, share: float, word: str) -> Way:
    beside = roof.kv_gb + roof.state_gb
    needed = max(0.0, share * roof.bandwidth_gbps * length / target - beside)
    ratio = needed / roof.each_gb
    verdict = ALONE if ratio >= 0.25 else NEVER
    kind = next((name for name, left in (("8 bit", 0.55), ("4 bit", 0.3)) if ratio >= left), None)
    if ratio >= 1:
        verdict, how = ENOUGH, "The weights are small enough; something else holds it back."
    elif kind is not None:
        how = f"If they are 16 bit now, {kind} has about {'half' if kind == '8 bit' else 'a third of'} the bytes."
    else:
        how = "Less than a quarter of the bytes: no usual quantization of 16-bit weights gets there."
    return Way(
        lever="bytes of weights on a GPU",
        now=f"{num(roof.each_gb)} GB",
        needed=f"{num(needed)} GB",
        verdict=verdict,
        arithmetic=f"{percent(share)} ({word}) x {num(roof.bandwidth_gbps, 4)} GB/s x {num(length)} / {num(target)} "
        f"tok/s{f' - {num(beside)} GB of KV and state' if beside else ''} = {num(needed)} GB, {percent(ratio)} of now",
        how=how,
    )


def _bandwidth(target: float, length: float, roof: Roofline, share: float, word: str) -> Way:
    needed = target / length * roof.step_gb / share
    fits = sorted({g.bandwidth_gbps: g.name for g in GPUS.values() if g.bandwidth_gbps >= needed}.items())[:3]
    names = [f"{name} ({num(rate, 4)})" for rate, name in fits]
    verdict = ENOUGH if needed <= roof.bandwidth_gbps else ALONE if names else NEVER
    return Way(
        lever="memory bandwidth of a GPU",
        now=f"{num(roof.bandwidth_gbps, 4)} GB/s",
        needed=f"{num(needed, 4)} GB/s",
        verdict=verdict,
        arithmetic=f"{num(target)} / {num(length)} steps/s x {num(roof.step_gb)} GB / {percent(share)} ({word}) = "
        f"{num(needed, 4)} GB/s",
        how=f"For example {listed(names)}." if names else "No GPU of the table has it.",
    )


def _gpus(target: float, length: float, roof: Roofline, share: float, word: str) -> Way:
    needed = target / length * roof.weights_gb / (share * roof.bandwidth_gbps)
    count = 2 ** math.ceil(math.log2(max(1.0, needed)))
    verdict = ENOUGH if count <= roof.gpus else ALONE if count <= 8 else NEVER
    return Way(
        lever="GPUs that share the weights (tp)",
        now=str(roof.gpus),
        needed=f"{num(needed, 2)}, so {count}",
        verdict=verdict,
        arithmetic=f"{num(target)} / {num(length)} steps/s x {num(roof.weights_gb)} GB / ({percent(share)} ({word}) x "
        f"{num(roof.bandwidth_gbps, 4)} GB/s) = {num(needed)}",
        how="At the same share of the ceiling; communication takes some of it, more without NVLink."
        if verdict == ALONE
        else "",
    )


def reach_all(facts: Facts, curve: Curve | None, target: float) -> Reach:
    """What `target` tok/s of all streams together takes; needs a sweep."""
    if curve is None:
        return Reach(
            target_tps=target,
            streams="all",
            now_tps=None,
            sentence="What all streams make together cannot be said without a sweep.",
            missing=("a sweep (--sweep, --run)",),
        )
    peak = curve.peak
    if peak.tps >= target:
        least = next(p for p in curve.points if p.tps >= target)
        return Reach(
            target_tps=target,
            streams="all",
            now_tps=peak.tps,
            sentence=f"{num(target)} tok/s is there: {num(least.tps, 4)} at C={least.concurrency}.",
        )
    cap = running_cap(facts)
    limit = float(cap.value) if cap is not None else curve.cap_in_curve or math.inf
    fit = batch_fit([(float(p.concurrency), p.tps) for p in curve.points], limit)
    if fit is None:
        return Reach(
            target_tps=target,
            streams="all",
            now_tps=peak.tps,
            sentence=f"{num(peak.tps, 4)} tok/s is the best; the sweep has too few levels to go on from.",
            missing=("three levels or more",),
        )
    ways = _of_batch(facts, fit.parameters["alpha"], fit.parameters["beta"], target, limit)
    return Reach(
        target_tps=target,
        streams="all",
        now_tps=peak.tps,
        sentence=_sentence(target, peak.tps, ways, "of all streams", together=True),
        ways=tuple(ways),
    )


def _of_batch(f: Facts, alpha: float, beta: float, target: float, limit: float) -> list[Way]:
    most = 1 / beta if beta > 0 else math.inf
    model = f"X(m) = m / ({num(alpha)} + {num(beta)} m) tok/s of m running, fitted to the sweep"
    if target >= most:
        faster = target * beta
        return [
            Way(
                lever="running at once",
                now="any" if limit == math.inf else f"at most {num(limit)}",
                needed="not to be had",
                verdict=NEVER,
                arithmetic=f"{model}; never over 1 / {num(beta)} = {num(most, 4)} tok/s",
                how="More at once does not bring it: each request has to cost less, or there have to be more replicas.",
            ),
            Way(
                lever="cost of one more request in a step",
                now=f"{num(1000 * beta)} ms a token",
                needed=f"under {num(1000 / target)} ms",
                verdict=UNKNOWN,
                arithmetic=f"{num(1000 * beta)} ms / {num(faster)} = {num(1000 / target)} ms a token",
                how="Shorter contexts, a smaller KV type, a faster GPU, or a second replica.",
            ),
        ]
    needed = math.ceil(target * alpha / (1 - target * beta) - 1e-9)
    far = limit != math.inf and needed > 3 * limit
    ways = [
        Way(
            lever="running at once",
            now="any" if limit == math.inf else f"at most {num(limit)}",
            needed=str(needed),
            verdict=ENOUGH if needed <= limit else UNKNOWN if far else ALONE,
            arithmetic=f"{model}; m = {num(target)} x {num(alpha)} / (1 - {num(target)} x {num(beta)}) = {needed}",
            how="Extrapolated far beyond what was measured." if far else "Extrapolated: sweep again after the change.",
        )
    ]
    each = slots_each(f)
    if f.state_slots and each:
        slots = needed * each
        ways.append(
            Way(
                lever="state slots",
                now=str(f.state_slots),
                needed=str(slots),
                verdict=ENOUGH if slots <= f.state_slots else ALONE,
                arithmetic=f"{needed} running x {each} slots each = {slots}",
                how="" if slots <= f.state_slots else "More state slots, or states of half the size.",
            )
        )
    length = (f.input_tokens or 0) + (f.requested_output or f.output_tokens or 0)
    if f.kv_tokens and length:
        tokens = needed * length
        ways.append(
            Way(
                lever="KV tokens",
                now=num(f.kv_tokens, 6),
                needed=num(tokens, 6),
                verdict=ENOUGH if tokens <= f.kv_tokens else ALONE,
                arithmetic=f"{needed} running x {num(length, 6)} tokens each = {num(tokens, 6)}",
                how="" if tokens <= f.kv_tokens else "More memory for the KV cache, or a smaller KV type.",
            )
        )
    return ways


def _sentence(target: float, now: float | None, ways: list[Way], what: str, *, together: bool = False) -> str:
    text = f"{num(target)} tok/s {what}" + (f", {num(now, 4)} now" if now is not None else "")
    alone = [f"{way.lever} {way.needed}" for way in ways if way.verdict == ALONE]
    never = [way.lever for way in ways if way.verdict == NEVER]
    if alone and together:
        return f"{text}: needs {listed(alone)}."
    if alone:
        joined = "; ".join(alone)
        return f"{text}: needs one of these, each alone: {joined}." if len(alone) > 1 else f"{text}: {joined}."
    if never:
        return f"{text}: no single change reaches it ({listed(never)} {'are' if len(never) > 1 else 'is'} not enough)."
    return f"{text}: what it takes cannot be said from these facts." if not ways else f"{text}: see each lever."

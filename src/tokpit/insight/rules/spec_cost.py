"""What speculation costs and pays for one stream, and what a longer or shorter draft would pay."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.facts import Facts
from tokpit.insight.roofline import Roofline, stream_roofline
from tokpit.insight.speculation import Gain, acceptance_of, draft_length, expected_length, gains, step_ratio
from tokpit.insight.words import num, percent, seconds

_PLACES = (
    "Recover the earlier deployment before changing anything: unit files (systemctl cat), the journal, older server "
    "logs "
    "(server_args=), and the versions of the packages in its environment; shell history may hold only inspection "
    "commands. "
    "Compare flags, quantization and workload"
)


def cost(evidence: Evidence) -> Sequence[Finding]:
    """The cost of a speculative step against a plain one, where both rates of one stream are known."""
    f = evidence.facts
    if not (f.spec_tps and f.baseline_tps and f.accept_len):
        return ()
    ratio = step_ratio(f.accept_len, f.spec_tps, f.baseline_tps)
    spec_step, plain_step = f.accept_len / f.spec_tps, 1 / f.baseline_tps
    speedup = f.spec_tps / f.baseline_tps
    sums = (
        f"step = acceptance length / tok/s = {num(f.accept_len)} / {num(f.spec_tps)} = {seconds(spec_step)}; without "
        f"{seconds(plain_step)}; ratio {num(ratio)}; speed-up {num(f.spec_tps)} / {num(f.baseline_tps)} = "
        f"{num(speedup)}"
    )
    figures: dict[str, float | str] = {"step_ratio": ratio, "speedup": speedup, "break_even_accept_len": ratio}
    k = draft_length(f)
    if ratio > f.accept_len * 1.02:
        shorter = (
            f"Use a shorter block: {k} tokens are verified every step"
            if k and k > 4
            else "Turn speculation off for this model and hardware"
        )
        return (
            Finding(
                code="SPEC_OVERHEAD",
                severity="warning",
                claim=f"Speculation loses: acceptance is fine ({num(f.accept_len)}), but a speculative step costs "
                f"{num(ratio)} plain ones."
                if f.accept_len - 1 >= 0.4 * (k or 1)
                else f"Speculation loses: a speculative step costs {num(ratio)} plain ones, which an acceptance "
                f"length of "
                f"{num(f.accept_len)} cannot pay for.",
                arithmetic=f"{sums}; break-even: the ratio must be below the acceptance length"
                + (f"; draft tokens = (length - 1) / rate = {k}" if k else "")
                + _state_words(f),
                next_action=f"{shorter}, or for sparse mixtures of experts at low batch none at all; a better drafter "
                f"alone would need an acceptance length of {num(ratio)}.",
                figures=figures,
            ),
        )
    return (
        Finding(
            code="SPEC_STEP_COST",
            severity="info",
            claim=f"Speculation makes one stream {num(speedup, 2)} times as fast, not {num(f.accept_len, 2)} times: a "
            f"speculative step takes {seconds(spec_step, 2)} where a plain one takes {seconds(plain_step, 2)}. It pays "
            f"while the acceptance length is above {num(ratio)}.",
            arithmetic=sums + _gain_words(f, ratio) + _state_words(f),
            next_action="Compare draft lengths by tok/s, never by acceptance length.",
            figures=figures,
        ),
    )


def _gain_words(f: Facts, ratio: float) -> str:
    k = draft_length(f)
    p = acceptance_of(f.accept_len or 1.0, k) if k else None
    if k is None or p is None:
        return ""
    row = ", ".join(_gain(g) for g in gains(p, ratio, k, positions=f.per_position or ()))
    return (
        f"; predicted speed-up by draft tokens with p = {num(p, 2)}, each at the same cost (in brackets the range to "
        f"one fixed cost of drafting): {row}"
    )


def _gain(gain: Gain) -> str:
    low, high = gain.span
    range_ = f" ({num(low)} to {num(high)})" if high > 1.03 * low else ""
    return f"{gain.k}: {num(gain.speedup)}{range_}"


def _state_words(f: Facts) -> str:
    """What draft tokens keep of recurrent state, in slots of the pool."""
    if not (f.spec_state_gb and f.state_pool_gb and f.state_slots):
        return ""
    slot = f.state_pool_gb / f.state_slots
    return (
        f"; for them the server keeps {num(f.spec_state_gb)} GB of intermediate states beside its {f.state_slots} "
        f"slots of {num(1000 * slot)} MB: the memory of {num(f.spec_state_gb / slot)} slots"
    )


def gap(evidence: Evidence) -> Sequence[Finding]:
    """A rate that somebody remembers of one stream, against what this hardware and this draft can give."""
    f = evidence.facts
    if not f.remembered_tps or not f.single_tps or f.remembered_tps < 1.1 * f.single_tps:
        return ()
    roof = stream_roofline(f)
    length = f.accept_len or 1.0
    steps = f.single_tps / length
    wanted = f.remembered_tps
    sums = [
        f"step = {num(length)} / {num(f.single_tps)} = {num(1000 * length / f.single_tps)} ms, {num(steps)} steps/s"
    ]
    figures: dict[str, float | str] = {"step_ms": 1000 * length / f.single_tps, "steps_per_s": steps}
    needs = wanted / steps
    if roof is not None:
        needs = roof.length_for(wanted)
        share = steps / roof.steps_per_s
        sums.append(
            f"ceiling {roof.words()} = {num(1000 * roof.step_s)} ms, {num(roof.steps_per_s)} steps/s: {percent(share)} "
            "of it"
        )
        sums.append(
            f"{num(wanted)} tok/s needs acceptance length {num(wanted)} / {num(roof.steps_per_s)} = {num(needs)}"
        )
        sums.append(f"or at most {num(roof.weights_for(wanted), 2)} GB of weights a GPU without speculation")
        figures |= {"ceiling_steps_per_s": roof.steps_per_s, "share_of_ceiling": share, "accept_len_needed": needs}
    else:
        sums.append(f"{num(wanted)} tok/s at this step needs acceptance length {num(needs)}")
    k = draft_length(f)
    p = acceptance_of(f.accept_len, k) if f.accept_len and k else None
    if p is not None:
        sums.append(
            f"p = {num(p, 2)}: expected length "
            + ", ".join(f"{num(expected_length(p, j))}" for j in range(1, 5))
            + " for 1 to 4 draft tokens"
        )
    speculates = bool(f.accept_len and f.accept_len > 1.02)
    short = (
        speculates and k is not None and p is not None and k <= 4 and expected_length(p, 8) > (f.accept_len or 1) * 1.1
    )
    return (
        Finding(
            code="SPEC_TOO_SHORT"
            if short
            else "RATE_ABOVE_CEILING"
            if needs > 1 and not speculates
            else "GAP_UNEXPLAINED",
            severity="warning",
            claim=_gap_claim(f, roof, steps, needs, k, short=short),
            arithmetic="; ".join(sums),
            next_action=f"{_PLACES}" + (f"; then try {min(4, (k or 1) + 2)} draft steps." if short else "."),
            figures=figures,
        ),
    )


def _gap_claim(f: Facts, roof: Roofline | None, steps: float, needs: float, k: int | None, *, short: bool) -> str:
    wanted = f.remembered_tps or 0.0
    if roof is not None:
        share = steps / roof.steps_per_s
        text = (
            f"One stream makes {num(steps)} steps/s, {percent(share)} of the memory-bandwidth ceiling of "
            f"{num(roof.steps_per_s)}. {num(wanted)} tok/s needs an acceptance length of at least {num(needs, 2)} at "
            f"this "
            f"step ceiling, or weights of at most {num(roof.weights_for(wanted), 2)} GB a GPU, or a faster GPU"
        )
        if wanted > roof.steps_per_s:
            text += (
                "; without speculation it is impossible here, so the remembered figure came from another configuration"
            )
    else:
        text = (
            f"One stream makes {num(steps)} steps/s; {num(wanted)} tok/s needs an acceptance length of {num(needs, 2)}"
        )
    if short:
        text += f". Drafts of {k} are too short: more tok/s comes from longer accepted drafts, not from memory"
    return text + "."

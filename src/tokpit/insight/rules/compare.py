"""Several runs side by side: what makes the difference."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.curve import Curve
from tokpit.insight.evidence import Evidence, Trial
from tokpit.insight.words import listed, num, percent


def _with(trials: Sequence[Trial], *names: str) -> list[Trial]:
    return [t for t in trials if all(t.figures.get(name) is not None for name in names)]


def tensor_parallel(evidence: Evidence) -> Sequence[Finding]:
    """One stream gets slower with more GPUs."""
    runs = sorted(_with(evidence.trials, "tp", "tok_s"), key=lambda t: t.figures["tp"])
    if len({t.figures["tp"] for t in runs}) < 2:
        return ()
    base, rest = runs[0], runs[1:]
    if any(t.figures["tok_s"] > 1.02 * base.figures["tok_s"] for t in rest):
        return ()
    loss = 1 - rest[0].figures["tok_s"] / base.figures["tok_s"]
    each = ", ".join(f"tp {num(t.figures['tp'])}: {num(t.figures['tok_s'] / t.figures['tp'])}" for t in runs)
    return (
        Finding(
            code="TP_NEGATIVE_SCALING",
            severity="warning",
            claim=f"Tensor parallelism of {num(rest[0].figures['tp'])} costs {percent(loss)} of one stream's rate: "
            "communication takes more than the smaller share of the weights saves.",
            arithmetic=f"tok/s per GPU: {each}",
            next_action=f"Run replicas with tp {num(base.figures['tp'])}; use more GPUs a replica only for capacity.",
        ),
    )


def acceptance(evidence: Evidence) -> Sequence[Finding]:
    """The run with the longest acceptance is not the fastest."""
    runs = _with(evidence.trials, "accept_len", "tok_s")
    if len(runs) < 2:
        return ()
    longest = max(runs, key=lambda t: t.figures["accept_len"])
    valid = [t for t in runs if not t.figures.get("bad_outputs")]
    fastest = max(valid or runs, key=lambda t: t.figures["tok_s"])
    if longest.figures["tok_s"] >= 0.97 * max(t.figures["tok_s"] for t in runs):
        return ()
    steps = ", ".join(f"{t.name} {num(1000 * t.figures['accept_len'] / t.figures['tok_s'])} ms" for t in runs)
    broken = [t.name for t in runs if t.figures.get("bad_outputs")]
    return (
        Finding(
            code="ACCEPT_NOT_SPEED",
            severity="warning",
            claim=f"The longest acceptance length ({num(longest.figures['accept_len'])}, {longest.name}) is not the "
            f"fastest "
            f"run: its steps take longer."
            + (f" {listed(broken)} gives broken output and is out of the comparison." if broken else ""),
            arithmetic=f"step = acceptance length / tok/s: {steps}",
            next_action=f"Rank by tok/s and valid output: {fastest.name} ({num(fastest.figures['tok_s'])} tok/s).",
        ),
    )


def overhead(evidence: Evidence) -> Sequence[Finding]:
    """A run with speculation that is slower than one without; the cost of a step tells why."""
    plain = [t for t in _with(evidence.trials, "tok_s") if "accept_len" not in t.figures]
    spec = _with(evidence.trials, "tok_s", "accept_len")
    if len(plain) != 1 or len(spec) != 1:
        return ()
    base, run = plain[0].figures["tok_s"], spec[0].figures
    ratio = run["accept_len"] * base / run["tok_s"]
    if ratio <= run["accept_len"] * 1.02:
        return ()
    return (
        Finding(
            code="SPEC_OVERHEAD",
            severity="warning",
            claim=f"Speculation loses ({num(run['tok_s'])} against {num(base)} tok/s) although "
            f"{num(run['accept_len'])} "
            f"tokens come out of a step: a speculative step costs {num(ratio)} plain ones.",
            arithmetic=f"({num(run['accept_len'])} / {num(run['tok_s'])}) / (1 / {num(base)}) = {num(ratio)}; it pays "
            f"only "
            "where that is below the acceptance length",
            next_action="Turn speculation off for this model and hardware, or draft fewer tokens.",
            figures={"step_ratio": ratio},
        ),
    )


def backend(evidence: Evidence) -> Sequence[Finding]:
    """Attention backends that differ on long contexts only."""
    runs = [t for t in _with(evidence.trials, "short", "long") if t.labels.get("backend") or t.name]
    if len(runs) < 2:
        return ()
    best, worst = (f(runs, key=lambda t: t.figures["long"]) for f in (max, min))
    long = best.figures["long"] / worst.figures["long"] - 1
    short = best.figures["short"] / worst.figures["short"] - 1
    if long < 0.1:
        return ()
    names = [t.labels.get("backend") or t.name for t in (best, worst)]
    return (
        Finding(
            code="ATTENTION_BACKEND",
            severity="warning",
            claim=f"{names[0]} is {percent(long)} faster than {names[1]} on long contexts, and "
            + (
                f"{percent(short)} on short ones: it matters only with length."
                if abs(short) < 0.1
                else "faster on short."
            ),
            arithmetic=f"long {num(best.figures['long'], 4)} / {num(worst.figures['long'], 4)}; short "
            f"{num(best.figures['short'], 4)} / {num(worst.figures['short'], 4)}",
            next_action="Compare backends at the real context length before choosing one.",
            figures={"gain_long": long},
        ),
    )


def cold_start(evidence: Evidence) -> Sequence[Finding]:
    """Two runs differ, and all of the difference is the time to the first token."""
    runs = _with(evidence.trials, "tok_s", "decode_tok_s", "ttft_s")
    if len(runs) != 2:
        return ()
    slow, fast = sorted(runs, key=lambda t: t.figures["tok_s"])
    decode = slow.figures["decode_tok_s"] / fast.figures["decode_tok_s"]
    if slow.figures["tok_s"] > 0.97 * fast.figures["tok_s"] or abs(decode - 1) > 0.03:
        return ()
    return (
        Finding(
            code="COLD_START",
            severity="warning",
            claim=f"{slow.name} and {fast.name} differ only in TTFT ({num(slow.figures['ttft_s'])} against "
            f"{num(fast.figures['ttft_s'])} s): decoding is equal.",
            arithmetic=f"decode {num(slow.figures['decode_tok_s'])} / {num(fast.figures['decode_tok_s'])} = "
            f"{num(decode)}",
            next_action="Warm up before measuring, and compare TTFT and decode rate apart.",
        ),
    )


def same_time(evidence: Evidence) -> Sequence[Finding]:
    """Rates differ by times while latencies and usage agree: the counting differs, not the speed."""
    runs = _with(evidence.trials, "tok_s", "latency_s")
    if len(runs) != 2:
        return ()
    slow, fast = sorted(runs, key=lambda t: t.figures["tok_s"])
    latency = slow.figures["latency_s"] / fast.figures["latency_s"]
    if slow.figures["tok_s"] > 0.7 * fast.figures["tok_s"] or not 0.8 < latency < 1.25:
        return ()
    usage = [t.figures.get("usage_tokens") for t in runs]
    return (
        Finding(
            code="COUNT_MISMATCH",
            severity="error",
            claim=f"{num(slow.figures['tok_s'])} against {num(fast.figures['tok_s'])} tok/s, but the same wall time "
            f"({num(slow.figures['latency_s'])} and {num(fast.figures['latency_s'])} s)"
            + (" and the same usage tokens" if usage[0] is not None and usage[0] == usage[1] else "")
            + ": no slowdown, the output was lost in counting. Look at its correctness.",
            arithmetic=f"latency ratio {num(latency)}, rate ratio "
            f"{num(slow.figures['tok_s'] / fast.figures['tok_s'], 2)}",
            next_action="Count usage tokens, and read a sample of the output: empty or garbage text is a fault of "
            "correctness, not of speed.",
        ),
    )


def sweeps(evidence: Evidence) -> Sequence[Finding]:
    """Two sweeps aligned by C: levels at which one falls behind the other that it kept up with before."""
    if evidence.curve is None:
        return ()
    found = []
    for name, other in evidence.others:
        cliff = _parting(evidence.curve, other)
        if cliff is not None:
            a, b, ratio = cliff
            found.append(
                Finding(
                    code="SWEEP_CLIFF",
                    severity="warning",
                    claim=f"Between C={a} and C={b} {name} falls to {percent(ratio)} of the other sweep's rate, after "
                    f"it "
                    "kept up below: something switches there in one of them.",
                    next_action=f"Measure the levels between C={a} and C={b}; look for a schedule or a captured batch "
                    "that ends there.",
                    levels=(a, b),
                )
            )
    return found


def _parting(first: Curve, other: Curve) -> tuple[int, int, float] | None:
    known = {p.concurrency: p.tps for p in first.points}
    both = [(p.concurrency, p.tps / known[p.concurrency]) for p in other.points if p.concurrency in known]
    for (a, before), (b, after) in itertools.pairwise(both):
        if after < 0.6 * before and other.cliffs == ():
            return a, b, after
    return None


def crossing(evidence: Evidence) -> Sequence[Finding]:
    """Two sweeps of which one is faster at few requests and the other at many."""
    if evidence.curve is None:
        return ()
    known = {p.concurrency: p.tps for p in evidence.curve.points}
    found = []
    for name, other in evidence.others:
        both = [(p.concurrency, p.tps / known[p.concurrency]) for p in other.points if p.concurrency in known]
        if len(both) < 2 or other.cliffs or evidence.curve.cliffs:
            continue
        (low, first), (high, last) = both[0], both[-1]
        if not ((first > 1.05 and last < 0.95) or (first < 0.95 and last > 1.05)):
            continue
        found.append(
            Finding(
                code="SWEEPS_CROSS",
                severity="info",
                claim=f"{name} gives {percent(first)} of the other sweep's rate at C={low} and {percent(last)} at "
                f"C={high}: "
                "which is better depends on the load.",
                arithmetic=", ".join(f"C={c}: {num(ratio)}" for c, ratio in both),
                next_action="Choose by the concurrency that is really served.",
                levels=(low, high),
            )
        )
    return found


def history(evidence: Evidence) -> Sequence[Finding]:
    """A rate far above all earlier runs of the same profile."""
    curve, known = evidence.curve, evidence.known_tps
    if curve is None or not known or curve.peak.tps <= 3 * known:
        return ()
    return (
        Finding(
            code="WARM_PREFIX",
            severity="warning",
            claim=f"{num(curve.peak.tps)} tok/s is {num(curve.peak.tps / known, 2)} times the best of earlier runs of "
            f"this "
            "profile: prompts from a cache, another model or other lengths.",
            confidence="possible",
            next_action="Look at prefix hits and output lengths before believing it.",
        ),
    )

"""Checks over plain figures, wherever they come from: this generator, another tool's report, an earlier run."""

from __future__ import annotations

from collections.abc import Sequence

from .results import Check


def peak_vs_mean(peak_tps: float, mean_tps: float, accept_len: float | None = None) -> Check:
    """A best second below the average is impossible: it counted chunks, where the average counted tokens."""
    ok = peak_tps >= mean_tps * 0.95
    sentence = f"the best second ({peak_tps:.1f} tok/s) is not below the average ({mean_tps:.1f})"
    if not ok:
        per_chunk = mean_tps / peak_tps if peak_tps > 0 else float("inf")
        sentence = (
            f"the best second ({peak_tps:.1f} tok/s) is below the average ({mean_tps:.1f} tok/s), which is impossible: "
            f"it counts chunks, each of at least {per_chunk:.1f} tokens"
        )
        if accept_len:
            sentence += f"; at {accept_len:g} tokens a chunk it is about {peak_tps * accept_len:.0f} tok/s"
    return Check("CHUNKS_NOT_TOKENS", ok, sentence, () if ok else ("peak_tps",), peak_tps, mean_tps)


def itl_vs_throughput(itl_s: float, streams: float, tps: float) -> Check:
    """`streams` that decode at once with one token every `itl_s` make streams / itl_s tokens/s."""
    implied = streams / itl_s if itl_s > 0 else float("inf")
    per_gap = tps / implied if implied > 0 else float("inf")
    ok = 0.8 <= per_gap <= 1.2
    sentence = f"ITL {itl_s * 1e3:.2f} ms and {tps:.1f} tok/s over {streams:.3g} streams agree"
    if per_gap > 1.2:
        sentence = (
            f"ITL {itl_s * 1e3:.2f} ms x {tps:.1f} tok/s over {streams:.3g} streams is {per_gap:.2f} tokens per gap: "
            f"this latency is per chunk, per token it is {itl_s * 1e3 / per_gap:.2f} ms"
        )
    elif not ok:
        sentence = (
            f"ITL {itl_s * 1e3:.2f} ms would give {implied:.1f} tok/s over {streams:.3g} streams, but {tps:.1f} were "
            f"counted: streams stood still, or tokens are missing"
        )
    return Check("ITL_IS_PER_CHUNK", ok, sentence, () if ok else ("itl_s",), per_gap, 1.0)


def uniform_timeouts(completed: int, failed_after_s: Sequence[float]) -> Check:
    """Failures that all took the same time are the client's own limit, not the server."""
    if len(failed_after_s) < 2:
        return Check("CLIENT_TIMEOUT", None, "fewer than two failures")
    low, high = min(failed_after_s), max(failed_after_s)
    ok = low <= 0 or (high - low) > 0.01 * high
    sentence = f"{len(failed_after_s)} failures between {low:.1f} and {high:.1f} s"
    if not ok:
        total = completed + len(failed_after_s)
        sentence = (
            f"{len(failed_after_s)} of {total} requests failed, all after {high:.1f} s: that is a limit of the client, "
            f"and throughput counts the {completed} others only"
        )
    return Check("CLIENT_TIMEOUT", ok, sentence, () if ok else ("output_tps", "request_tps"), high)


def length_vs_nominal(nominal: float, actual: float, what: str = "output") -> Check:
    """The mean length against the one that was asked for; off by over 5 % is another workload."""
    share = actual / nominal if nominal > 0 else float("inf")
    ok = 0.95 <= share <= 1.05
    sentence = f"{what} length {actual:.0f} tokens on average, {share:.0%} of the {nominal:.0f} asked for"
    if not ok:
        sentence += ": compare only with runs of the same real length"
    return Check("LENGTH_MISMATCH", ok, sentence, () if ok else (f"avg_{what}",), actual, nominal)


def prefill_vs_history(now_tps: float, before_tps: float) -> Check:
    """Prefill over three times as fast as before with the same settings came from a cache."""
    ratio = now_tps / before_tps if before_tps > 0 else float("inf")
    ok = ratio <= 3
    sentence = f"prefill {now_tps:.0f} tok/s, {ratio:.2g} times the earlier {before_tps:.0f}"
    if not ok:
        sentence += ": the prompt came from a cache, perhaps one that outlived a restart"
    return Check("WARM_PREFIX", ok, sentence, () if ok else ("ttft_s", "total_tps"), now_tps, before_tps)


def hit_rate(hits: float, queries: float, share_asked: float = 0.0, allowance: float = 0.02) -> Check:
    """Prompt tokens out of the prefix cache against the share that the plan meant to be shared."""
    if queries <= 0:
        return Check("WARM_PREFIX", None, "no prompt tokens were looked up in the prefix cache")
    rate = hits / queries
    ok = rate <= share_asked + allowance
    sentence = f"{rate:.0%} of the prompt tokens came from the prefix cache"
    if not ok:
        sentence += f", {share_asked:.0%} were meant to: TTFT and total throughput are those of a warm cache"
    return Check("WARM_PREFIX", ok, sentence, () if ok else ("ttft_s", "total_tps"), rate, share_asked)


def uniqueness(unique: int, total: int) -> Check:
    """Different prompts among all; repeats let a prefix cache answer."""
    if total <= 0:
        return Check("DUPLICATE_PROMPTS", None, "no prompts")
    share = unique / total
    ok = unique == total
    sentence = f"{unique} different prompts in {total} requests"
    if not ok:
        sentence += ": repeated prompts may be answered from the prefix cache"
    return Check("DUPLICATE_PROMPTS", ok, sentence, () if ok else ("ttft_s", "total_tps"), share, 1.0)


def slowdown_cause(
    *, ttft_a_s: float, e2e_a_s: float, tokens_a: int, ttft_b_s: float, e2e_b_s: float, tokens_b: int
) -> tuple[str, str]:
    """What made run A slower than run B: (`none`, `ttft`, `decode` or `both`, one sentence).

    Equal time per request with equal token counts is no slowdown, whatever a text-based count of tokens says.
    """
    decode_a, decode_b = e2e_a_s - ttft_a_s, e2e_b_s - ttft_b_s
    delta = e2e_a_s - e2e_b_s
    if abs(tokens_a - tokens_b) > 0.02 * max(tokens_a, tokens_b):
        return "both", f"the runs made {tokens_a} and {tokens_b} tokens a request: not the same work"
    if abs(delta) <= 0.05 * e2e_b_s:
        return "none", (
            f"a request takes {e2e_a_s:.2f} s against {e2e_b_s:.2f} s for the same {tokens_a} tokens: no slowdown; "
            f"where counted text differs, the output is at fault (correctness), not the speed"
        )
    by_ttft = (ttft_a_s - ttft_b_s) / delta
    name = "ttft" if by_ttft >= 0.8 else "decode" if by_ttft <= 0.2 else "both"
    return name, (
        f"of {delta:+.2f} s a request, {ttft_a_s - ttft_b_s:+.2f} s is TTFT and {decode_a - decode_b:+.2f} s decoding"
    )

"""Does a level's figure hold? Each check is data: a code, a verdict, a sentence, and what not to trust. Pure."""

from __future__ import annotations

from collections.abc import Callable

from . import foreign
from .plan import Plan
from .results import USAGE, Check, LevelResult
from .serverside import ServerSide, cached_allowance, server_checks
from .stats import little_in_flight

MAX_ERROR_SHARE = 0.01
MAX_MERGED_ERROR = 0.1
"""How far a percentile of the gaps may be off for chunks that came in one read, relative."""
MAX_CLIENT_CPU = 0.9
LITTLE_TOLERANCE = 0.2


def run_checks(result: LevelResult, plan: Plan, server: ServerSide | None = None) -> tuple[Check, ...]:
    """Every check that the data allows. Call it again with `server` to add the server's side."""
    own: tuple[Callable[[LevelResult, Plan], Check | None], ...] = (
        _errors, _timeouts, _tokens, _usage, _little, _peak_in_flight, _peak_tps, _itl, _length, _answer,
        _prompt_length, _cached, _unique, _client, _merged, _late_sends, _drift, _clock,
    )  # fmt: skip
    found = [check(result, plan) for check in own]
    if server is not None:
        if server.query_tokens is not None:
            found = [check for check in found if check is None or check.code != "WARM_PREFIX"]
        found.extend(server_checks(result, plan, server))
    return tuple(check for check in found if check is not None)


def _errors(result: LevelResult, plan: Plan) -> Check | None:
    judged = result.ok + result.err
    if not judged:
        return Check("REJECTED", None, "no request ended")
    share = result.err / judged
    if share <= MAX_ERROR_SHARE:
        return Check("REJECTED", True, f"{result.err} of {judged} requests failed", value=share)
    worst = sorted(
        ((item.count, name) for name, item in result.outcomes.items() if name not in ("ok", "cancelled")), reverse=True
    )
    kinds = ", ".join(f"{count} x {name}" for count, name in worst[:3])
    return Check(
        "REJECTED",
        False,
        f"{result.err} of {judged} requests failed ({share:.0%}: {kinds}): averages over the others flatter the server",
        ("output_tps", "steady_tps", "ttft_s", "e2e_s"),
        share,
        MAX_ERROR_SHARE,
    )


def _timeouts(result: LevelResult, plan: Plan) -> Check | None:
    hit = {name: item for name, item in result.outcomes.items() if name.startswith("timeout.")}
    if not hit:
        return None
    count = sum(item.count for item in hit.values())
    name, item = max(hit.items(), key=lambda pair: pair[1].count)
    code = "STREAM_STALLED" if name == "timeout.between" else "CLIENT_TIMEOUT"
    return Check(
        code,
        False,
        f"{count} requests ran into the client's own limits ({item.example})",
        ("output_tps", "e2e_s"),
        count,
    )


def _tokens(result: LevelResult, plan: Plan) -> Check | None:
    if not result.ok and result.outcomes.get("empty") is None:
        return None
    if result.output_tokens:
        return None
    return Check(
        "ZERO_TOKENS_SUSPECT",
        False,
        f"{result.requests} requests ended with status 200 and not one token: a fault of the measurement or the model, "
        "not 0 tok/s",
        ("output_tps", "steady_tps", "ttft_s", "avg_output"),
        0,
    )


def _usage(result: LevelResult, plan: Plan) -> Check | None:
    if not result.ok:
        return None
    if result.token_source == USAGE:
        return Check("NO_USAGE", True, "tokens are the server's own count")
    return Check(
        "NO_USAGE",
        False,
        f"the server gives no usage: {result.output_tokens} chunks stand in for tokens, which is a lower bound",
        ("output_tps", "steady_tps", "tpot_s", "itl_s", "avg_output"),
    )


def _little(result: LevelResult, plan: Plan) -> Check | None:
    seen = result.e2e_settled_s
    if seen is None or result.steady_window_s is None:
        return Check("LITTLE", None, "too few requests after the first wave for Little's law")
    length = result.steady_window_s[1] - result.steady_window_s[0]
    expected = float(result.concurrency) if result.concurrency is not None else result.mean_in_flight
    enough = max(8, result.concurrency or 8)
    if result.steady_completed < enough or length <= 0:
        return Check(
            "LITTLE", None, f"{result.steady_completed} requests ended in the window: too few for Little's law"
        )
    found = little_in_flight(result.steady_completed / length, seen.mean)
    # Requests that run in step end together: one wave more or less may fall into the window.
    wave = expected / result.steady_completed
    ok = abs(found / expected - 1) <= LITTLE_TOLERANCE + wave if expected > 0 else False
    sentence = f"completed/s x latency is {found:.1f} in flight, {expected:.3g} were"
    if not ok:
        sentence += ": the window is not steady, or the latencies leave something out"
    return Check("LITTLE", ok, sentence, () if ok else ("steady_tps", "e2e_s"), found, expected)


def _peak_in_flight(result: LevelResult, plan: Plan) -> Check | None:
    ok = result.peak_in_flight >= result.mean_in_flight - 1e-6
    if result.concurrency is not None:
        ok = ok and result.peak_in_flight <= result.concurrency
    sentence = f"{result.peak_in_flight} in flight at most, {result.mean_in_flight:.2f} on average"
    distrust = () if ok else ("mean_in_flight", "e2e_s")
    return Check("PEAK_IN_FLIGHT", ok, sentence, distrust, result.peak_in_flight, result.mean_in_flight)


def _peak_tps(result: LevelResult, plan: Plan) -> Check | None:
    if result.peak_tps is None or result.output_tps is None or result.partial:
        return None
    return foreign.peak_vs_mean(result.peak_tps, result.output_tps)


def _itl(result: LevelResult, plan: Plan) -> Check | None:
    if result.itl_s is None or result.e2e_s is None or result.ttft_s is None or not result.output_tps:
        return None
    streams = result.ok * (result.e2e_s.mean - result.ttft_s.mean) / result.elapsed_s if result.elapsed_s else 0.0
    # First tokens come without a gap before them.
    tokens = result.output_tokens - result.ok * (result.tokens_per_chunk or 1.0)
    if streams <= 0 or tokens <= 0:
        return None
    return foreign.itl_vs_throughput(result.itl_s.mean, streams, tokens / result.elapsed_s)


def _length(result: LevelResult, plan: Plan) -> Check | None:
    if not result.ok or result.avg_output is None or not result.output_tokens:
        return None
    share = result.avg_output / plan.max_tokens
    if 0.95 <= share <= 1.05:
        return Check("LENGTH", True, f"{result.avg_output:.0f} of {plan.max_tokens} tokens a request", value=share)
    stops = result.finish_reasons.get("stop", 0)
    if share < 0.95 and stops * 2 >= result.ok:
        return Check(
            "EARLY_EOS",
            False,
            f"the model stopped by itself after {result.avg_output:.0f} of {plan.max_tokens} tokens on average "
            f"({stops} of {result.ok} answers): lengths differ, so compare equal lengths only",
            ("avg_output",),
            result.avg_output,
            plan.max_tokens,
        )
    if share < 0.95:
        return Check(
            "OUTPUT_TRUNCATED",
            False,
            f"answers end by length after {result.avg_output:.1f} of {plan.max_tokens} tokens: the server did not "
            "get or take the asked length",
            ("output_tps", "steady_tps", "e2e_s", "tpot_s", "avg_output"),
            result.avg_output,
            plan.max_tokens,
        )
    return foreign.length_vs_nominal(plan.max_tokens, result.avg_output)


def _answer(result: LevelResult, plan: Plan) -> Check | None:
    if not result.no_answer:
        return None
    return Check(
        "REASONING_COUNTED",
        result.no_answer < result.ok,
        f"{result.no_answer} of {result.ok} answers are reasoning only, no answer text in {plan.max_tokens} tokens; "
        "TTFT is that of the first reasoning token",
        ("answer_s",) if result.no_answer == result.ok else (),
        result.no_answer,
    )


def _prompt_length(result: LevelResult, plan: Plan) -> Check | None:
    if plan.prompts != "random" or not result.prompt_tokens or not result.ok or plan.turns > 1:
        return None
    mean = result.prompt_tokens / result.ok
    share = mean / plan.input_tokens
    ok = 0.9 <= share <= 1.15 or abs(mean - plan.input_tokens) <= 64
    sentence = f"prompts of {mean:.0f} tokens on average, {share:.0%} of the {plan.input_tokens} asked for"
    return Check("PROMPT_LENGTH", ok, sentence, () if ok else ("ttft_s", "total_tps"), mean, plan.input_tokens)


def _cached(result: LevelResult, plan: Plan) -> Check | None:
    if result.cached_tokens is None or not result.prompt_tokens or plan.turns > 1:
        return None
    return foreign.hit_rate(result.cached_tokens, result.prompt_tokens, plan.prefix_share, cached_allowance(result))


def _unique(result: LevelResult, plan: Plan) -> Check | None:
    if result.unique_prompt_share is None or plan.prefix_share >= 1 or not plan.unique_prefix:
        return None
    return foreign.uniqueness(round(result.unique_prompt_share * result.requests), result.requests)


def _client(result: LevelResult, plan: Plan) -> Check | None:
    if not result.ok:
        return None
    lag, gap = result.loop_lag_p99_s, result.icl_s
    user_space = result.kernel_share < 0.99
    # A process that lives for a blink is always busy.
    busy = result.client_cpu > MAX_CLIENT_CPU and result.elapsed_s / plan.clock_factor > 0.5
    late = False
    if lag is not None and gap is not None:
        # The kernel's stamps stay right while the loop is late, until two chunks fall into one read.
        late = lag > 0.5 * gap.p50 if user_space else lag > gap.p50 and bool(_unsure(result))
    sentence = f"the client used {result.client_cpu:.0%} of a core"
    if result.processes > 1:
        sentence = f"the busiest of the client's {result.processes} processes used {result.client_cpu:.0%} of a core"
    if lag is not None:
        sentence += f", its loop was late by {lag * 1e3:.1f} ms (p99)"
    if not (busy or late):
        return Check("CLIENT_BOUND", True, sentence, value=result.client_cpu)
    sentence += ": what is measured is this client; run the sweep on the host, or on a quieter machine"
    distrust = ("ttft_s", "icl_s", "itl_s", "tpot_s") if user_space else ("icl_s", "itl_s")
    return Check("CLIENT_BOUND", False, sentence, (*distrust, "output_tps") if busy else distrust, result.client_cpu)


def _merged(result: LevelResult, plan: Plan) -> Check | None:
    if result.icl_s is None:
        return None
    share, unsure = result.merged_share, _unsure(result)
    told = f"{share:.2%} of the chunks came together with the one before"
    if not unsure:
        return Check("MERGED_READS", True, told, value=share)
    client = result.loop_lag_p99_s is not None and result.loop_lag_p99_s >= result.icl_s.mean
    who = "this client read too late" if client else "the server or the network sent them together"
    return Check(
        "MERGED_READS",
        False,
        f"{told} ({who}): {', '.join(unsure)}",
        ("icl_s", "itl_s"),
        share,
    )


def _unsure(result: LevelResult) -> list[str]:
    """The percentiles of the gaps that chunks in one read may have moved by over 10 %, in words.

    A fixed share of such chunks cannot be the limit: 1 % of them leave the median alone and can double the p99, which
    rests on 1 % of the gaps (0.97 % were seen to put it off by 15 %). Each of them makes one gap too long and one 0,
    so a percentile is known to within that share in rank (`stats.shifted`), and what that means in time the gaps tell.
    """
    found: list[str] = []
    for name, (low, high) in result.icl_bounds.items():
        seen = getattr(result.icl_s, name)
        if high > seen * (1 + MAX_MERGED_ERROR) or low < seen * (1 - MAX_MERGED_ERROR):
            found.append(f"the gaps' {name} is {low * 1e3:.1f} to {high * 1e3:.1f} ms")
    return found


def _late_sends(result: LevelResult, plan: Plan) -> Check | None:
    if result.rate is None or result.send_delay_s is None:
        return None
    gap = 1 / result.rate
    ok = result.send_delay_s.p99 <= max(0.1 * gap, 0.005 * plan.clock_factor) and not result.held_back
    sentence = f"requests went out {result.send_delay_s.p99 * 1e3:.1f} ms after their time (p99)"
    if result.held_back:
        sentence += f", {result.held_back} waited for the limit of {plan.max_in_flight} in flight"
    return Check("LATE_SENDS", ok, sentence, () if ok else ("ttft_s", "e2e_s"), result.send_delay_s.p99, gap)


def _drift(result: LevelResult, plan: Plan) -> Check | None:
    span = result.steady_window_s
    if span is None or result.partial:
        return None
    width = result.series_s
    inside = [
        value
        for position, value in enumerate(result.tps_series)
        if position * width >= span[0] and (position + 1) * width <= span[1]
    ]
    if len(inside) < 9:
        return None
    third = len(inside) // 3
    first, last = sum(inside[:third]) / third, sum(inside[-third:]) / third
    if last <= 0:
        return None
    change = first / last - 1
    ok = abs(change) <= 0.2
    sentence = f"the first third of the window made {first:.1f} tok/s, the last {last:.1f}"
    if not ok:
        why = "kernels still compiling or caches cold" if change < 0 else "throttling, or a growing queue or context"
        sentence += f": not steady ({why}?)"
    return Check("COLD_START" if change < 0 else "DRIFT", ok, sentence, () if ok else ("steady_tps",), first, last)


def _clock(result: LevelResult, plan: Plan) -> Check | None:
    if not result.clock_steps:
        return None
    sentence = f"this machine's clock was set {result.clock_steps} times while measuring"
    return Check("CLOCK_STEP", False, sentence, ("ttft_s", "icl_s", "itl_s"), result.clock_steps)

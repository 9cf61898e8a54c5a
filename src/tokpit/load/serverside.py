"""The server's own numbers against the client's, for whoever can see both. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from . import foreign
from .plan import Plan
from .results import Check, LevelResult


@dataclass(frozen=True)
class ServerSide:
    """What the server said about the same time, given by whoever watches it; None or empty is unknown."""

    tokens_before: float | None = None
    tokens_after: float | None = None
    """Generated-token counter at the begin and the end of the level."""
    running: tuple[float, ...] = ()
    queued: tuple[float, ...] = ()
    """Samples during the level."""
    hit_tokens: float | None = None
    query_tokens: float | None = None
    """Prefix cache: tokens found and tokens looked up during the level."""
    in_flight_now: int | None = None
    """The client's own number in flight at the last samples."""


def server_checks(result: LevelResult, plan: Plan, server: ServerSide) -> list[Check]:
    """The checks that `server`'s numbers allow."""
    found = [_server_count(result, server), _server_limit(result, server), _lost(server)]
    # A later turn of a conversation finds the turns before it in the cache, as it should.
    if server.hit_tokens is not None and server.query_tokens is not None and plan.turns == 1:
        allowance = cached_allowance(result)
        found.append(foreign.hit_rate(server.hit_tokens, server.query_tokens, plan.prefix_share, allowance))
    return [check for check in found if check is not None]


def cached_allowance(result: LevelResult) -> float:
    """The share that a chat template alone may put into the prefix cache: large for short prompts."""
    mean = (result.prompt_tokens or 0) / result.ok if result.ok else 0.0
    return 0.02 if mean >= 1000 else 0.05 if mean >= 300 else 0.3


def _server_count(result: LevelResult, server: ServerSide) -> Check | None:
    if server.tokens_before is None or server.tokens_after is None or not result.output_tokens:
        return None
    made, seen = server.tokens_after - server.tokens_before, result.output_tokens
    ratio = made / seen
    sentence = f"the server made {made:.0f} tokens, the client counted {seen} in good answers"
    if made < 0:
        return Check("SERVER_COUNT", None, "the server's counter went back: it was restarted")
    if ratio > 1.15:
        if result.err or result.cancelled:
            return Check("SERVER_COUNT", None, sentence + "; failed and stopped requests make up the rest")
        sentence += f" ({ratio:.2f} times): the client is the bottleneck, or somebody else uses the server"
        return Check("CLIENT_BOUND", False, sentence, ("output_tps", "steady_tps", "ttft_s"), made, seen)
    if ratio < 0.87:
        sentence += f" ({ratio:.2f} times): the two do not count the same"
        return Check("COUNT_MISMATCH", False, sentence, ("output_tps", "steady_tps"), made, seen)
    return Check("SERVER_COUNT", True, sentence, (), made, seen)


def _server_limit(result: LevelResult, server: ServerSide) -> Check | None:
    if result.concurrency is None or len(server.running) < 3 or len(server.queued) < 3:
        return None
    peak = max(server.running)
    if max(server.queued) > 0 or peak >= 0.95 * result.concurrency:
        return Check(
            "CLIENT_LIMIT", True, f"the server saw up to {peak:.0f} of {result.concurrency} at once", value=peak
        )
    return Check(
        "CLIENT_LIMIT",
        False,
        f"the server never saw more than {peak:.0f} running and 0 queued for C={result.concurrency}: something between "
        "holds requests back (connection limit, file descriptors, a proxy)",
        ("output_tps", "steady_tps", "ttft_s"),
        peak,
        result.concurrency,
    )


def _lost(server: ServerSide) -> Check | None:
    if not server.in_flight_now or len(server.running) < 3 or len(server.queued) < 3:
        return None
    if any(server.running[-3:]) or any(server.queued[-3:]):
        return Check("LOST_REQUESTS", True, "the server works on what is in flight")
    return Check(
        "LOST_REQUESTS",
        False,
        f"{server.in_flight_now} requests are in flight at the client and none at the server: they are lost",
        ("output_tps", "e2e_s"),
        server.in_flight_now,
        0,
    )

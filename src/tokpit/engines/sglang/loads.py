"""Values from SGLang's `/v1/loads`, for servers that run without metrics."""

from __future__ import annotations

import math

from tokpit.engines.logkit.values import finite


def samples(page: object) -> dict[str, float]:
    """Server-wide values of a load page in tags of domain.metrics; empty for anything else.

    Requests and tokens are sums over data-parallel ranks, usage is the largest. The rate stays at its last value when
    nothing runs, and is 0 throughout where metrics are off: it is given as 0 only when no request runs, and left
    out where it is 0 although some run.
    """
    loads = page.get("loads") if isinstance(page, dict) else None
    ranks = [rank for rank in loads if isinstance(rank, dict)] if isinstance(loads, list) else []
    out: dict[str, float] = {}
    for tag, name in _SUMS:
        found = [value for rank in ranks if (value := finite(rank.get(name))) is not None]
        if found:
            out[tag] = sum(found)
    usages = [value for rank in ranks if (value := finite(rank.get("token_usage"))) is not None]
    if usages:
        out["kv_usage"] = max(usages)
    rates = [value for rank in ranks if (value := finite(rank.get("gen_throughput"))) is not None]
    running = out.get("running_reqs")
    if rates and running == 0:
        out["gen_tps"] = 0.0
    elif rates and sum(rates) > 0 and running is not None:
        out["gen_tps"] = sum(rates)
    return {tag: value for tag, value in out.items() if math.isfinite(value)}


_SUMS = (
    ("running_reqs", "num_running_reqs"),
    ("queue_reqs", "num_waiting_reqs"),
    ("kv_tokens", "num_used_tokens"),
    ("max_running_reqs", "max_running_requests"),
)

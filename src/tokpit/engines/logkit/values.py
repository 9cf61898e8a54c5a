"""Printed figures to numbers. What is printed but is not a finite number is None, never 0."""

from __future__ import annotations

import math
from collections.abc import Callable

from tokpit.domain.records import Scalar, Value

_TOO_LARGE = 10**18
"""No server counts that far; larger whole numbers would not fit the floats that are computed with."""


def number(text: str) -> float | int | None:
    """`12` -> 12, `1,204` -> 1204, `12.5` -> 12.5; None for `nan`, `inf` and anything that is no number."""
    text = text.replace(",", "").strip()
    try:
        value = int(text)
    except ValueError:
        return real(text)
    return value if abs(value) < _TOO_LARGE else None


def real(text: str) -> float | None:
    """A float, None where the text is no finite number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def finite(value: object) -> float | None:
    """A number of a JSON page as a float; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def whole(text: str) -> int | None:
    """An int, thousands separators allowed; None where the text is no whole number."""
    value = number(text)
    return int(value) if value is not None and float(value).is_integer() and abs(value) < _TOO_LARGE else None


def fraction(text: str) -> float | None:
    """`97.8%` or `97.8` -> 0.978; None for `nan%`."""
    value = real(text.rstrip("%. "))
    return None if value is None else round(value / 100, 8)


def truth(text: str) -> bool:
    """`True` and `true` are true."""
    return text.strip() in {"True", "true"}


def same(text: str) -> Scalar:
    """The text itself."""
    return text


Convert = Callable[[str], Value]

_WHOLE = frozenset(
    {
        "pid",
        "rank",
        "exit_code",
        "done",
        "total",
        "batch_size",
        "engine_generation",
        "kv_tokens",
        "max_model_len",
        "max_num_seqs",
        "mamba_blocks",
        "estimated_max_model_len",
        "api_server_index",
        "host_tokens",
        "host_state_slots",
        "max_mamba_cache_size",
        "slots_per_request",
        "max_running_requests",
        "max_total_num_tokens",
        "max_prefill_tokens",
        "chunked_prefill_size",
        "context_len",
        "ranks_on_host",
        "retracted_reqs",
        "aborted_reqs",
        "new_tokens_gained",
        "mamba_num_gained",
        "remaining_requests",
        "timeout_s",
        "silent_s",
        "port",
        "slot",
        "task",
        "n_slots",
        "n_ctx_slot",
        "prompt_tokens",
        "gen_tokens",
        "accepted_tokens",
        "drafted_tokens",
        "prompt_tokens_done",
        "iter",
        "context_reqs",
        "context_tokens",
        "generation_reqs",
        "generation_tokens",
        "engine",
        "status",
        "requested_reqs",
    }
)
_REAL = frozenset(
    {
        "mem_fraction_static",
        "utilization",
        "ratio_before",
        "ratio_after",
        "fraction",
        "max_concurrency",
        "new_token_ratio_before",
        "new_token_ratio_after",
        "accept_rate",
        "accept_len",
        "tflops_per_device",
        "read_write_gbps_per_device",
        "gen_tps",
        "gen_tps_3s",
        "prompt_tps",
    }
)
_TRUTH = frozenset({"soft", "kv_unified"})
_FRACTION = frozenset({"progress", "kv_usage"})
_UNITS = ("_gb", "_gib", "_s", "_ms", "_tps", "_per_token", "_per_rank")


def converter(name: str) -> Convert:
    """How the text of a captured group of that canonical name becomes a value."""
    if name in _WHOLE:
        return whole
    if name in _FRACTION:
        return fraction
    if name in _TRUTH:
        return truth
    if name in _REAL or name.endswith(_UNITS):
        return real
    return same
